"""Deletion vectors as bytes: read back by us and by PyIceberg, and refused when they are none."""

from __future__ import annotations

import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from headgate.errors import BadInput
from headgate.format.deletion_vectors import decode_vector, encode_puffin, encode_vector

POSITIONS = [[0], [1, 2, 3, 70_000], list(range(100_000)), [0, 2**32, 2**33 + 5]]


@pytest.mark.parametrize("positions", POSITIONS, ids=len)
def test_a_vector_is_read_back_by_us_and_by_pyiceberg(positions: list[int]) -> None:
    content, blobs = encode_puffin({"file:///ü": BitMap64([7]), "s3://b/k": BitMap64(positions)})
    blob = blobs["s3://b/k"]
    assert blob.rows == len(positions)
    ours = decode_vector(content[blob.offset : blob.offset + blob.size_bytes], location="x")
    assert list(ours) == positions
    theirs = {one.referenced_data_file: one for one in deletion_vectors_from_puffin_file(PuffinFile(content))}
    assert theirs["s3://b/k"].to_vector().to_pylist() == positions
    assert theirs["file:///ü"].to_vector().to_pylist() == [7]


@pytest.mark.parametrize("broken", [b"", b"x" * 20, "length", "checksum", "magic"])
def test_bytes_that_are_no_vector_are_refused(broken: bytes | str) -> None:
    good = bytearray(encode_vector(BitMap64([1, 2])))
    if isinstance(broken, str):
        good[{"length": 3, "checksum": -1, "magic": 4}[broken]] ^= 1
    with pytest.raises(BadInput, match="somewhere"):
        decode_vector(bytes(good) if isinstance(broken, str) else broken, location="somewhere")

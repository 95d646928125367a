"""Blocks of Avro containers: every record is in one, in order, and a block is stored or compressed but always readable."""

from __future__ import annotations

import zlib

import pytest

from headgate.format.avro_values import read_long
from headgate.format.avro_write import Container, open_container, write_blocks

MANY = 256 * 1024  # the size at which a block is closed


def read_all(container: Container, data: bytes, *, codec: str) -> list[tuple[int, bytes]]:
    """How many records each block has, and their bytes."""
    found, at = [], 0
    while at < len(data):
        count, at = read_long(data, at)
        size, at = read_long(data, at)
        body, at = data[at : at + size], at + size
        assert data[at : at + 16] == container.sync
        at += 16
        found.append((count, body if codec == "null" else zlib.decompress(body, -15)))
    return found


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([], []),
        ([1], [1]),
        ([1023], [1]),
        ([1024], [1]),
        ([1025], [1]),
        ([MANY], [1]),
        ([MANY + 1], [1]),
        ([1, 2, 3], [3]),
        ([MANY - 1, 1], [2]),
        ([MANY, 1], [1, 1]),
        ([1, MANY, 5, 6], [2, 2]),
        ([MANY // 2] * 5, [2, 2, 1]),
    ],
    ids=str,
)
def test_records_share_blocks_up_to_a_size_and_all_come_back(
    codec: str, sizes: list[int], blocks: list[int]
) -> None:
    container = open_container(b'"bytes"', {}, codec=codec)
    records = [bytes([n]) * size for n, size in enumerate(sizes)]
    data = write_blocks(container, records)
    found = read_all(container, data, codec=codec)
    assert [count for count, _ in found] == blocks
    assert b"".join(body for _, body in found) == b"".join(records)


def test_a_small_block_is_stored_and_a_large_one_is_compressed() -> None:
    container = open_container(b'"bytes"', {}, codec="deflate")
    small, large = (write_blocks(container, [b"x" * size]) for size in (1024, 1025))
    assert b"x" * 1024 in small
    assert len(large) < 100

"""A manifest of files that an append adds is what the general encoder makes of the same entries, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.manifest import ContentFile, FileContent, ManifestContent, Metrics
from headgate.errors import BadInput, InvariantBroken
from headgate.format.manifest_encode import AddedEncoder, encode_manifest
from tests.format.entries import SNAPSHOT_ID, added, file, listed, spec_of

_counts = st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=4)
_bounds = st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=90), max_size=4)
_metrics = st.none() | st.builds(Metrics, _counts, _counts, _counts, _counts, _bounds, _bounds)


@st.composite
def _files(draw: st.DrawFn, *, partitioned: bool) -> ContentFile:
    path = draw(st.text(max_size=80))
    partition = (draw(st.none() | st.booleans()), draw(st.none() | st.text(max_size=4)))
    return file(
        path,
        *(partition if partitioned else ()),
        record_count=draw(st.integers(0, 2**63 - 1)),
        file_size_in_bytes=draw(st.integers(0, 2**63 - 1)),
        file_format=draw(st.sampled_from(["PARQUET", "ORC", "AVRO"])),
        metrics=draw(_metrics),
        key_metadata=draw(st.none() | st.binary(max_size=4)),
        split_offsets=draw(st.none() | st.lists(st.integers(0, 2**40), max_size=3).map(tuple)),
        sort_order_id=draw(st.none() | st.integers(0, 3)),
    )


@given(st.data(), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(1, 2**63 - 1))
def test_an_append_writes_what_the_general_encoder_writes(
    data: st.DataObject, version: int, partitioned: bool, number: int
) -> None:
    spec, schema = spec_of(*(("flag", "odd.name") if partitioned else ()))
    files = data.draw(st.lists(_files(partitioned=partitioned), min_size=1, max_size=4))
    general = encode_manifest(
        [added(one) for one in files],
        spec=spec,
        schema=schema,
        format_version=version,
        content=ManifestContent.DATA,
    )
    encoder = AddedEncoder(spec=spec, schema=schema, format_version=version)
    for _ in range(2):  # the second time it remembers
        made = encoder.encode(files, "m.avro", snapshot_id=SNAPSHOT_ID, sequence_number=number)
        assert made.data == general.data
        assert made.files == general.files
        expected = {"sequence_number": number, "min_sequence_number": number}
        assert made.manifest == listed(general, ManifestContent.DATA, **expected)


@pytest.mark.parametrize(
    "wrong", [{"spec_id": 4}, {"content": FileContent.POSITION_DELETES}, {"first_row_id": 7}], ids=str
)
def test_what_is_no_new_data_file_of_the_spec_is_never_written_as_one(wrong: dict[str, int]) -> None:
    spec, schema = spec_of()
    encoder = AddedEncoder(spec=spec, schema=schema, format_version=3)
    with pytest.raises(InvariantBroken, match="a new data file of its spec; file=b"):
        encoder.encode([file("a"), file("b", **wrong)], "m.avro", snapshot_id=1, sequence_number=1)


def test_a_partition_with_other_fields_than_the_spec_is_refused_in_an_append_too() -> None:
    spec, schema = spec_of("flag")
    encoder = AddedEncoder(spec=spec, schema=schema, format_version=2)
    with pytest.raises(BadInput, match="are not those of the spec"):
        encoder.encode([file("a")], "m.avro", snapshot_id=1, sequence_number=1)

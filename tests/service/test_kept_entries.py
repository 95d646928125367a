"""What is kept of an append's manifest reads as what any other manifest written here does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headgate.core.manifest import ManifestContent
from headgate.format.manifest_encode import encode_manifest
from headgate.service.kept_entries import inherit, keep_added, keep_merged, keep_written
from tests.format.entries import added, file, listed, spec_of

FILES = [file("a", record_count=5), file("b", record_count=7), file("c", record_count=0)]
ENTRIES = tuple([added(one) for one in FILES])


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        (1, {"sequence_number": 0}),
        (2, {"sequence_number": 9}),
        (3, {"sequence_number": 9, "first_row_id": 40}),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_files_of_an_append_are_read_with_the_numbers_that_they_inherit(
    version: int, numbers: dict[str, int], count: int
) -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    entries = ENTRIES[:count]
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=version, content=content)
    manifest = listed(encoded, content, **numbers)
    kept = keep_added(b"hashes", FILES[:count], encoded.files, manifest)
    general = keep_written(b"hashes", entries, encoded.files)
    assert kept.read(manifest) == general.read(manifest) == inherit(entries, manifest)
    assert kept.read(replace(manifest)) == kept.found
    assert kept.size_bytes == general.size_bytes


@pytest.mark.parametrize("other", [{"sequence_number": 8}, {"first_row_id": 41}], ids=str)
def test_under_other_numbers_an_append_has_to_be_read_again(other: dict[str, int]) -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    encoded = encode_manifest(ENTRIES, spec=spec, schema=schema, format_version=3, content=content)
    manifest = listed(encoded, content, first_row_id=40)
    kept = keep_added(b"", FILES, encoded.files, manifest)
    assert kept.read(replace(manifest, **other)) is None


def test_of_a_merged_manifest_its_bytes_have_to_be_read() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    encoded = encode_manifest(ENTRIES, spec=spec, schema=schema, format_version=2, content=content)
    kept = keep_merged(b"hashes", encoded.data)
    assert kept.read(listed(encoded, content)) is None
    assert kept.size_bytes == len(b"hashes") + len(encoded.data)

"""Footprints: what goes in comes out, and what is too much or unknown is left to the files."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Metrics,
    PartitionValue,
)
from headgate.core.window import find_changes
from headgate.format.footprints import (
    HASH_BYTES,
    decode_footprint,
    encode_appended,
    encode_footprint,
    hash_path,
    hash_paths,
)

_OURS, _OLDER = 7001, 6999
_longs = st.integers(-(2**63), 2**63 - 1)
_counts = st.integers(0, 2**63 - 1)
_maybe = st.none() | _counts
_bytes = st.none() | st.binary(max_size=5)
_columns = st.dictionaries(st.integers(0, 100), _counts, max_size=2)
_limits = st.dictionaries(st.integers(0, 100), st.binary(max_size=4), max_size=2)
_values = (
    st.none()
    | st.booleans()
    | _longs
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3)
)


def _metrics() -> st.SearchStrategy[Metrics]:
    columns, limits = st.none() | _columns, st.none() | _limits
    return st.builds(Metrics, columns, columns, columns, columns, limits, limits)


def _files() -> st.SearchStrategy[ContentFile]:
    return st.builds(
        ContentFile,
        content=st.sampled_from(FileContent),
        file_path=st.text(max_size=8),
        file_format=st.sampled_from(["PARQUET", "PUFFIN"]),
        spec_id=st.integers(0, 9),
        partition=st.lists(st.tuples(st.integers(1000, 1009), _values), max_size=2).map(tuple),
        record_count=_counts,
        file_size_in_bytes=_counts,
        equality_ids=st.none() | st.lists(st.integers(0, 9), max_size=2).map(tuple),
        sort_order_id=_maybe,
        first_row_id=_maybe,
        referenced_data_file=st.none() | st.text(max_size=3),
        content_offset=_maybe,
        content_size_in_bytes=_maybe,
        key_metadata=_bytes,
        split_offsets=st.none() | st.lists(_counts, max_size=2).map(tuple),
        metrics=st.none() | _metrics(),
    )


def _entries() -> st.SearchStrategy[ManifestEntry]:
    ids = st.sampled_from([_OURS, _OLDER])
    return st.builds(ManifestEntry, st.sampled_from(EntryStatus), ids, _counts, _maybe, _files())


@st.composite
def _manifests(draw: st.DrawFn) -> ManifestFile:
    summary = st.builds(FieldSummary, st.booleans(), st.none() | st.booleans(), _bytes, _bytes)
    summaries = st.none() | st.lists(summary, max_size=2).map(tuple)
    counts: list[Any] = [draw(st.none() | st.integers(1, 9)) for _ in range(6)]
    rest: list[Any] = [*counts, draw(summaries), draw(_bytes), draw(_maybe)]
    path, content = draw(st.text(max_size=8)), draw(st.sampled_from(ManifestContent))
    return ManifestFile(path, draw(_counts), draw(st.integers(0, 9)), content, 9, 3, _OURS, *rest)


def _file(path: str = "d.parquet", value: PartitionValue = 1, **facts: Any) -> ContentFile:
    return ContentFile(FileContent.DATA, path, "PARQUET", 0, ((1000, value),), 5, 100, **facts)


def _entry(status: EntryStatus = EntryStatus.ADDED, by: int = _OURS, **facts: Any) -> ManifestEntry:
    return ManifestEntry(status, by, 9, 9, _file(**facts))


def _manifest(added: int | None = 1, existing: int | None = 0, deleted: int | None = 0) -> ManifestFile:
    return ManifestFile("m.avro", 10, 0, ManifestContent.DATA, 9, 9, _OURS, added, existing, deleted)


def _again(manifest: ManifestFile, entries: tuple[ManifestEntry, ...] | None) -> Any:
    (own,) = decode_footprint(encode_footprint([(manifest, b"", entries)])) or ()
    return own


@given(_manifests(), st.lists(_entries(), max_size=4).map(tuple), st.binary(max_size=10))
def test_a_manifest_its_hashes_and_what_its_snapshot_did_come_back_as_they_were(
    manifest: ManifestFile, entries: tuple[ManifestEntry, ...], hashes: bytes
) -> None:
    (own,) = decode_footprint(encode_footprint([(manifest, hashes, entries)])) or ()
    assert (own.manifest, own.hashes) == (manifest, hashes)
    assert own.changes() == find_changes(entries, manifest)


@given(_manifests(), st.lists(_files(), max_size=30), st.binary(max_size=10))
def test_the_footprint_of_an_append_is_what_it_is_of_any_manifest(
    manifest: ManifestFile, files: list[ContentFile], hashes: bytes
) -> None:
    entries = tuple([ManifestEntry(EntryStatus.ADDED, _OURS, 9, 9, file) for file in files])
    expected = encode_footprint([(manifest, hashes, entries)])
    assert encode_appended(manifest, hashes, entries) == expected


def test_entries_are_given_only_when_they_are_all_that_the_manifest_holds() -> None:
    mine = _entry()
    older = _entry(EntryStatus.EXISTING, _OLDER, path="e.parquet")
    assert _again(_manifest(), (mine,)).entries() == (mine,)
    rewritten = _again(_manifest(existing=1), (mine, older))
    assert rewritten.entries() is None
    assert rewritten.changes() == (mine,)
    assert _again(_manifest(existing=None), (mine,)).entries() is None
    # Added, it says, by another snapshot: not a change of this one, and so not among what is kept.
    assert _again(_manifest(added=2), (mine, _entry(by=_OLDER))).entries() is None


def test_a_merged_manifest_has_no_changes_whoever_knows_its_entries() -> None:
    merged = _again(_manifest(added=0, existing=2), None)
    assert merged.changes() == ()
    assert merged.entries() is None


# why the entries are not kept
@pytest.mark.parametrize(
    "entries",
    [
        None,
        tuple(_entry(path=f"{n}.parquet") for n in range(100)),
        (_entry(metrics=Metrics(lower_bounds={1: b"x" * 5000})),),
        (_entry(value=Decimal("1.5")),),
    ],
    ids=["unknown", "many", "large", "decimal partition"],
)
def test_entries_that_are_unknown_too_many_or_not_plain_are_left_to_the_file(
    entries: tuple[ManifestEntry, ...] | None,
) -> None:
    own = _again(_manifest(), entries)
    assert own.changes() is None
    assert own.entries() is None


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_footprint_of_another_version_is_as_if_there_were_none(version: int) -> None:
    assert decode_footprint(msgspec.msgpack.encode([version, "whatever it holds"])) is None


def test_hashes_of_paths_stand_one_after_the_other() -> None:
    both = hash_paths(["a", "b"])
    assert both == hash_path("a") + hash_path("b")
    assert both == hash_paths(["a"]) + hash_paths(["b"])
    assert len(both) == 2 * HASH_BYTES

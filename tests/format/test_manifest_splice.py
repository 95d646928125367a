"""Manifests merged as bytes: the same as merged as entries, whichever road was taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list

from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    NewEntry,
    PartitionValue,
)
from headgate.core.manifest_merge import (
    AddedTwice,
    Budget,
    MergeManifests,
    MergePolicy,
    MergeReply,
)
from headgate.core.merged_entries import merge_entries
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.errors import BadInput, InvariantBroken
from headgate.format.avro import read_blocks, read_metadata
from headgate.format.manifest_encode import SETTLED, EncodedManifest, encode_manifest
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.format.manifest_splice import Source, splice_manifests
from headgate.format.manifests import decode_manifest
from tests.core.merged_table import SPECS, World, facts
from tests.core.merged_table import file as plain_file
from tests.format.entries import RESULTS, added, file, kept, listed, spec_of

DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES
EVERY = pytest.mark.parametrize("version", [1, 2, 3])
LATER = 7002  # a snapshot after SNAPSHOT_ID


def source(
    entries: Sequence[NewEntry], *names: str, version: int = 2, content: ManifestContent = DATA, **facts: Any
) -> Source:
    """A manifest with these entries, of which the bytes are known."""
    spec, schema = spec_of(*names)
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=version, content=content)
    if version == 3 and content is DATA:
        facts = {"first_row_id": 100, **facts}
    if version == 1:
        facts = {"sequence_number": 0, "min_sequence_number": 0, **facts}
    return Source(listed(encoded, content, **facts), encoded.data)


def settled(*paths: str, version: int = 2, **facts: Any) -> Source:
    """One that was merged before."""
    entries = [kept(file(path, first_row_id=7 if version == 3 else None)) for path in paths]
    return source(entries, version=version, **facts)


def splice(
    sources: Sequence[Source], *names: str, version: int = 2, content: ManifestContent = DATA
) -> EncodedManifest | AddedTwice | None:
    spec, schema = spec_of(*names)
    return splice_manifests(
        sources, snapshot_id=LATER, spec=spec, schema=schema, format_version=version, content=content
    )


def made(
    sources: Sequence[Source], *names: str, version: int = 2, content: ManifestContent = DATA
) -> EncodedManifest:
    merged = splice(sources, *names, version=version, content=content)
    assert isinstance(merged, EncodedManifest)
    return merged


def read(encoded: EncodedManifest, content: ManifestContent = DATA, **facts: Any) -> list[ManifestEntry]:
    manifest = listed(encoded, content, added_snapshot_id=LATER, **facts)
    return list(decode_manifest(encoded.data, manifest, location="m", metrics=True))


def entries_of(one: Source) -> tuple[ManifestEntry, ...]:
    assert one.data is not None
    return tuple(decode_manifest(one.data, one.manifest, location="m", metrics=True))


def known(one: Source, files: EncodedManifest) -> Source:
    """The same, remembered instead of read."""
    return Source(one.manifest, entries=entries_of(one), files=files.files)


# --- roads ----------------------------------------------------------------------------------------------


@EVERY
def test_every_road_leads_to_the_same_entries(version: int) -> None:
    spec, schema = spec_of()
    news = [added(file("a", split_offsets=(4,))), added(file("b", sort_order_id=1))]
    encoded = encode_manifest(news, spec=spec, schema=schema, format_version=version, content=DATA)
    fresh = source(news, version=version)
    old = settled("c", "d", version=version)
    roads = [
        [fresh, old],
        [known(fresh, encoded), old],
        [Source(fresh.manifest, entries=entries_of(fresh)), Source(old.manifest, entries=entries_of(old))],
    ]
    listing: dict[str, Any] = {1: {"sequence_number": 0}, 2: {}, 3: {"first_row_id": 5000}}[version]
    results = [read(made(road, version=version), **listing) for road in roads]
    assert [e.file.file_path for e in results[0]] == ["a", "b", "c", "d"]
    expected = [
        replace(entry, status=EntryStatus.EXISTING) for one in (fresh, old) for entry in entries_of(one)
    ]
    assert results == [expected] * 3


@EVERY
def test_only_what_inherits_nothing_is_marked_as_settled(version: int) -> None:
    unnumbered = source([kept(file("a"))], version=version)
    fresh = source([added(file("a"))], version=version)
    removed = source([kept(file("a"), status=EntryStatus.DELETED)], version=version)
    marks = [
        SETTLED in read_metadata(one.data or b"", location="m")
        for one in (settled("a", version=version), unnumbered, fresh, removed, source([], version=version))
    ]
    assert marks == [True, version < 3, False, False, False]


def test_the_blocks_of_settled_manifests_are_copied_as_they_are() -> None:
    sources = [settled("a"), settled("b", "c")]
    merged = made(sources)
    assert [block.num_records for block in fastavro.block_reader(BytesIO(merged.data))] == [1, 2]
    assert merged.data.endswith(b"".join(read_blocks(one.data or b"", location="m").data for one in sources))
    assert merged.files == ()


@pytest.mark.parametrize(
    "change",
    [
        {"added_files_count": 1},
        {"deleted_files_count": 1},
        {"existing_files_count": 3},
        {"existing_rows_count": None},
        {"partitions": None},
        {"partitions": (FieldSummary(False),)},
    ],
)
def test_what_the_list_says_otherwise_is_read_and_not_copied(change: dict[str, Any]) -> None:
    honest = settled("a", "b")
    lying = replace(honest, manifest=replace(honest.manifest, **change))
    merged = made([lying])
    assert len(merged.files) == 2
    assert (merged.existing_files_count, merged.existing_rows_count) == (2, 10)


def test_unknown_nan_counts_of_a_partition_field_are_found_by_reading() -> None:
    one = source([kept(file("a", 1.5))], "ratio")
    vague = replace(one.manifest, partitions=(FieldSummary(False, None),))
    assert made([replace(one, manifest=vague)], "ratio").partitions == one.manifest.partitions


def test_a_manifest_of_another_codec_or_version_is_read_and_not_copied() -> None:
    spec, schema = spec_of()
    entries = [kept(file("a"))]
    other = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=DATA, codec="null")
    v1 = source([kept(file("b"), number=0)], version=1)
    merged = made([Source(listed(other, DATA), other.data), v1, settled("c")])
    assert [e.file.file_path for e in read(merged)] == ["a", "b", "c"]
    assert [one.path for one in merged.files] == ["a", "b"]
    assert read(merged)[1].data_sequence_number == 0


def test_a_partition_column_that_was_widened_is_written_anew() -> None:
    field = PartitionField(name="p", transform="identity", source_id=1, field_id=1000)
    spec = PartitionSpec(fields=(field,), spec_id=3)
    old, new = (
        Schema(fields=(Field(id=1, name="c", type=kind, required=False),)) for kind in ("int", "long")
    )
    narrow = encode_manifest([kept(file("a", 5))], spec=spec, schema=old, format_version=2, content=DATA)
    merged = splice_manifests(
        [Source(listed(narrow, DATA), narrow.data)],
        snapshot_id=LATER, spec=spec, schema=new, format_version=2, content=DATA,
    )  # fmt: skip
    assert isinstance(merged, EncodedManifest)
    assert merged.partitions == (FieldSummary(False, False, b"\x05" + b"\0" * 7, b"\x05" + b"\0" * 7),)
    assert read(merged)[0].file.partition == ((1000, 5),)


def test_row_ids_that_existing_files_inherit_are_written_and_not_copied() -> None:
    upgraded = source([kept(file("a")), kept(file("b"))], version=3, first_row_id=100)
    merged = made([settled("c", version=3), upgraded], version=3)
    assert [e.file.first_row_id for e in read(merged, first_row_id=5000)] == [7, 100, 105]


def test_remembered_bytes_spare_encoding_the_file_again() -> None:
    spec, schema = spec_of()
    news = [added(file("a", record_count=8))]  # bytes that say something else, to be told apart
    encoded = encode_manifest(news, spec=spec, schema=schema, format_version=2, content=DATA)
    merged = made([known(source([added(file("a", record_count=5))]), encoded)])
    assert [e.file.record_count for e in read(merged)] == [8]


def test_remembered_bytes_of_another_version_are_not_used() -> None:
    spec, schema = spec_of()
    one = file("a", first_row_id=7)
    v2 = encode_manifest([added(one)], spec=spec, schema=schema, format_version=2, content=DATA)
    stale = Source(
        listed(v2, DATA), entries=(ManifestEntry(EntryStatus.ADDED, 5, 3, 3, one),), files=v2.files
    )
    assert read(made([stale], version=3), first_row_id=0)[0].file == one


# --- what a list says of the result ---------------------------------------------------------------------


def test_counts_rows_and_the_smallest_number_are_those_of_all_sources() -> None:
    sources = [
        source([added(file("a", record_count=1))]),
        source([kept(file("b", record_count=20), number=4), kept(file("c", record_count=300), number=2)]),
        source([kept(file("d", record_count=4000), number=1, status=EntryStatus.DELETED)]),
    ]
    merged = made(sources)
    assert (merged.added_files_count, merged.existing_files_count, merged.deleted_files_count) == (0, 3, 0)
    assert (merged.existing_rows_count, merged.min_sequence_number) == (321, 2)


def _halves(name: str) -> tuple[Sequence[PartitionValue], Sequence[PartitionValue]]:
    value = RESULTS[name][2]
    return [value, None], [value]


@pytest.mark.parametrize("name", list(RESULTS))
def test_summaries_of_copied_blocks_bound_what_is_in_them(name: str) -> None:
    halves = _halves(name)
    sources = [
        source(
            [kept(file(f"{n}{k}", value, first_row_id=7)) for k, value in enumerate(half)], name, version=3
        )
        for n, half in enumerate(halves)
    ]
    whole = [NewEntry(EntryStatus.EXISTING, e.file, 1, 1, 1) for one in sources for e in entries_of(one)]
    spec, schema = spec_of(name)
    expected = encode_manifest(whole, spec=spec, schema=schema, format_version=3, content=DATA)
    merged = made(sources, name, version=3)
    assert merged.files == ()
    assert merged.partitions == expected.partitions


@given(st.lists(st.lists(st.none() | st.floats(width=32), min_size=1), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_copied_or_read_summaries_of_floats_are_the_same(halves: list[list[float | None]]) -> None:
    sources = [
        source([kept(file(f"{n}-{k}", value)) for k, value in enumerate(half)], "ratio")
        for n, half in enumerate(halves)
    ]
    by_entries = [Source(one.manifest, entries=entries_of(one)) for one in sources]
    assert made(sources, "ratio").partitions == made(by_entries, "ratio").partitions


# --- rules ----------------------------------------------------------------------------------------------


def test_a_file_that_is_live_in_two_manifests_is_a_finding_that_names_it() -> None:
    finding = splice([source([added(file("a"))]), source([added(file("a"))])])
    assert isinstance(finding, AddedTwice)
    assert finding.files == ("a",)


def test_manifests_of_removed_files_alone_leave_nothing_to_write() -> None:
    assert splice([source([kept(file("a"), status=EntryStatus.DELETED)])]) is None


def test_a_path_removed_and_added_again_keeps_the_bytes_of_the_live_file() -> None:
    spec, schema = spec_of()
    old, new = file("a", record_count=1), file("a", record_count=2)
    entries = [added(new), kept(old, status=EntryStatus.DELETED)]
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=DATA)
    one = Source(listed(encoded, DATA), encoded.data)
    assert [e.file for e in read(made([known(one, encoded)]))] == [new]


def test_a_source_of_which_nothing_is_known_is_a_bug() -> None:
    with pytest.raises(InvariantBroken, match="neither"):
        splice([Source(settled("a").manifest)])


def test_a_manifest_that_is_cut_off_is_never_copied() -> None:
    whole = settled("a", "b")
    with pytest.raises(BadInput, match=r"m\.avro"):
        splice([replace(whole, data=(whole.data or b"")[:-3])])


@pytest.mark.parametrize("version", [2, 3])
def test_delete_manifests_are_merged_like_others(version: int) -> None:
    position = plain_file("p", content=DELETES)
    vector = replace(
        position, file_path="v", file_format="PUFFIN", referenced_data_file="d", content_offset=4,
        content_size_in_bytes=9,
    )  # fmt: skip
    files = [replace(one, partition=()) for one in ([position, vector] if version == 3 else [position])]
    sources = [source([added(one)], version=version, content=DELETES) for one in files]
    merged = made(sources, version=version, content=DELETES)
    again = made([Source(listed(merged, DELETES), merged.data)], version=version, content=DELETES)
    assert again.files == ()
    for encoded in (merged, again):
        assert [e.file for e in read(encoded, DELETES)] == files


# --- other readers --------------------------------------------------------------------------------------


@EVERY
def test_pyiceberg_reads_a_manifest_of_copied_and_new_blocks(tmp_path: Path, version: int) -> None:
    fresh = source([added(file("a", 5, split_offsets=(4,)))], "day", version=version)
    old = source(
        [kept(file("b", 3, first_row_id=7 if version == 3 else None), number=0 if version == 1 else 2)],
        "day",
        version=version,
    )
    merged = made([old, fresh, old], "day", version=version)
    path = tmp_path / "m.avro"
    path.write_bytes(merged.data)
    row_id = 5 if version == 3 else None
    manifest = listed(merged, DATA, manifest_path=str(path), first_row_id=row_id)
    encoded = encode_manifest_list(
        [manifest], format_version=version, snapshot_id=LATER, parent_snapshot_id=None, sequence_number=9,
        first_row_id=row_id,
    )  # fmt: skip
    (tmp_path / "l.avro").write_bytes(encoded)
    io = PyArrowFileIO()
    (theirs,) = read_manifest_list(io.new_input(str(tmp_path / "l.avro")))
    found = theirs.fetch_manifest_entry(io)
    assert [e.data_file.file_path for e in found] == ["b", "a", "b"]
    assert [e.status.value for e in found] == [0, 0, 0]
    assert [e.snapshot_id for e in found] == [6999, 7001, 6999]
    assert [e.sequence_number for e in found] == ([0, 0, 0] if version == 1 else [2, 9, 2])


# --- any history ----------------------------------------------------------------------------------------


@dataclass
class Bytes:
    """Keeps manifests as bytes, and remembers entries and encoded files of some."""

    version: int
    remembers: bool = True
    kept: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, EncodedManifest] = field(default_factory=dict)
    copied: int = 0

    def write(self, entries: Sequence[NewEntry], like: ManifestFile) -> ManifestFile:
        spec, schema = self._spec(like.partition_spec_id)
        encoded = encode_manifest(
            entries, spec=spec, schema=schema, format_version=self.version, content=like.content
        )
        return self._keep(encoded, like)

    def read(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        data = self.kept[manifest.manifest_path]
        return tuple(decode_manifest(data, manifest, location="m", metrics=True))

    def merge(self, effect: MergeManifests) -> MergeReply:
        spec, schema = self._spec(effect.spec_id)
        sources = []
        for manifest in effect.manifests:
            path = manifest.manifest_path
            encoded = self.files[path]
            whole = len(encoded.files) == sum(
                (encoded.added_files_count, encoded.existing_files_count, encoded.deleted_files_count)
            )
            if self.remembers and whole and encoded.added_files_count:
                sources.append(Source(manifest, entries=self.read(manifest), files=encoded.files))
            else:
                sources.append(Source(manifest, self.kept[path]))
        merged = splice_manifests(
            sources, snapshot_id=effect.snapshot_id, spec=spec, schema=schema, format_version=self.version,
            content=effect.content,
        )  # fmt: skip
        if not isinstance(merged, EncodedManifest):
            return merged
        self.copied += merged.existing_files_count - len(merged.files)
        number = effect.sequence_number
        return self._keep(
            merged, ManifestFile("", 0, effect.spec_id, effect.content, number, number, effect.snapshot_id)
        )

    def _keep(self, encoded: EncodedManifest, like: ManifestFile) -> ManifestFile:
        path = f"m{len(self.kept)}"
        self.kept[path], self.files[path] = encoded.data, encoded
        return listed(
            encoded, like.content, manifest_path=path, partition_spec_id=like.partition_spec_id,
            sequence_number=like.sequence_number, added_snapshot_id=like.added_snapshot_id,
            min_sequence_number=like.sequence_number
            if encoded.min_sequence_number is None
            else encoded.min_sequence_number,
        )  # fmt: skip

    @staticmethod
    def _spec(spec_id: int) -> tuple[PartitionSpec, Schema]:
        spec, schema = spec_of("day")
        return PartitionSpec(fields=spec.fields, spec_id=spec_id), schema


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "remove", "idle"]),
        st.lists(st.sampled_from(SPECS), min_size=1, max_size=3),
        st.randoms(use_true_random=False),
    ),
    max_size=25,
)
_EVERYTHING = Budget(entries=10**9, size_bytes=10**9, look=1000)


def play(steps: Sequence[Any], keeper: Bytes) -> World:
    world = World(keeper, MergePolicy(min_count=8), _EVERYTHING)
    number = 0
    for step, specs, random in steps:
        live = sorted(world.ledger)
        if step == "idle":
            world.tidy()
        elif step == "remove" and live:
            world.remove(*random.sample(live, min(2, len(live))))
        else:
            files: list[ContentFile] = []
            for spec_id in specs:
                number += 1
                content = DELETES if keeper.version > 1 and number % 3 == 0 else DATA
                files.append(plain_file(f"f{number}", spec_id=spec_id, content=content, rows=number))
            world.append(*files)
        assert sorted(map(facts, world.live())) == sorted(world.ledger.values())
    return world


@given(_STEPS, st.sampled_from([1, 2, 3]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_merging_bytes_changes_nothing_about_live_files_in_any_history(
    steps: list[Any], version: int, remembers: bool
) -> None:
    play(steps, Bytes(version, remembers))


@EVERY
def test_most_entries_of_a_long_history_are_copied(version: int) -> None:
    keeper = Bytes(version)
    play([("append", [3], None)] * 64, keeper)
    assert keeper.copied > 64 * 2


def test_entries_merged_as_values_and_as_bytes_are_the_same() -> None:
    sources = [source([added(file("a")), kept(file("b"))]), settled("c")]
    merged = merge_entries([entries_of(one) for one in sources], snapshot_id=LATER)
    assert not isinstance(merged, AddedTwice)
    values = [(e.status, e.snapshot_id, e.data_sequence_number, e.file) for part in merged for e in part]
    found = read(made(sources))
    assert [(e.status, e.snapshot_id, e.data_sequence_number, e.file) for e in found] == values

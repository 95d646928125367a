"""What merging manifests costs a commit: `python -m bench.manifest_merge [COMMITS] [FILES]`.

COMMITS appends of FILES files each (v2, one partition field, statistics of ten columns), in memory and without a
disk: a commit plans, merges what its budget allows, and encodes its own manifest; then the writers pause and the
background has its turn. Beside it the rule of Java's merge append (all small manifests into one whenever there are a
hundred), decoded and encoded. Processor time of planning and merging alone; a commit also waits for its disk. The
garbage collector is off: walking what this script keeps takes it 50 ms, whoever happens to allocate then.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable

from bench.manifest_encode import METRICS, SNAPSHOT_ID, path_of
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    NewEntry,
)
from headgate.core.manifest_merge import AddedTwice, MergePolicy, background_change, plan_merge
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.format.manifest_encode import EncodedManifest, encode_manifest
from headgate.format.manifest_splice import Source, splice_manifests

DATA = ManifestContent.DATA
POLICY = MergePolicy()
COLUMNS = tuple(Field(id=n, name=f"c{n}", type="string", required=False) for n in range(2, 11))
SCHEMA = Schema(fields=(Field(id=1, name="day", type="date", required=False), *COLUMNS), schema_id=0)
SPEC = PartitionSpec(
    fields=(PartitionField(name="day", transform="identity", source_id=1, field_id=1000),), spec_id=0
)
Choose = Callable[[list[ManifestFile]], Iterable[tuple[ManifestFile, ...]]]


class Table:
    """The manifests of one table, newest first, and their bytes. Remembers entries only if told to."""

    def __init__(self, *, remembers: bool) -> None:
        self.manifests: list[ManifestFile] = []
        self.remembers = remembers
        self.sources: dict[str, Source] = {}
        self.snapshots = 0

    def append(self, files: int) -> None:
        """A commit's own manifest, which it would write anyway; later ones may merge it."""
        first = self.snapshots * files
        made = [
            ContentFile(
                FileContent.DATA, path_of(n), "PARQUET", 0, ((1000, 19_000 + n % 28),), 50_000, 5_000_000,
                sort_order_id=0, split_offsets=(4,), metrics=METRICS,
            )
            for n in range(first, first + files)
        ]  # fmt: skip
        snapshot_id, number = SNAPSHOT_ID + self.snapshots, self.snapshots
        new = [NewEntry(EntryStatus.ADDED, file, snapshot_id, None, None) for file in made]
        encoded = encode_manifest(new, spec=SPEC, schema=SCHEMA, format_version=2, content=DATA)
        entries = tuple(ManifestEntry(EntryStatus.ADDED, snapshot_id, number, number, file) for file in made)
        manifest = self._listed(encoded)
        known = (
            Source(manifest, entries=entries, files=encoded.files)
            if self.remembers
            else Source(manifest, encoded.data)
        )
        self.sources[manifest.manifest_path] = known
        self.manifests.insert(0, manifest)

    def merge(self, choose: Choose) -> float:
        """Begin a commit, which merges what is chosen; the processor time that choosing and merging took."""
        self.snapshots += 1
        begun = time.process_time()
        for chosen in tuple(choose(self.manifests)):
            made = splice_manifests(
                [self.sources[m.manifest_path] for m in chosen],
                snapshot_id=SNAPSHOT_ID + self.snapshots,
                spec=SPEC,
                schema=SCHEMA,
                format_version=2,
                content=DATA,
            )
            if isinstance(made, EncodedManifest):
                merged = self._listed(made)
                gone = {m.manifest_path for m in chosen}
                at = self.manifests.index(chosen[0])
                self.manifests = [m for m in self.manifests if m.manifest_path not in gone]
                self.manifests.insert(at, merged)
                self.sources[merged.manifest_path] = Source(merged, made.data)
            elif isinstance(made, AddedTwice):
                raise SystemExit(made.message)
        return time.process_time() - begun

    def _listed(self, made: EncodedManifest) -> ManifestFile:
        number = self.snapshots if made.min_sequence_number is None else made.min_sequence_number
        return ManifestFile(
            f"m{len(self.sources)}.avro", len(made.data), 0, DATA, self.snapshots, number,
            SNAPSHOT_ID + self.snapshots, made.added_files_count, made.existing_files_count,
            made.deleted_files_count, made.added_rows_count, made.existing_rows_count, made.deleted_rows_count,
            made.partitions,
        )  # fmt: skip


def in_commit(manifests: list[ManifestFile]) -> Iterable[tuple[ManifestFile, ...]]:
    """Ours, while writers come."""
    return plan_merge(manifests, POLICY).bins


def in_background(manifests: list[ManifestFile]) -> Iterable[tuple[ManifestFile, ...]]:
    """Ours, when they pause."""
    plan = background_change(manifests, POLICY, idle=True)
    return () if plan is None else plan.bins


def all_at_once(manifests: list[ManifestFile]) -> Iterable[tuple[ManifestFile, ...]]:
    """Everything small into one, every time there are a hundred."""
    return (tuple(manifests),) if len(manifests) >= POLICY.min_count else ()


def run(name: str, commits: int, files: int, choose: Choose, *, remembers: bool) -> Table:
    """Print one line."""
    table, took, most = Table(remembers=remembers), [], 0
    for _ in range(commits):
        took.append(table.merge(choose))
        table.append(files)
        if choose is all_at_once:  # decoded and encoded, as there
            table.sources = {path: _by_entries(source) for path, source in table.sources.items()}
        most = max(most, len(table.manifests))
    spent, ranked = sum(took), sorted(took)
    print(
        f"{name:32} per commit {1e6 * spent / commits:7.0f} µs   p50 {1e6 * ranked[commits // 2]:5.0f} µs   "
        f"p99 {1e3 * ranked[commits * 99 // 100]:6.2f} ms   worst {1e3 * ranked[-1]:7.2f} ms   "
        f"manifests at most {most}, at last {len(table.manifests)}"
    )
    return table


def _by_entries(source: Source) -> Source:
    """The same without what makes it cheap to merge."""
    return source if source.data is None else Source(_unsettled(source.manifest), source.data)


def _unsettled(manifest: ManifestFile) -> ManifestFile:
    if manifest.existing_rows_count is None:
        return manifest
    fields = {name: getattr(manifest, name) for name in ManifestFile.__struct_fields__}
    return ManifestFile(**{**fields, "existing_rows_count": None})


def main(commits: int, files: int) -> None:
    """Ours warm and cold, then the other rule over fewer commits, because it grows with their square."""
    gc.disable()
    print(f"{commits} appends of {files} files each")
    table = run("tiers, entries remembered", commits, files, in_commit, remembers=True)
    run("tiers, all read from bytes", commits, files, in_commit, remembers=False)
    spent, turns = 0.0, 0
    while (before := len(table.manifests)) and turns < 100:
        spent += table.merge(in_background)
        turns += 1
        if len(table.manifests) == before:
            break
    size_bytes = sum(m.manifest_length for m in table.manifests)
    print(
        f"then the background: {1e3 * spent:.1f} ms in {turns - 1} commits, "
        f"{len(table.manifests)} manifests of {size_bytes} bytes"
    )
    run("all at once, at a hundred", min(commits, 1000), files, all_at_once, remembers=False)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [5000, 1][len(given) :]))

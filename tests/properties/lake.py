"""A table whose files hold rows that the test can see: data, position deletes, deletion vectors, equality deletes.

The core sees descriptions only; `Lake.read` is a reader that follows the specification (v3, "Scan Planning"), so
that what the core did to files can be compared with what the writers meant for rows.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from headgate.core.apply import apply
from headgate.core.build import Planning
from headgate.core.change import BoundMap, ChangeUpdate, CountMap, PartitionKey, WireFile
from headgate.core.conflicts import Finding
from headgate.core.create import TableDefinition, build_table
from headgate.core.intake import take_in
from headgate.core.manifest import ContentFile, FileContent, ManifestContent, ManifestEntry
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.plan import plan_change
from headgate.core.schema import Field, Schema
from headgate.core.table import MAIN, Snapshot, TableMetadata
from headgate.core.updates import AddSnapshot, SetSnapshotRef, TableUpdate
from headgate.errors import BadInput, HeadgateError
from tests.oracle.memory_world import MemoryWorld

T0 = 1_700_000_000_000
BUCKETS = 2
CATS = ("a", "b")
IDS = range(6)
SPECS = {
    "unpartitioned": (),
    "by cat": (PartitionField(name="cat", transform="identity", source_id=2),),
    "by bucket": (PartitionField(name="id_bucket", transform=f"bucket[{BUCKETS}]", source_id=1),),
}
_BUCKET = BucketTransform(num_buckets=BUCKETS).transform(LongType())
_BUCKET_OF = {id_: _BUCKET(id_) for id_ in range(100)}


class Row(NamedTuple):
    """A row; `tag` is never seen by the table and tells which inserted row this is, also after updates."""

    tag: str
    id: int
    cat: str
    amount: int


class Seen(NamedTuple):
    """A row that a reader sees, and where it is."""

    row: Row
    path: str
    position: int


@dataclass(frozen=True)
class Variant:
    """What kind of table."""

    version: int
    spec: str

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        """The partition that a row belongs to."""
        if self.spec == "by cat":
            return (row.cat,)
        return (_BUCKET_OF[row.id],) if self.spec == "by bucket" else ()


VARIANTS = tuple(Variant(version, spec) for version in (2, 3) for spec in SPECS)
Plans = Callable[..., Planning]


@dataclass
class Lake:
    """One table in memory, and the rows behind its files."""

    variant: Variant
    table: TableMetadata
    world: MemoryWorld = field(default_factory=MemoryWorld)
    rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)  # data files
    positions: dict[str, frozenset[tuple[str, int]]] = field(
        default_factory=dict
    )  # position deletes and vectors
    keys: dict[str, frozenset[tuple[int, str]]] = field(
        default_factory=dict
    )  # equality deletes on id and cat
    made: int = 0
    plans: Plans = plan_change

    # --- files ------------------------------------------------------------------------------------------

    def put_data(self, rows: Iterable[Row], *, statistics: bool = True) -> tuple[WireFile, ...]:
        """Write rows into data files, one for each partition."""
        grouped: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            grouped.setdefault(self.variant.partition_of(row), []).append(row)
        found = []
        for partition, members in sorted(grouped.items()):
            path = self._path("data")
            self.rows[path] = tuple(members)
            columns: dict[int, list[Any]] = {
                1: [r.id for r in members],
                2: [r.cat for r in members],
                3: [r.amount for r in members],
            }
            found.append(_wire("data", path, partition, len(members), columns if statistics else {}))
        return tuple(found)

    def put_positions(
        self, places: Iterable[tuple[str, int]], *, scoped: bool = False
    ) -> tuple[WireFile, ...]:
        """Write position deletes: vectors in v3; else one file for each partition, or for each data file."""
        by_path: dict[str, list[int]] = {}
        for path, position in places:
            by_path.setdefault(path, []).append(position)
        if self.variant.version >= 3:
            return tuple(self._vector(path, found) for path, found in sorted(by_path.items()))
        grouped: dict[tuple[Any, ...], list[str]] = {}
        for path in by_path:
            partition = self.variant.partition_of(self.rows[path][0])
            grouped.setdefault((*partition, path) if scoped else partition, []).append(path)
        width = len(SPECS[self.variant.spec])
        files = []
        for group, paths in sorted(grouped.items()):
            made = self._path("positions")
            self.positions[made] = frozenset((path, n) for path in paths for n in by_path[path])
            target = paths[0] if scoped else None
            files.append(
                _wire("position-deletes", made, group[:width], len(self.positions[made]), {}, target=target)
            )
        return tuple(files)

    def _vector(self, path: str, positions: list[int]) -> WireFile:
        made = self._path("vector")
        self.positions[made] = frozenset((path, n) for n in positions)
        partition = self.variant.partition_of(self.rows[path][0])
        return _wire("position-deletes", made, partition, len(positions), {}, target=path, vector=True)

    def put_keys(self, keys: Iterable[tuple[int, str]]) -> tuple[WireFile, ...]:
        """Write equality deletes on id and cat, one file for each partition."""
        grouped: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
        for id_, cat in keys:
            grouped.setdefault(self.variant.partition_of(Row("", id_, cat, 0)), []).append((id_, cat))
        files = []
        for partition, members in sorted(grouped.items()):
            made = self._path("keys")
            self.keys[made] = frozenset(members)
            columns: dict[int, list[Any]] = {1: [id_ for id_, _ in members], 2: [cat for _, cat in members]}
            files.append(_wire("equality-deletes", made, partition, len(members), columns))
        return tuple(files)

    def key_of(self, partition: tuple[Any, ...]) -> PartitionKey:
        """A partition as validations name it."""
        return PartitionKey(spec_id=0, partition=partition)

    def _path(self, kind: str) -> str:
        self.made += 1
        return f"mem://{kind}/{self.made}"

    # --- reading ----------------------------------------------------------------------------------------

    @property
    def head(self) -> int | None:
        """The snapshot of main."""
        return self.table.envelope.current_snapshot_id

    def entries(self, snapshot_id: int | None) -> Iterator[tuple[ManifestContent, ManifestEntry]]:
        """Live files of a snapshot."""
        snapshot = None if snapshot_id is None else self.table.find_snapshot(snapshot_id)
        if snapshot is not None:
            for manifest in self.world.lists[str(snapshot.manifest_list)]:
                for entry in self.world.entries(manifest):
                    if entry.is_live:
                        yield manifest.content, entry

    def read(self, snapshot_id: int | None) -> list[Seen]:
        """What a reader of a snapshot sees."""
        data: list[ManifestEntry] = []
        deletes: list[ManifestEntry] = []
        for content, entry in self.entries(snapshot_id):
            (data if content is ManifestContent.DATA else deletes).append(entry)
        seen = []
        for entry in data:
            gone, keys = self._deleted(entry, deletes)
            path = entry.file.file_path
            for position, row in enumerate(self.rows[path]):
                covered = (row.id, row.cat) in keys
                if (path, position) not in gone and not covered:
                    seen.append(Seen(row, path, position))
        return seen

    def _deleted(
        self, data: ManifestEntry, deletes: list[ManifestEntry]
    ) -> tuple[set[tuple[str, int]], set[tuple[int, str]]]:
        gone: set[tuple[str, int]] = set()
        keys: set[tuple[int, str]] = set()
        for entry in deletes:
            file = entry.file
            same_partition = (file.spec_id, file.partition) == (data.file.spec_id, data.file.partition)
            if file.content is FileContent.EQUALITY_DELETES:
                if same_partition and entry.data_sequence_number > data.data_sequence_number:
                    keys |= self.keys[file.file_path]
            elif same_partition and entry.data_sequence_number >= data.data_sequence_number:
                gone |= self.positions[file.file_path]
        return gone, keys

    def vectors(self, snapshot_id: int | None) -> dict[str, ContentFile]:
        """Deletion vectors by the data file they are for."""
        return {
            str(entry.file.referenced_data_file): entry.file
            for _, entry in self.entries(snapshot_id)
            if entry.file.is_dv
        }

    def find_fault(self) -> str | None:
        """What is structurally wrong at the head: a file live twice, two vectors for one data file, or one for none."""
        live = [entry.file for _, entry in self.entries(self.head)]
        paths = Counter(file.file_path for file in live)
        targets = Counter(file.referenced_data_file for file in live if file.is_dv)
        if twice := [path for path, count in paths.items() if count > 1]:
            return f"live twice: {twice}"
        if twice_covered := [path for path, count in targets.items() if count > 1]:
            return f"two deletion vectors for one data file: {twice_covered}"
        if dangling := [path for path in targets if path not in paths]:
            return f"a deletion vector for a file that is not live: {dangling}"
        return None

    # --- committing -------------------------------------------------------------------------------------

    def commit(self, update: ChangeUpdate, *, key: str) -> Snapshot | Finding | HeadgateError:
        """Judge, build and swap; the snapshot, or what refused it."""
        now_ms = self.table.envelope.last_updated_ms + 1
        try:
            change = take_in(update, self.table, field="updates[0]")
            planned = self.world.drive(self.plans(change, self.table, seed=key, now_ms=now_ms))
        except BadInput as error:
            return error
        if isinstance(planned, Finding):
            return planned
        snapshot: Snapshot = planned.snapshot
        to_head = SetSnapshotRef(ref_name=MAIN, snapshot_id=snapshot.snapshot_id, type="branch")
        self.apply(AddSnapshot(snapshot=snapshot), to_head)
        return snapshot

    def apply(self, *updates: TableUpdate) -> None:
        """Swap by plain updates."""
        made = apply(self.table, updates, now_ms=self.table.envelope.last_updated_ms + 1)
        assert made is not None
        self.table = made

    def fork(self, plans: Plans | None = None) -> Lake:
        """A copy that goes its own way."""
        world = MemoryWorld(dict(self.world.lists), dict(self.world.manifests), self.world.made)
        files = (dict(self.rows), dict(self.positions), dict(self.keys))
        return Lake(self.variant, self.table, world, *files, self.made, plans or self.plans)


def new_lake(variant: Variant, plans: Plans = plan_change) -> Lake:
    """An empty table."""
    columns = (("id", "long"), ("cat", "string"), ("amount", "long"))
    fields = tuple(
        Field(id=n, name=name, type=type_, required=False) for n, (name, type_) in enumerate(columns, 1)
    )
    definition = TableDefinition(
        schema=Schema(fields=fields),
        location="mem://bucket/t",
        uuid="b6a1a1b2-0000-4000-8000-000000000000",
        spec=PartitionSpec(fields=SPECS[variant.spec]),
        properties={"format-version": str(variant.version)},
    )
    return Lake(variant, build_table(definition, now_ms=T0), plans=plans)


def _wire(
    content: str,
    path: str,
    partition: tuple[Any, ...],
    count: int,
    columns: dict[int, list[Any]],
    *,
    target: str | None = None,
    vector: bool = False,
) -> WireFile:
    ids = tuple(columns)
    zeros = CountMap(keys=ids, values=tuple(0 for _ in ids))
    return WireFile(
        content=content,
        file_path=path,
        file_format="puffin" if vector else "parquet",
        spec_id=0,
        partition=partition,
        file_size_in_bytes=100,
        record_count=count,
        value_counts=CountMap(keys=ids, values=tuple(count for _ in ids)) if ids else None,
        null_value_counts=zeros if ids else None,
        lower_bounds=BoundMap(keys=ids, values=tuple(_bytes(min(v)) for v in columns.values()))
        if ids
        else None,
        upper_bounds=BoundMap(keys=ids, values=tuple(_bytes(max(v)) for v in columns.values()))
        if ids
        else None,
        content_offset=4 if vector else None,
        content_size_in_bytes=10 if vector else None,
        referenced_data_file=target,
        equality_ids=ids if content == "equality-deletes" else None,
    )


def _bytes(value: int | str) -> str:
    return value.encode().hex() if isinstance(value, str) else struct.pack("<q", value).hex()

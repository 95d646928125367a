"""Fine-grained changes with files of real engines: run a statement in Spark, take its files, commit them by HTTP.

The engine's own commit is kept as the branch `engine`, so what we made of the same files can be held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, PrimitiveType, StringType

from headgate.core.manifest import ContentFile, EntryStatus, FileContent, ManifestEntry
from headgate.format.content_files import encode_content_file
from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.compat.lake import CATALOG, Lake, Rows

ENGINE = "engine"
PATH_ID, POSITION_ID = 2147483546, 2147483545  # columns of position delete files
_COUNTS = ("added-", "deleted-", "removed-", "total-", "changed-")
_ARROW: dict[str, tuple[pa.DataType, PrimitiveType]] = {
    "long": (pa.int64(), LongType()),
    "int": (pa.int32(), IntegerType()),
    "string": (pa.string(), StringType()),
}

Json = dict[str, Any]
Column = tuple[int, str, str]  # field id, name, Iceberg type


def rows_of(table: Table, **scan: Any) -> Rows:
    """What PyIceberg reads, in the order of `Lake.rows`."""
    found = table.scan(**scan).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def equal(column: str, value: object) -> Json:
    """The expression `column = value`."""
    return {"type": "eq", "term": column, "value": value}


@dataclass(frozen=True)
class Written:
    """What one snapshot did to files."""

    snapshot_id: int
    operation: str
    base: int | None
    added: tuple[ContentFile, ...]
    removed: tuple[ContentFile, ...]
    sequence_number: int | None  # of the added data, when it is not the snapshot's own
    counts: Json  # of the summary

    def described(self) -> Json:
        """Everything but what is the snapshot's own: its id and the row ids that it gave out."""

        def plain(files: tuple[ContentFile, ...]) -> list[str]:  # as text, in which NaN equals itself
            return sorted(repr(replace(file, first_row_id=None)) for file in files)

        found: Json = {"added": plain(self.added), "removed": plain(self.removed)}
        return {**found, "number": self.sequence_number, "operation": self.operation, **self.counts}

    def data(self) -> tuple[ContentFile, ...]:
        """Data files that were added."""
        return tuple(file for file in self.added if file.content is FileContent.DATA)

    def deletes(self) -> tuple[ContentFile, ...]:
        """Delete files that were added."""
        return tuple(file for file in self.added if file.content is not FileContent.DATA)


@dataclass(frozen=True)
class Fine:
    """A table of the service: Spark writes files for it, changes commit them, both engines read it."""

    lake: Lake
    table: str

    @property
    def name(self) -> str:
        """The table in Spark."""
        return self.lake.name(self.table)

    @cached_property
    def _url(self) -> str:
        return f"{self.lake.uri}/v1/namespaces/{self.lake.namespace}/tables/{self.table}"

    def metadata(self) -> Json:
        """The table as the service has it."""
        found: Json = httpx.get(self._url).json()["metadata"]
        return found

    def load(self) -> Table:
        """The table in PyIceberg."""
        return RestCatalog(CATALOG, uri=self.lake.uri).load_table((self.lake.namespace, self.table))

    def head(self, ref: str = "main") -> int | None:
        """The snapshot of a branch."""
        found = self.metadata()["refs"].get(ref)
        return None if found is None else found["snapshot-id"]

    def post(self, *updates: Json) -> httpx.Response:
        """The answer to a commit."""
        return httpx.post(self._url, json={"requirements": [], "updates": list(updates)})

    def commit(self, *updates: Json) -> Json:
        """Commit; the metadata after it."""
        answer = self.post(*updates)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()["metadata"]
        return found

    def change(self, action: str, **fields: Any) -> Json:
        """Commit one change; the snapshot it made."""
        before = {snapshot["snapshot-id"] for snapshot in self.metadata()["snapshots"]}
        after = self.commit({"action": action, **{k.replace("_", "-"): v for k, v in fields.items()}})
        (made,) = (snapshot for snapshot in after["snapshots"] if snapshot["snapshot-id"] not in before)
        return dict(made)

    # --- an engine's files ------------------------------------------------------------------------------

    def take(self, *statements: str) -> Written:
        """Let Spark commit, move `main` back, and return what its last snapshot did; `engine` stays at it."""
        before = self.head()
        self.lake.sql(*statements)
        after = self.head()
        assert after is not None
        assert after != before
        moved = {"action": "set-snapshot-ref", "type": "branch"}
        back = {**moved, "ref-name": "main", "snapshot-id": before}
        if before is None:
            back = {"action": "remove-snapshot-ref", "ref-name": "main"}
        self.commit({**moved, "ref-name": ENGINE, "snapshot-id": after}, back)
        return self.read(after)

    def read(self, snapshot_id: int) -> Written:
        """What a snapshot did to files, from its manifests."""
        snapshot = next(s for s in self.metadata()["snapshots"] if s["snapshot-id"] == snapshot_id)
        entries = [entry for entry in _read(snapshot["manifest-list"]) if entry.snapshot_id == snapshot_id]
        added = [entry for entry in entries if entry.status is EntryStatus.ADDED]
        numbers = {e.data_sequence_number for e in added if e.file.content is FileContent.DATA}
        own = snapshot["sequence-number"]
        return Written(
            snapshot_id=snapshot_id,
            operation=snapshot["summary"]["operation"],
            base=snapshot.get("parent-snapshot-id"),
            added=tuple(entry.file for entry in added),
            removed=tuple(entry.file for entry in entries if entry.status is EntryStatus.DELETED),
            sequence_number=None if numbers <= {own} else min(numbers),
            counts={k: v for k, v in snapshot["summary"].items() if k.startswith(_COUNTS)},
        )

    def live(self) -> tuple[ContentFile, ...]:
        """The files of `main`."""
        metadata = self.metadata()
        head = metadata["refs"]["main"]["snapshot-id"]
        snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == head)
        return tuple(entry.file for entry in _read(snapshot["manifest-list"]) if entry.is_live)

    def wire(self, files: Sequence[ContentFile]) -> list[Json]:
        """The files as content-file JSON of the REST specification."""
        table = self.load()
        types = {
            id_: {field.field_id: field.field_type for field in spec.partition_type(table.schema()).fields}
            for id_, spec in table.specs().items()
        }
        return [encode_content_file(file, types[file.spec_id]) for file in files]

    def to_update(self, written: Written, **fields: Any) -> Json:
        """The change that does what a snapshot did, file by file."""
        removed = written.removed
        update: Json = {
            "action": written.operation,
            "base-snapshot-id": written.base,
            "add-data-files": self.wire(written.data()),
            "add-delete-files": self.wire(written.deletes()),
            "remove-data-files": [f.file_path for f in removed if f.content is FileContent.DATA],
            "remove-delete-files": self.wire([f for f in removed if f.content is not FileContent.DATA]),
            "add-data-files-sequence-number": written.sequence_number,
        }
        update |= {key.replace("_", "-"): value for key, value in fields.items()}
        return {key: value for key, value in update.items() if value not in (None, [])}

    def replay(self, *statements: str) -> Written:
        """Do by a change what Spark does by these statements, and show that it is the same; what ours did."""
        engines = self.take(*statements)
        self.commit(self.to_update(engines))
        head = self.head()
        assert head is not None
        ours = self.read(head)
        mine, theirs = ours.described(), engines.described()
        unlike = {
            key: (mine.get(key), theirs.get(key)) for key in mine | theirs if mine.get(key) != theirs.get(key)
        }
        assert not unlike, unlike
        return ours

    # --- files of a writer that knows Parquet only ------------------------------------------------------

    def write(self, columns: Sequence[Column], rows: Rows, **more: Any) -> Json:
        """A Parquet file with field ids below the table's location, as content-file JSON with its statistics."""
        path = f"{self.metadata()['location']}/data/{uuid4()}.parquet"
        values = list(zip(*rows, strict=True))
        fields = [
            pa.field(name, _ARROW[kind][0], metadata={"PARQUET:field_id": str(id_)})
            for id_, name, kind in columns
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
        local = Path(urlsplit(path).path)
        local.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), local)
        ids = [id_ for id_, _, _ in columns]
        types = [_ARROW[kind][1] for _, _, kind in columns]
        known = [
            (id_, type_, [value for value in column if value is not None])
            for id_, type_, column in zip(ids, types, values, strict=True)
        ]
        bounded = [(id_, type_, column) for id_, type_, column in known if column]
        return {
            "content": "data",
            "file-path": path,
            "file-format": "parquet",
            "spec-id": 0,
            "partition": [],
            "file-size-in-bytes": local.stat().st_size,
            "record-count": len(rows),
            "value-counts": {"keys": ids, "values": [len(rows)] * len(ids)},
            "null-value-counts": {"keys": ids, "values": [len(rows) - len(c) for _, _, c in known]},
            "lower-bounds": {
                "keys": [id_ for id_, _, _ in bounded],
                "values": [to_bytes(type_, min(column)).hex() for _, type_, column in bounded],
            },
            "upper-bounds": {
                "keys": [id_ for id_, _, _ in bounded],
                "values": [to_bytes(type_, max(column)).hex() for _, type_, column in bounded],
            },
            **more,
        }

    def write_positions(self, positions: Sequence[tuple[str, int]], **more: Any) -> Json:
        """A position delete file as Flink or any Parquet writer makes it."""
        columns = ((PATH_ID, "file_path", "string"), (POSITION_ID, "pos", "long"))
        return self.write(columns, sorted(positions), **{"content": "position-deletes", **more})

    # --- what the engines see ---------------------------------------------------------------------------

    def agrees(self, expected: Rows) -> bool:
        """Whether both engines read exactly these rows on `main`; a difference is shown."""
        wanted = sorted(expected, key=repr)
        assert self.lake.rows(self.name) == wanted
        assert rows_of(self.load()) == wanted
        return True

    def engines_rows(self) -> Rows:
        """What Spark reads of its own last commit."""
        return self.lake.rows(f"SELECT * FROM {self.name} VERSION AS OF '{ENGINE}'")

    def planned(self, condition: str) -> int:
        """How many data files PyIceberg would open for a condition."""
        return len(list(self.load().scan(row_filter=condition).plan_files()))

    def lineage(self, ref: str = "main") -> Rows:
        """Row ids and last changes in v3, by the first column."""
        return self.lake.rows(
            f"SELECT id, _row_id, _last_updated_sequence_number FROM {self.name} VERSION AS OF '{ref}'"
        )


def _local(location: str) -> bytes:
    return Path(urlsplit(location).path).read_bytes()


def _read(manifest_list: str) -> list[ManifestEntry]:
    found: list[ManifestEntry] = []
    for manifest in decode_manifest_list(_local(manifest_list), location=manifest_list):
        path = manifest.manifest_path
        found.extend(decode_manifest(_local(path), manifest, location=path, metrics=True))
    return found

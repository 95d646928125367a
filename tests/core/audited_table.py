"""A small sound v3 table as values, made to be broken: three appends, a tag, a deletion vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.core.audit import (
    Audit,
    Effect,
    Exists,
    Options,
    ReadManifest,
    ReadManifestList,
    Reply,
    Report,
    Unreadable,
    audit,
)
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)

ROWS = 10


def data(n: int, **facts: Any) -> ManifestEntry:
    """The file that snapshot `n` added, with rows 10(n-1) to 10n."""
    file = ContentFile(
        FileContent.DATA,
        f"d{n}.parquet",
        "PARQUET",
        0,
        (),
        ROWS,
        100,
        sort_order_id=0,
        first_row_id=ROWS * (n - 1),
    )
    return ManifestEntry(EntryStatus.ADDED, n, n, n, replace(file, **facts))


def vector(n: int, *, of: str, offset: int = 4) -> ManifestEntry:
    """A deletion vector of two rows."""
    file = ContentFile(
        FileContent.POSITION_DELETES,
        f"dv{n}.puffin",
        "PUFFIN",
        0,
        (),
        2,
        50,
        referenced_data_file=of,
        content_offset=offset,
        content_size_in_bytes=20,
    )
    return ManifestEntry(EntryStatus.ADDED, n, n, n, file)


def play(running: Audit, answer: Callable[[Effect], Reply]) -> object:
    """Drive an audit to its end."""
    try:
        effect = next(running)
        while True:
            effect = running.send(answer(effect))
    except StopIteration as done:
        return done.value


@dataclass
class Table:
    """Entries by manifest; then, built from them: lists by location and metadata. `missing` are locations."""

    entries: dict[str, list[ManifestEntry]] = field(
        default_factory=lambda: {
            "m1": [data(1)],
            "m2": [data(2)],
            "m3": [data(3)],
            "x3": [vector(3, of="d1.parquet")],
        }
    )
    shows: dict[int, tuple[str, ...]] = field(
        default_factory=lambda: {1: ("m1",), 2: ("m1", "m2"), 3: ("m1", "m2", "m3", "x3")}
    )
    lists: dict[str, list[ManifestFile]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def build(self) -> Table:
        """Write lists and metadata that are true of the entries."""
        self.lists = {f"l{n}": [self._manifest(path) for path in paths] for n, paths in self.shows.items()}
        self.metadata = {
            "format-version": 3,
            "last-sequence-number": 3,
            "next-row-id": 3 * ROWS,
            "current-schema-id": 0,
            "schemas": [{"schema-id": 0, "type": "struct", "fields": []}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "current-snapshot-id": 3,
            "refs": {"main": {"type": "branch", "snapshot-id": 3}, "old": {"type": "tag", "snapshot-id": 2}},
            "snapshots": [self._snapshot(n) for n in self.shows],
            "snapshot-log": [{"snapshot-id": n, "timestamp-ms": 1_000_000 * n} for n in self.shows],
            "metadata-log": [{"metadata-file": "v1.json", "timestamp-ms": 1_000_000}],
            "statistics": [{"snapshot-id": 3, "statistics-path": "s.puffin"}],
        }
        return self

    def snapshot(self, n: int) -> dict[str, Any]:
        """The metadata of snapshot `n`."""
        found: dict[str, Any] = self.metadata["snapshots"][n - 1]
        return found

    def audit(self, options: Options | None = None) -> Report:
        """Run an audit against these values."""
        report = play(audit(self.metadata, options or Options()), self.answer)
        assert isinstance(report, Report)
        return report

    def answer(self, effect: Effect) -> Reply:
        """What a driver would say."""
        match effect:
            case Exists(location):
                return location not in self.missing
            case ReadManifestList(location):
                return Unreadable("gone") if location in self.missing else tuple(self.lists[location])
            case ReadManifest(manifest):
                path = manifest.manifest_path
                return Unreadable("gone") if path in self.missing else tuple(self.entries[path])

    def _manifest(self, path: str) -> ManifestFile:
        entries, n = self.entries[path], int(path[1:])
        content = ManifestContent.DELETES if path.startswith("x") else ManifestContent.DATA
        files = {status: [e for e in entries if e.status is status] for status in EntryStatus}
        rows = {status: sum(e.file.record_count for e in found) for status, found in files.items()}
        return ManifestFile(
            path,
            1000,
            0,
            content,
            n,
            n,
            n,
            len(files[EntryStatus.ADDED]),
            len(files[EntryStatus.EXISTING]),
            len(files[EntryStatus.DELETED]),
            rows[EntryStatus.ADDED],
            rows[EntryStatus.EXISTING],
            rows[EntryStatus.DELETED],
        )

    def _snapshot(self, n: int) -> dict[str, Any]:
        live = [e.file for path in self.shows[n] for e in self.entries[path] if e.is_live]
        of = {content: [file for file in live if file.content is content] for content in FileContent}
        totals = {
            "total-data-files": len(of[FileContent.DATA]),
            "total-delete-files": len(live) - len(of[FileContent.DATA]),
            "total-records": sum(file.record_count for file in of[FileContent.DATA]),
            "total-position-deletes": sum(f.record_count for f in of[FileContent.POSITION_DELETES]),
            "total-equality-deletes": sum(f.record_count for f in of[FileContent.EQUALITY_DELETES]),
            "total-files-size": sum(f.content_size_in_bytes or f.file_size_in_bytes for f in live),
        }
        snapshot = {
            "snapshot-id": n,
            "sequence-number": n,
            "timestamp-ms": 1_000_000 * n,
            "manifest-list": f"l{n}",
            "schema-id": 0,
            "first-row-id": ROWS * (n - 1),
            "added-rows": ROWS,
            "summary": {"operation": "append", **{name: str(total) for name, total in totals.items()}},
        }
        return snapshot if n == 1 else {**snapshot, "parent-snapshot-id": n - 1}

"""The part of the audit that looks at one snapshot's files: what is live, once, and adds up. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from headgate.core.audit_findings import Ledger, Rule
from headgate.core.audit_metadata import AuditedMetadata
from headgate.core.manifest import ContentFile, EntryStatus, FileContent, ManifestEntry, ManifestFile
from headgate.core.table import Snapshot


@dataclass(slots=True)
class LiveFiles:
    """What is live in one snapshot, collected manifest by manifest."""

    snapshot: Snapshot
    metadata: AuditedMetadata
    ledger: Ledger
    complete: bool = True  # False once a manifest could not be read: then nothing can be recounted
    identities: dict[tuple[str, int | None], str] = field(default_factory=dict)
    data_paths: set[str] = field(default_factory=set)
    dvs: list[ContentFile] = field(default_factory=list)
    row_ranges: list[tuple[int, int, str]] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> None:
        """Take one manifest in, checking what can be checked alone."""
        files: Counter[EntryStatus] = Counter()
        rows: Counter[EntryStatus] = Counter()
        for entry in entries:
            files[entry.status] += 1
            rows[entry.status] += entry.file.record_count
            self._check_entry(entry)
            if entry.is_live:
                self._add_live(entry.file, manifest)
        self._check_manifest(manifest, files, rows)

    def check(self) -> None:
        """Judge the whole, after the last manifest."""
        self._check_rows()
        if self.complete:
            self._check_dvs()
            self._check_totals()

    def paths(self) -> list[str]:
        """Paths of the live files, each once."""
        return list(dict.fromkeys(path for path, _ in self.identities))

    def _find(self, rule: Rule, subject: object, detail: str) -> None:
        self.ledger.add(rule, subject, detail, snapshot_id=self.snapshot.snapshot_id)

    def _check_entry(self, entry: ManifestEntry) -> None:
        newest = self.snapshot.sequence_number
        if self.metadata.format_version > 1 and entry.data_sequence_number > newest:
            number = entry.data_sequence_number
            self._find(
                Rule.ENTRY_SEQUENCE, entry.file.file_path, f"has number {number}, the snapshot has {newest}"
            )

    def _add_live(self, file: ContentFile, manifest: ManifestFile) -> None:
        if (other := self.identities.get(file.identity)) is not None:
            self._find(Rule.LIVE_ONCE, file.file_path, f"in {other} and in {manifest.manifest_path}")
        self.identities[file.identity] = manifest.manifest_path
        if file.sort_order_id is not None and file.sort_order_id not in self.metadata.order_ids():
            self._find(Rule.SORT_ORDER_KNOWN, file.sort_order_id, f"used by {file.file_path}")
        self._count(file)
        if file.is_dv:
            self.dvs.append(file)
        elif file.content is FileContent.DATA:
            self.data_paths.add(file.file_path)
            self._add_rows(file)

    def _count(self, file: ContentFile) -> None:
        self.totals["total-files-size"] += file.file_size_in_bytes
        stored = file.content_size_in_bytes if file.is_dv else None
        self.totals["content-size"] += file.file_size_in_bytes if stored is None else stored
        match file.content:
            case FileContent.DATA:
                self.totals["total-data-files"] += 1
                self.totals["total-records"] += file.record_count
            case FileContent.POSITION_DELETES:
                self.totals["total-delete-files"] += 1
                self.totals["total-position-deletes"] += file.record_count
            case FileContent.EQUALITY_DELETES:
                self.totals["total-delete-files"] += 1
                self.totals["total-equality-deletes"] += file.record_count

    def _add_rows(self, file: ContentFile) -> None:
        if file.first_row_id is not None:
            end = file.first_row_id + file.record_count
            self.row_ranges.append((file.first_row_id, end, file.file_path))
        elif self.snapshot.first_row_id is not None:
            self._find(
                Rule.ROW_ID_MISSING, file.file_path, "the snapshot assigns row ids, this file has none"
            )

    def _check_manifest(
        self, manifest: ManifestFile, files: Counter[EntryStatus], rows: Counter[EntryStatus]
    ) -> None:
        for name, listed, found in (
            ("added files", manifest.added_files_count, files[EntryStatus.ADDED]),
            ("existing files", manifest.existing_files_count, files[EntryStatus.EXISTING]),
            ("deleted files", manifest.deleted_files_count, files[EntryStatus.DELETED]),
            ("added rows", manifest.added_rows_count, rows[EntryStatus.ADDED]),
            ("existing rows", manifest.existing_rows_count, rows[EntryStatus.EXISTING]),
            ("deleted rows", manifest.deleted_rows_count, rows[EntryStatus.DELETED]),
        ):
            if listed is not None and listed != found:
                self._find(
                    Rule.MANIFEST_COUNTS,
                    manifest.manifest_path,
                    f"{name}: the list says {listed}, found {found}",
                )

    def _check_dvs(self) -> None:
        by_data_file: Counter[str] = Counter()
        for dv in self.dvs:
            path = dv.referenced_data_file
            if path is None or path not in self.data_paths:
                self._find(Rule.DV_DANGLING, dv.file_path, f"refers to {path}, which is not live")
            else:
                by_data_file[path] += 1
        for path, count in by_data_file.items():
            if count > 1:
                self._find(Rule.DV_SINGLE, path, f"{count} live deletion vectors")

    def _check_rows(self) -> None:
        limit = self.metadata.next_row_id
        for start, end, path in self.row_ranges:
            if limit is not None and end > limit:
                self._find(Rule.ROW_ID_LIMIT, path, f"rows {start}-{end}, next-row-id is {limit}")
        ranges = sorted(item for item in self.row_ranges if item[0] < item[1])
        for (_, left_end, left), (start, end, path) in pairwise(ranges):
            if start < left_end:
                self._find(
                    Rule.ROW_ID_RANGES, path, f"rows {start}-{end} overlap {left}, which ends at {left_end}"
                )

    def _check_totals(self) -> None:
        for name in _TOTALS:
            stated = self.snapshot.summary.get(name)
            if stated is None:  # totals are optional
                continue
            recount = {str(self.totals[name])}
            if name == "total-files-size":  # Java counts a vector's bytes, others its whole Puffin file
                recount.add(str(self.totals["content-size"]))
            if stated not in recount:
                found = " or ".join(sorted(recount))
                self._find(Rule.TOTALS, name, f"the summary says {stated[:40]}, recounted {found}")


_TOTALS = (
    "total-data-files",
    "total-records",
    "total-delete-files",
    "total-files-size",
    "total-position-deletes",
    "total-equality-deletes",
)

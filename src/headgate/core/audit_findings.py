"""What an audit can find: the rules, and a bounded ledger of their violations. Judges nothing itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error is a broken table; a note is something that a healthy table may have."""

    ERROR = "error"
    NOTE = "note"


class Rule(StrEnum):
    """One thing that holds in every sound table. `RULES` says it in words."""

    SNAPSHOT_ID_UNIQUE = "snapshot-id-unique"
    MANIFEST_LIST_UNIQUE = "manifest-list-unique"
    PARENT_CYCLE = "parent-cycle"
    PARENT_MISSING = "parent-missing"
    SEQUENCE_ORDER = "sequence-order"
    SEQUENCE_LIMIT = "sequence-limit"
    TIMESTAMP_ORDER = "timestamp-order"
    REF_TARGET = "ref-target"
    CURRENT_IS_MAIN = "current-is-main"
    HISTORY_HEAD = "history-head"
    SCHEMA_KNOWN = "schema-known"
    SPEC_KNOWN = "spec-known"
    SORT_ORDER_KNOWN = "sort-order-known"
    METADATA_LOG_EXISTS = "metadata-log-exists"
    STATISTICS_EXIST = "statistics-exist"
    SNAPSHOT_ROW_IDS = "snapshot-row-ids"
    EXPECTED_SNAPSHOT = "expected-snapshot"
    FORBIDDEN_SNAPSHOT = "forbidden-snapshot"
    MANIFEST_LIST_READABLE = "manifest-list-readable"
    MANIFEST_READABLE = "manifest-readable"
    MANIFEST_COUNTS = "manifest-counts"
    ENTRY_SEQUENCE = "entry-sequence"
    LIVE_ONCE = "live-once"
    DV_SINGLE = "dv-single"
    DV_DANGLING = "dv-dangling"
    TOTALS = "totals"
    ROW_ID_RANGES = "row-id-ranges"
    ROW_ID_LIMIT = "row-id-limit"
    ROW_ID_MISSING = "row-id-missing"
    FILE_EXISTS = "file-exists"


RULES: dict[Rule, str] = {
    Rule.SNAPSHOT_ID_UNIQUE: "no two snapshots have one id",
    Rule.MANIFEST_LIST_UNIQUE: "no two snapshots share a manifest list",
    Rule.PARENT_CYCLE: "following parents ends",
    Rule.PARENT_MISSING: "parents are there (a note: expiry removes them)",
    Rule.SEQUENCE_ORDER: "sequence numbers rise strictly from parent to child",
    Rule.SEQUENCE_LIMIT: "no sequence number is above last-sequence-number",
    Rule.TIMESTAMP_ORDER: "time does not run backwards from parent to child (up to a minute: a note)",
    Rule.REF_TARGET: "branches and tags point to snapshots that are there",
    Rule.CURRENT_IS_MAIN: "current-snapshot-id is the head of main",
    Rule.HISTORY_HEAD: "the last entry of snapshot-log is the current snapshot",
    Rule.SCHEMA_KNOWN: "schemas that are referred to are there",
    Rule.SPEC_KNOWN: "partition specs that are referred to are there",
    Rule.SORT_ORDER_KNOWN: "sort orders that are referred to are there",
    Rule.METADATA_LOG_EXISTS: "the files of metadata-log are there",
    Rule.STATISTICS_EXIST: "statistics files are there",
    Rule.SNAPSHOT_ROW_IDS: "snapshots' row id ranges are disjoint and below next-row-id (v3)",
    Rule.EXPECTED_SNAPSHOT: "acknowledged snapshots are in the ancestry of a branch or tag, once",
    Rule.FORBIDDEN_SNAPSHOT: "refused snapshots are nowhere",
    Rule.MANIFEST_LIST_READABLE: "manifest lists are there and parse",
    Rule.MANIFEST_READABLE: "manifests are there and parse",
    Rule.MANIFEST_COUNTS: "a manifest holds as many files as its list says",
    Rule.ENTRY_SEQUENCE: "no file is newer than the snapshot that lists it",
    Rule.LIVE_ONCE: "no file is live twice",
    Rule.DV_SINGLE: "a data file has at most one deletion vector",
    Rule.DV_DANGLING: "deletion vectors refer to live data files",
    Rule.TOTALS: "the totals of a snapshot's summary equal a recount",
    Rule.ROW_ID_RANGES: "row id ranges of live data files are disjoint (v3)",
    Rule.ROW_ID_LIMIT: "row ids are below next-row-id (v3)",
    Rule.ROW_ID_MISSING: "live data files of a snapshot with row ids have them (v3)",
    Rule.FILE_EXISTS: "live data and delete files are there",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: `subject` is what is wrong (a path, an id, a name), `detail` the evidence."""

    rule: Rule
    severity: Severity
    snapshot_id: int | None
    subject: str
    detail: str


class Ledger:
    """Findings so far. A broken table can have millions; the first of each rule are kept, all are counted."""

    def __init__(self, *, per_rule_max: int) -> None:
        self._per_rule_max = per_rule_max
        self._findings: list[Finding] = []
        self._counts: Counter[tuple[Rule, Severity]] = Counter()

    def add(
        self,
        rule: Rule,
        subject: object,
        detail: str,
        *,
        snapshot_id: int | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Record one finding."""
        self._counts[rule, severity] += 1
        if self._counts[rule, severity] <= self._per_rule_max:
            self._findings.append(Finding(rule, severity, snapshot_id, str(subject), detail))

    def findings(self) -> tuple[Finding, ...]:
        """What was kept: errors first, in the order they were found."""
        return tuple(sorted(self._findings, key=lambda finding: finding.severity is Severity.NOTE))

    def omitted(self) -> dict[Rule, int]:
        """How many findings of a rule were counted but not kept."""
        omitted: Counter[Rule] = Counter()
        for (rule, _), count in self._counts.items():
            omitted[rule] += max(0, count - self._per_rule_max)
        return {rule: count for rule, count in omitted.items() if count}

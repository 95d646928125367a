"""Every rule of the audit finds the table that breaks it, and finds nothing else wrong with that table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headgate.core.audit import Effect, Exists, Options, ReadManifest, ReadManifestList, Reply, audit
from headgate.core.audit_findings import RULES, Finding, Rule, Severity
from headgate.core.manifest import EntryStatus, FileContent
from headgate.errors import BadInput, InvariantBroken
from tests.core.audited_table import Table, data, play, vector


@dataclass(frozen=True)
class Break:
    """How to break one rule: in the entries (totals stay true), or in what was built from them."""

    rule: Rule
    entries: Callable[[dict[str, list[Any]]], None] | None = None
    built: Callable[[Table], None] | None = None
    options: Options | None = None
    severity: Severity = Severity.ERROR

    def audit(self) -> tuple[Finding, ...]:
        table = Table()
        if self.entries is not None:
            self.entries(table.entries)
        table.build()
        if self.built is not None:
            self.built(table)
        return table.audit(self.options).findings


def entries(path: str, *new: Any) -> Callable[[dict[str, list[Any]]], None]:
    return lambda all_entries: all_entries.update({path: list(new)})


def metadata(**fields: Any) -> Callable[[Table], None]:
    changed = {name.replace("_", "-"): value for name, value in fields.items()}
    return lambda table: table.metadata.update(changed)


def snapshot(n: int, **fields: Any) -> Callable[[Table], None]:
    changed = {name.replace("_", "-"): value for name, value in fields.items()}
    return lambda table: table.snapshot(n).update(changed)


def total(name: str, value: str) -> Callable[[Table], None]:
    return lambda table: table.snapshot(3)["summary"].update({name: value})


def missing(location: str) -> Callable[[Table], None]:
    return lambda table: table.missing.add(location)


def listed(**fields: Any) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        table.lists["l3"] = [
            replace(m, **fields) if m.manifest_path == "m3" else m for m in table.lists["l3"]
        ]

    return change


def same_id_again(table: Table) -> None:
    table.metadata["snapshots"].append(
        {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1_000_000, "manifest-list": "other"}
    )


def current_is_not_main(table: Table) -> None:
    table.metadata["current-snapshot-id"] = 2
    table.metadata["snapshot-log"].pop()


def lost_ref(table: Table) -> None:
    table.metadata["refs"]["lost"] = {"type": "tag", "snapshot-id": 99}


def forgotten_main(table: Table) -> None:
    del table.metadata["refs"]["main"]


def staged(table: Table) -> None:
    table.metadata["refs"]["main"]["snapshot-id"] = table.metadata["current-snapshot-id"] = 2
    table.metadata["snapshot-log"].pop()


BREAKS = [
    Break(Rule.SNAPSHOT_ID_UNIQUE, built=same_id_again),
    Break(Rule.MANIFEST_LIST_UNIQUE, built=snapshot(1, manifest_list="l2")),
    Break(Rule.PARENT_CYCLE, built=snapshot(1, parent_snapshot_id=3)),
    Break(Rule.PARENT_CYCLE, built=snapshot(1, parent_snapshot_id=1)),
    Break(Rule.PARENT_MISSING, built=snapshot(1, parent_snapshot_id=99), severity=Severity.NOTE),
    Break(Rule.SEQUENCE_ORDER, built=snapshot(1, sequence_number=2)),
    Break(Rule.SEQUENCE_ORDER, built=snapshot(1, sequence_number=3)),
    Break(Rule.SEQUENCE_LIMIT, built=metadata(last_sequence_number=2)),
    Break(Rule.TIMESTAMP_ORDER, built=snapshot(1, timestamp_ms=2_060_001)),
    Break(Rule.TIMESTAMP_ORDER, built=snapshot(1, timestamp_ms=2_060_000), severity=Severity.NOTE),
    Break(Rule.REF_TARGET, built=lost_ref),
    Break(Rule.CURRENT_IS_MAIN, built=current_is_not_main),
    Break(Rule.CURRENT_IS_MAIN, built=forgotten_main),
    Break(Rule.HISTORY_HEAD, built=lambda table: table.metadata["snapshot-log"].pop()),
    Break(Rule.SCHEMA_KNOWN, built=metadata(current_schema_id=7)),
    Break(Rule.SCHEMA_KNOWN, built=snapshot(1, schema_id=7)),
    Break(Rule.SPEC_KNOWN, built=metadata(default_spec_id=7)),
    Break(Rule.SPEC_KNOWN, built=listed(partition_spec_id=7)),
    Break(Rule.SORT_ORDER_KNOWN, built=metadata(default_sort_order_id=7)),
    Break(Rule.SORT_ORDER_KNOWN, entries=entries("m3", data(3, sort_order_id=7))),
    Break(Rule.METADATA_LOG_EXISTS, built=missing("v1.json")),
    Break(Rule.STATISTICS_EXIST, built=missing("s.puffin")),
    Break(Rule.SNAPSHOT_ROW_IDS, built=snapshot(1, first_row_id=5)),
    Break(Rule.SNAPSHOT_ROW_IDS, built=snapshot(1, first_row_id=25, added_rows=10)),
    Break(Rule.EXPECTED_SNAPSHOT, options=Options(expected_snapshot_ids=frozenset({1, 99}))),
    Break(Rule.EXPECTED_SNAPSHOT, built=staged, options=Options(expected_snapshot_ids=frozenset({3}))),
    Break(Rule.FORBIDDEN_SNAPSHOT, options=Options(forbidden_snapshot_ids=frozenset({1, 99}))),
    Break(Rule.MANIFEST_LIST_READABLE, built=missing("l3")),
    Break(Rule.MANIFEST_LIST_READABLE, built=missing("l1")),
    Break(Rule.MANIFEST_READABLE, built=missing("m3")),
    Break(Rule.MANIFEST_COUNTS, built=listed(added_files_count=2)),
    Break(Rule.MANIFEST_COUNTS, built=listed(deleted_rows_count=1)),
    Break(Rule.ENTRY_SEQUENCE, entries=entries("m3", replace(data(3), data_sequence_number=4))),
    Break(Rule.LIVE_ONCE, entries=entries("m3", data(3, file_path="d1.parquet"))),
    Break(
        Rule.DV_SINGLE,
        entries=entries("x3", vector(3, of="d1.parquet"), vector(3, of="d1.parquet", offset=9)),
    ),
    Break(Rule.DV_DANGLING, entries=entries("x3", vector(3, of="nowhere.parquet"))),
    Break(Rule.DV_DANGLING, entries=entries("x3", vector(3, of="dv3.puffin"))),
    Break(Rule.TOTALS, built=total("total-data-files", "4")),
    Break(Rule.TOTALS, built=total("total-records", "29")),
    Break(Rule.TOTALS, built=total("total-delete-files", "0")),
    Break(Rule.TOTALS, built=total("total-files-size", "-1")),
    Break(Rule.TOTALS, built=total("total-position-deletes", "many")),
    Break(Rule.TOTALS, built=total("total-equality-deletes", "1")),
    Break(Rule.ROW_ID_RANGES, entries=entries("m3", data(3, first_row_id=15))),
    Break(Rule.ROW_ID_LIMIT, entries=entries("m3", data(3, first_row_id=21))),
    Break(Rule.ROW_ID_MISSING, entries=entries("m3", data(3, first_row_id=None))),
    Break(Rule.FILE_EXISTS, built=missing("d3.parquet"), options=Options(files=True)),
    Break(Rule.FILE_EXISTS, built=missing("dv3.puffin"), options=Options(files=True)),
]


@pytest.mark.parametrize("broken", BREAKS, ids=[f"{n}-{one.rule}" for n, one in enumerate(BREAKS)])
def test_a_table_that_breaks_one_rule_is_found_by_that_rule_alone(broken: Break) -> None:
    found = {(finding.rule, finding.severity) for finding in broken.audit()}
    assert found == {(broken.rule, broken.severity)}


def test_every_rule_is_broken_by_some_table_and_is_said_in_words() -> None:
    assert {broken.rule for broken in BREAKS} == set(Rule) == set(RULES)


@pytest.mark.parametrize("all_snapshots", [False, True])
def test_a_sound_table_has_no_findings(all_snapshots: bool) -> None:
    options = Options(
        all_snapshots=all_snapshots,
        files=True,
        expected_snapshot_ids=frozenset({1, 2, 3}),
        forbidden_snapshot_ids=frozenset({99}),
    )
    report = Table().build().audit(options)
    assert report.findings == ()
    assert report.is_sound
    assert report.checked["snapshots read in full"] == (3 if all_snapshots else 2)
    assert report.checked["data and delete files"] == 4


def test_a_note_leaves_a_table_sound_and_an_error_does_not() -> None:
    table = Table().build()
    snapshot(1, parent_snapshot_id=99)(table)
    assert table.audit().is_sound
    lost_ref(table)
    report = table.audit()
    assert not report.is_sound
    assert [finding.severity for finding in report.findings] == [Severity.ERROR, Severity.NOTE]


def test_a_table_without_snapshots_is_sound() -> None:
    for current in ({}, {"current-snapshot-id": None}, {"current-snapshot-id": -1}):
        report = _run({"format-version": 2, "refs": {}, **current})
        assert report == ()


def test_a_v1_table_without_refs_sequence_numbers_and_ids_is_sound() -> None:
    table = Table().build()
    for name in ("refs", "schemas", "partition-specs", "sort-orders", "last-sequence-number", "next-row-id"):
        del table.metadata[name]
    table.metadata.update(
        {"format-version": 1, "schema": {"type": "struct", "fields": []}, "partition-spec": []}
    )
    for one in table.metadata["snapshots"]:
        del one["sequence-number"], one["first-row-id"], one["added-rows"]
    assert table.audit(Options(all_snapshots=True)).findings == ()


def test_manifests_listed_inline_are_noted_and_not_audited() -> None:
    table = Table().build()
    head = table.snapshot(3)
    del head["manifest-list"]
    head["manifests"] = ["m1"]
    (finding,) = table.audit().findings
    assert (finding.rule, finding.severity) == (Rule.MANIFEST_LIST_READABLE, Severity.NOTE)


def test_deleted_entries_are_not_live_and_equality_deletes_are_counted() -> None:
    table = Table()
    removed = replace(data(1), status=EntryStatus.DELETED)
    equality = replace(vector(3, of=""), file=replace(data(9).file, content=FileContent.EQUALITY_DELETES))
    table.entries.update({"m3": [data(3), removed], "x3": [equality]})
    assert table.build().audit().findings == ()


def test_two_vectors_in_one_puffin_file_are_two_files() -> None:
    table = Table()
    table.entries["x3"] = [vector(3, of="d1.parquet"), vector(3, of="d2.parquet", offset=99)]
    assert table.build().audit().findings == ()


def test_a_whole_puffin_file_may_be_counted_in_the_total_size() -> None:
    table = Table().build()
    total("total-files-size", "350")(table)
    assert table.audit().findings == ()


def test_a_summary_may_leave_out_its_totals() -> None:
    table = Table().build()
    for one in table.metadata["snapshots"]:
        one["summary"] = {"operation": "append"}
    assert table.audit().findings == ()


def test_findings_of_a_rule_are_capped_and_the_rest_is_counted() -> None:
    table = Table().build()
    table.metadata["refs"].update({f"r{n}": {"type": "tag", "snapshot-id": 99} for n in range(8)})
    report = table.audit(Options(findings_per_rule_max=3))
    assert len(report.findings) == 3
    assert report.omitted == {Rule.REF_TARGET: 5}


def test_an_expected_snapshot_that_is_listed_twice_is_found() -> None:
    table = Table().build()
    same_id_again(table)
    rules = {f.rule for f in table.audit(Options(expected_snapshot_ids=frozenset({1}))).findings}
    assert rules == {Rule.SNAPSHOT_ID_UNIQUE, Rule.EXPECTED_SNAPSHOT}


@pytest.mark.parametrize("wrong", [{}, {"format-version": "two"}, {"format-version": 2, "snapshots": [{}]}])
def test_what_is_not_table_metadata_is_bad_input(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="not table metadata"):
        next(audit(wrong))


@pytest.mark.parametrize(
    ("kind", "wrong"), [(Exists, ()), (ReadManifestList, True), (ReadManifest, True)], ids=str
)
def test_a_driver_that_answers_another_question_is_stopped(kind: type, wrong: Reply) -> None:
    table = Table().build()

    def answer(effect: Effect) -> Reply:
        return wrong if isinstance(effect, kind) else table.answer(effect)

    with pytest.raises(InvariantBroken):
        play(audit(table.metadata), answer)


def _run(metadata: dict[str, object]) -> tuple[Finding, ...]:
    table = Table()
    table.metadata = metadata
    return table.audit().findings

"""Every rule of the core prevents something: taken out of the source, rows are lost, come back or are there twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.change import (
    AddedFilesMatchRowFilter,
    Append,
    ChangeUpdate,
    Delete,
    MustNotRemoveAnyFile,
    Overwrite,
    RemovedFilesNotReferenced,
    Replace,
)
from headgate.core.conflicts import RULES, Finding
from headgate.core.isolation import Isolation
from headgate.core.plan import plan_change
from headgate.core.table import Snapshot
from tests.properties.broken_core import find_rules, plans_without
from tests.properties.histories import Run, Writer, run_history
from tests.properties.lake import Plans, Row, Variant, new_lake
from tests.properties.operations import SNAPSHOT, Operation, Scope

ONE, TWO, THREE = Row("one", 1, "a", 0), Row("two", 2, "a", 0), Row("three", 3, "b", 0)
A = Scope(cat="a")
ID1 = Scope(cat="a", ids=(1, 1))


class Table:
    """A table with some rows, writers that race on it, and what went wrong."""

    def __init__(self, plans: Plans, version: int = 2, spec: str = "unpartitioned") -> None:
        self.run = Run(new_lake(Variant(version, spec), plans))
        self.lake = self.run.lake
        self.commit(self.read(Operation("append", rows=(ONE, TWO))))

    def read(self, operation: Operation) -> Writer:
        """A writer reads the head and writes its files."""
        writer = Writer(f"{operation.kind} {self.lake.made}", operation)
        self.run.plan(writer)
        return writer

    def commit(self, writer: Writer) -> None:
        """It commits; rows are compared with a serial execution."""
        self.run.commit(writer)

    def do(self, kind: str, how: str = "", **more: Any) -> None:
        """Read and commit at once."""
        self.commit(self.read(Operation(kind, how, **more)))

    def send(self, update: ChangeUpdate) -> bool:
        """Commit a change made by hand; whether it landed."""
        verdict = self.lake.commit(update, key=f"hand {self.lake.made}")
        if isinstance(verdict, Finding):
            self.run.outcome.refused.append(verdict.rule)
        return isinstance(verdict, Snapshot)

    def rows(self) -> list[Row]:
        """What a reader sees."""
        return sorted(seen.row for seen in self.lake.read(self.lake.head))

    def expect(self, *rows: Row) -> None:
        """These rows and no others, in sound files."""
        if self.rows() != sorted(rows):
            self.run.outcome.fault = f"{self.rows()}, not {sorted(rows)}"
        self.run.outcome.fault = self.run.outcome.fault or self.lake.find_fault()


def _added_data_files(plans: Plans) -> Table:
    """A row appended while UPDATE reads is neither updated nor seen."""
    table = Table(plans)
    ours = table.read(Operation("update", "cow", scope=A))
    table.do("append", rows=(Row("new", 1, "a", 5),))
    table.commit(ours)
    return table


def _removed_data_files(plans: Plans) -> Table:
    """Rows deleted while a partition is computed anew come back."""
    table = Table(plans, spec="by cat")
    ours = table.read(Operation("recompute", "partition", scope=ID1))
    table.do("delete", "filter", scope=A)
    table.commit(ours)
    return table


def _added_delete_files(plans: Plans) -> Table:
    """A row deleted while UPDATE reads comes back in its new version."""
    table = Table(plans)
    ours = table.read(Operation("update", "mor", scope=A))
    table.do("delete", "mor", scope=ID1)
    table.commit(ours)
    return table


def _new_deletes_for_data_files(plans: Plans) -> Table:
    """A row deleted while its file is compacted comes back."""
    table = Table(plans)
    ours = table.read(Operation("compact", "keeps number", picks=1))
    table.do("delete", "mor", scope=ID1)
    table.commit(ours)
    return table


def _added_dvs(plans: Plans) -> Table:
    """Two DELETEs write a vector each for one data file."""
    table = Table(plans, version=3)
    ours = table.read(Operation("delete", "mor", scope=ID1))
    table.do("delete", "mor", scope=Scope(ids=(2, 2)))
    table.commit(ours)
    return table


def _missing_data_files(plans: Plans) -> Table:
    """A row deleted from a file that is compacted meanwhile comes back."""
    table = Table(plans)
    ours = table.read(Operation("delete", "mor", scope=ID1))
    table.do("compact", "keeps number", picks=1)
    table.commit(ours)
    return table


def _missing_required_removes(plans: Plans) -> Table:
    """Two UPDATEs that write one file anew leave its rows twice; no level is asked, the rule is there always."""
    table = Table(plans)
    ours = table.read(Operation("update", "cow", scope=ID1, isolation=Isolation.NONE))
    table.do("update", "cow", scope=Scope(ids=(2, 2)))
    table.commit(ours)
    return table


def _unknown_history(plans: Plans) -> Table:
    """A delete whose snapshot has expired is not seen by the compaction of its file."""
    table = Table(plans)
    ours = table.read(Operation("compact", "keeps number", picks=1))
    table.do("delete", "mor", scope=ID1)
    table.do("append", rows=(THREE,))
    table.run.expire()
    table.commit(ours)
    return table


def _base_not_ancestor(plans: Plans) -> Table:
    """An UPDATE that read what was rolled back adds a second version of the row; no level but the base is asked."""
    table = Table(plans)
    table.do("update", "cow", scope=ID1)
    ours = table.read(Operation("update", "mor", scope=ID1, isolation=Isolation.NONE))
    table.run.roll_back()
    table.commit(ours)
    return table


def _partial_row_filter_match(plans: Plans) -> Table:
    """A DELETE by filter of a row that shares its file with others deletes nothing."""
    table = Table(plans)
    table.do("delete", "filter", scope=ID1)
    return table


def _already_live(plans: Plans) -> Table:
    """An append that is sent again under a new key doubles its rows."""
    table = Table(plans)
    update = Append(add_data_files=table.lake.put_data([THREE]))
    table.send(update)
    table.send(update)
    table.expect(ONE, TWO, THREE)
    return table


def _second_deletion_vector(plans: Plans) -> Table:
    """A vector that ignores the one that is there: readers take either, and a deleted row may be back."""
    table = Table(plans, version=3)
    path = table.lake.read(table.lake.head)[0].path
    table.send(Delete(add_delete_files=table.lake.put_positions([(path, 0)])))
    table.send(Delete(add_delete_files=table.lake.put_positions([(path, 1)])))
    table.expect(TWO)
    return table


def _vector_without_data_file(plans: Plans) -> Table:
    """A vector for a file that was dropped meanwhile dangles."""
    table = Table(plans, version=3)
    ours = table.read(Operation("delete", "mor", scope=A))
    table.do("delete", "filter", scope=A)
    table.commit(ours)
    return table


def _replace_adds_records(plans: Plans) -> Table:
    """A compaction whose task ran twice doubles rows."""
    table = Table(plans)
    (path,) = {seen.path for seen in table.lake.read(table.lake.head)}
    files = (*table.lake.put_data([ONE, TWO]), *table.lake.put_data([TWO]))
    table.send(Replace(add_data_files=files, remove_data_files=(path,)))
    table.expect(ONE, TWO)
    return table


def _append_only(plans: Plans) -> Table:
    """A load into an empty scope, which a concurrent append filled, drops what was appended."""
    table = Table(plans)
    files = table.lake.put_data([Row("ours", 3, "b", 1)])
    table.send(Append(add_data_files=table.lake.put_data([THREE])))
    landed = table.send(
        Overwrite(
            add_data_files=files,
            delete_row_filter=Scope(cat="b").filter(),
            commit_validations=(MustNotRemoveAnyFile(),),
        )
    )
    table.expect(ONE, TWO, THREE, *([Row("ours", 3, "b", 1)] if landed else []))
    return table


def _added_file_outside_filter(plans: Plans) -> Table:
    """A job that overwrites its own scope twice leaves the same rows, unless it writes outside of it."""
    table = Table(plans)
    landed = False
    for _ in range(2):
        landed = table.send(
            Overwrite(
                add_data_files=table.lake.put_data([THREE]),
                delete_row_filter=Scope(cat="c").filter(),
                commit_validations=(AddedFilesMatchRowFilter(),),
            )
        )
    table.expect(ONE, TWO, *([THREE] if landed else []))
    return table


def _removed_and_referenced(plans: Plans) -> Table:
    """A change that rewrites a file and deletes a row from the old one keeps the row."""
    table = Table(plans)
    (path,) = {seen.path for seen in table.lake.read(table.lake.head)}
    landed = table.send(
        Overwrite(
            add_data_files=table.lake.put_data([ONE, TWO]),
            add_delete_files=table.lake.put_positions([(path, 0)]),
            remove_data_files=(path,),
            commit_validations=(RemovedFilesNotReferenced(file_paths=(path,)),),
        )
    )
    table.expect(*((TWO,) if landed else (ONE, TWO)))
    return table


SCENARIOS: dict[str, Callable[[Plans], Table]] = {
    scenario.__name__.strip("_").replace("_", "-"): scenario
    for scenario in (
        _added_data_files,
        _removed_data_files,
        _added_delete_files,
        _new_deletes_for_data_files,
        _added_dvs,
        _missing_data_files,
        _missing_required_removes,
        _unknown_history,
        _base_not_ancestor,
        _partial_row_filter_match,
        _already_live,
        _second_deletion_vector,
        _vector_without_data_file,
        _replace_adds_records,
        _append_only,
        _added_file_outside_filter,
        _removed_and_referenced,
    )
}
# A rule with another behind it, which sees the head only and so cannot name the other commit: both are taken out.
BACKED_BY = {"added-dvs": ("second-deletion-vector",)}
# Rules that the random histories miss within seconds.
FOUND_BY_CHANCE = {
    "added-data-files": 100,
    "added-delete-files": 200,
    "missing-data-files": 300,
    "missing-required-removes": 500,
    "new-deletes-for-data-files": 200,
    "partial-row-filter-match": 100,
    "removed-data-files": 800,
}


def test_every_rule_of_the_core_has_a_scenario() -> None:
    assert set(SCENARIOS) == find_rules()
    assert {rule.slug for rule in RULES.values()} <= set(SCENARIOS)


@pytest.mark.parametrize("slug", SCENARIOS)
def test_the_rule_refuses_and_all_rows_are_right(slug: str) -> None:
    outcome = SCENARIOS[slug](plan_change).run.outcome
    assert outcome.fault is None
    assert outcome.refused
    assert set(outcome.refused) == {slug}


@pytest.mark.parametrize("slug", SCENARIOS)
def test_without_the_rule_rows_are_wrong(slug: str) -> None:
    outcome = SCENARIOS[slug](plans_without(slug, *BACKED_BY.get(slug, ()))).run.outcome
    assert outcome.fault is not None, f"{slug} is not needed: {outcome.trace}"
    assert not outcome.refused


@pytest.mark.parametrize("slug", BACKED_BY)
def test_a_rule_that_is_backed_by_another_is_what_names_the_other_commit(slug: str) -> None:
    def evidence(plans: Plans) -> Finding:
        table = Table(plans, version=3)
        ours = table.read(Operation("delete", "mor", scope=ID1, isolation=SNAPSHOT))
        table.do("delete", "mor", scope=Scope(ids=(2, 2)))
        assert ours.update is not None
        verdict = table.lake.commit(ours.update, key="ours")
        assert isinstance(verdict, Finding)
        return verdict

    assert evidence(plan_change).snapshot is not None
    assert evidence(plans_without(slug)).snapshot is None


@pytest.mark.parametrize("slug", FOUND_BY_CHANCE)
def test_without_the_rule_the_random_histories_go_wrong_soon(slug: str) -> None:
    broken = plans_without(slug)
    assert any(run_history(number, plans=broken).fault for number in range(FOUND_BY_CHANCE[slug]))

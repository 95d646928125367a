"""kill -9 at every step of fine-grained commits: each file written, the swap, COMMIT. All of it or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.store.base import Store
from tests.chaos.crashing_service import Cradle
from tests.chaos.fine_commits import append, find_orphans, live_names, marks, overwrite, table_change
from tests.chaos.rest import Call, create_table, find_table, must, send, table_path
from tests.chaos.test_kill_points import STORE_STEPS, Change, Lake, database, kill_at_each_step, store

__all__ = ["database", "store"]  # fixtures


def table_of_one_file(port: int, name: str) -> str:
    """A table with the file `old`; its location."""
    place = str(create_table(port, name)["location"])
    must(send(port, "POST", table_path(name), table_change(name, append(place, "old"))))
    return place


def is_there(port: int, table: str, mark: str, live: list[str]) -> bool:
    """Whether the commit of this mark is in the table: once, whole, and on top of what was there."""
    found = find_table(port, table)
    assert found is not None
    names, made = live_names(found["metadata"]), marks(found["metadata"])
    assert (made, names) in ((["old", mark], sorted(live)), (["old"], ["old"]))
    return mark in made


def look(change: Call, expected: dict[str, tuple[str, list[str]]], *, files: int) -> Change:
    """A change that is there when each table shows its mark and its live files; it writes so many files."""

    def found(port: int) -> list[bool]:
        return [is_there(port, table, mark, live) for table, (mark, live) in expected.items()]

    def leaves_little(port: int, landed: bool) -> None:
        found = [name for table in expected for name in find_orphans(port, table)]
        # A checkpoint may be in no log (ADR 0002, "Price").
        orphans = [name for name in found if not name.endswith(".metadata.json")]
        assert len(orphans) <= (0 if landed else files), orphans

    return Change(change, found, tuple(expected), events=len(expected), also=leaves_little)


def plan_append(port: int, name: str) -> Change:
    place = table_of_one_file(port, name)
    call = Call("POST", table_path(name), table_change(name, append(place, "new")))
    return look(call, {name: ("new", ["old", "new"])}, files=2)


def plan_overwrite(port: int, name: str) -> Change:
    place = table_of_one_file(port, name)
    call = Call("POST", table_path(name), table_change(name, overwrite(place, "old", "new")))
    return look(call, {name: ("new", ["new"])}, files=3)


def plan_transaction(port: int, name: str) -> Change:
    first, second = f"{name}_a", f"{name}_b"
    changes = [
        table_change(first, overwrite(table_of_one_file(port, first), "old", "new")),
        table_change(second, append(table_of_one_file(port, second), "new")),
    ]
    call = Call("POST", "/v1/transactions/commit", {"table-changes": changes})
    return look(call, {first: ("new", ["new"]), second: ("new", ["old", "new"])}, files=5)


def file_steps(count: int) -> str:
    """Before the first file, and after each."""
    return " ".join(["write_new.before.1", *(f"write_new.after.{nth + 1}" for nth in range(count))])


CHANGES: dict[str, tuple[Callable[[int, str], Change], int]] = {
    "append": (plan_append, 2),  # manifest, list
    "overwrite": (plan_overwrite, 3),  # and the manifest without the old file
    "transaction": (plan_transaction, 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_kill_at_any_step_of_a_fine_grained_commit_leaves_all_or_nothing(
    name: str, tmp_path: Path, database: str, store: Store
) -> None:
    plan, files = CHANGES[name]
    # What is killed before the bar has not happened, what is killed after it has. On SQLite the files are late.
    steps = (
        (STORE_STEPS, file_steps(files))
        if database.startswith("sqlite")
        else (file_steps(files), STORE_STEPS)
    )
    kill_at_each_step(plan, " ".join(steps), Lake(Cradle(tmp_path, database), store))

"""kill -9 at every step of a group commit, and files torn as by a power cut: what was acknowledged is there, once.

The commits of a group are one swap, so all of them are there or none. A kill alone loses no page of a file; the test
tears those that nobody has made durable by hand, before the service comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headgate.store.base import Store
from tests.chaos.crashing_service import Child, Cradle, Crash
from tests.chaos.fine_commits import append, find_orphans, live_names, marks, overwrite, table_change
from tests.chaos.raw_commits import count_events, must_be_sound, path_of
from tests.chaos.rest import (
    NS,
    Call,
    LostAnswerError,
    create_namespace,
    create_table,
    find_table,
    must,
    send,
    table_path,
)
from tests.chaos.test_kill_points import database, store, wait_for_files

__all__ = ["database", "store"]  # fixtures

EVER_MS = (1 << 63) - 1
OPTIONS = ("--checkpoint-interval-s", "0.05")


@dataclass(frozen=True)
class Group:
    """Commits of one table that go through its gate together; `calls` by the file that each brings."""

    table: str
    calls: dict[str, Call]
    live: tuple[str, ...]  # when all of them are there
    prefer: str | None
    files: int  # manifests and lists of the group


def plan_group(port: int, table: str, *, prefer: str | None, files: int) -> Group:
    """Three appends, and one that replaces the file `old`, or appends too if all are to share a snapshot."""
    place = str(create_table(port, table)["location"])
    must(send(port, "POST", table_path(table), table_change(table, append(place, "old"))))
    updates = {name: append(place, name) for name in ("a", "b", "c")}
    if prefer is None:
        updates["new"] = overwrite(place, "old", "new")
        live = ("a", "b", "c", "new")
    else:
        for update in updates.values():
            del update["summary"]  # they must say the same to share a snapshot
        live = ("a", "b", "c", "old")
    calls = {
        name: Call("POST", table_path(table), table_change(table, update)) for name, update in updates.items()
    }
    return Group(table, calls, live, prefer, files)


# What is killed before the bar has not happened, what is killed after it has. The files are a manifest and a list for
# each snapshot; a replaced file takes one manifest more. On SQLite they are late.
STORE = "write.before.1 COMMIT.before.1 | COMMIT.after.1 write.after.1"
SETTLING = "sync.before.1 sync.after.1 drop_files.before.1 drop_files.after.1"
CHECKPOINT = "write.before.2 COMMIT.before.2 write.after.2"
GROUPS: dict[str, tuple[str | None, int]] = {"chain": (None, 9), "fold": ("group=fold", 2)}


def soft_steps(files: int) -> str:
    """Before the first file, after the first, in the middle, after the last."""
    after = sorted({1, (files + 1) // 2, files})
    return " ".join(["write_soft.before.1", *(f"write_soft.after.{nth}" for nth in after)])


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_a_kill_at_any_step_of_a_group_leaves_all_of_it_or_nothing(
    name: str, tmp_path: Path, database: str, store: Store
) -> None:
    prefer, files = GROUPS[name]
    cradle = Cradle(tmp_path, database, OPTIONS)
    child = cradle.start()
    create_namespace(child.port)
    has_landed = False
    torn = 0
    try:
        soft = soft_steps(files)
        first = f"{STORE} {soft}" if database.startswith("sqlite") else f"{soft} {STORE}"
        for number, step in enumerate(f"{first} {SETTLING} {CHECKPOINT}".split()):
            if step == "|":
                has_landed = True
                continue
            group = plan_group(child.port, f"t{number}", prefer=prefer, files=files)
            wait_for_files(store)
            child.stop()
            acknowledged = be_killed(cradle, group, Crash.parse(step))
            torn += tear(store)
            child = cradle.start()
            come_through(child, store, group, acknowledged, step=step, has_landed=has_landed)
    finally:
        child.stop()
    assert torn > files  # the journal had something to bring back


def be_killed(cradle: Cradle, group: Group, crash: Crash) -> set[str]:
    """Send the whole group to a service that dies at a step; the files whose commit it acknowledged."""
    doomed = cradle.start(replace(crash, gather=(((NS,), group.table), len(group.calls))))
    with ThreadPoolExecutor(len(group.calls)) as pool:
        answers = {name: pool.submit(ask, doomed.port, group, call) for name, call in group.calls.items()}
        acknowledged = {name for name, answer in answers.items() if answer.result()}
    doomed.wait_for_crash()
    return acknowledged


def ask(port: int, group: Group, call: Call) -> bool:
    """Send one commit; whether it was acknowledged. Nothing is refused here."""
    try:
        answer = send(port, call.method, call.path, call.body, key=call.key, prefer=group.prefer)
    except LostAnswerError:
        return False
    assert answer.is_success, answer
    return True


def tear(store: Store) -> int:
    """Cut files that are in the journal, one in the middle, one to nothing, one away; how many."""
    rows = store.read_journal(before_ms=EVER_MS, limit=1000)
    for number, row in enumerate(rows):
        path = path_of(row.location)
        if not path.exists():
            continue  # it was late
        match number % 3:
            case 0:
                path.write_bytes(path.read_bytes()[: len(row.data) // 2])
            case 1:
                path.write_bytes(b"")
            case _:
                path.unlink(missing_ok=True)
    return len(rows)


def come_through(
    child: Child, store: Store, group: Group, acknowledged: set[str], *, step: str, has_landed: bool
) -> None:
    """All or nothing, and all that was acknowledged; then the clients, who may not know, ask again."""
    found = names_of(child.port, group)
    assert found == (sorted(group.live) if has_landed else ["old"]), step
    assert has_landed or not acknowledged, step
    for _ in range(2):
        assert all(ask(child.port, group, call) for call in group.calls.values()), step
    assert names_of(child.port, group) == sorted(group.live), step
    keys = [call.key for call in group.calls.values()]
    events = count_events(store)
    assert [events[key] for key in keys] == [1] * len(keys), step
    wait_for_files(store)
    must_be_sound(child.uri, group.table)
    must_leave_little(child.port, group, step, has_landed=has_landed)


def names_of(port: int, group: Group) -> list[str]:
    """The live files; the snapshots tell the same, each commit's once."""
    found = find_table(port, group.table)
    assert found is not None
    names = live_names(found["metadata"])
    if group.prefer is None:
        made: Sequence[str] = marks(found["metadata"])
        assert sorted({*made} - {"old"}) == sorted({*names} - {"old"})
        assert len(made) == len(set(made))
    return names


def must_leave_little(port: int, group: Group, step: str, *, has_landed: bool) -> None:
    """Manifests and lists of a group that did not land may stay behind; checkpoints may (ADR 0002, "Price")."""
    orphans = [name for name in find_orphans(port, group.table) if not name.endswith(".metadata.json")]
    assert len(orphans) <= (0 if has_landed else group.files), step

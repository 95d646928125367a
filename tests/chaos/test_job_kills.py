"""kill -9 at every step of asynchronous commits and streamed appends: what was acknowledged is there, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.store.base import Store
from tests.chaos.crashing_service import Child, Cradle, Crash
from tests.chaos.fine_commits import append, data_file, find_orphans, live_names, table_change
from tests.chaos.raw_commits import count_events, must_be_sound
from tests.chaos.rest import (
    Answer,
    Call,
    LostAnswerError,
    create_namespace,
    create_table,
    find_table,
    must,
    send,
    table_path,
)
from tests.chaos.test_fine_grained_kills import file_steps
from tests.chaos.test_kill_points import database, store, wait_for_files

__all__ = ["database", "store"]  # fixtures

OPTIONS = ("--job-lease-s", "0.5", "--stream-linger-ms", "300")
STREAMS = 2


@dataclass(frozen=True)
class Plan:
    """Requests to be acknowledged, and the files that each table must show when all of them are carried out."""

    calls: tuple[Call, ...]
    prefer: str | None
    live: dict[str, dict[str, str]]  # table → the key that brings a file


def new_table(port: int, name: str) -> str:
    """A table with the file `old`; its location."""
    place = str(create_table(port, name)["location"])
    must(send(port, "POST", table_path(name), table_change(name, append(place, "old"))))
    return place


def plan_commit(port: int, name: str) -> Plan:
    call = Call("POST", table_path(name), table_change(name, append(new_table(port, name), "new")))
    return Plan((call,), "respond-async", {name: {"new": call.key}})


def plan_transaction(port: int, name: str) -> Plan:
    names = (f"{name}_a", f"{name}_b")
    changes = [table_change(one, append(new_table(port, one), "new")) for one in names]
    call = Call("POST", "/v1/transactions/commit", {"table-changes": changes})
    return Plan((call,), "respond-async", {one: {"new": call.key} for one in names})


def plan_streams(port: int, name: str) -> Plan:
    place = new_table(port, name)
    files = [f"new{i}" for i in range(STREAMS)]
    calls = tuple(
        Call("POST", f"{table_path(name)}/append", {"files": [data_file(place, file)]}) for file in files
    )
    return Plan(calls, None, {name: {file: call.key for file, call in zip(files, calls, strict=True)}})


def acknowledging(count: int) -> str:
    """The steps of taking in so many requests."""
    return " ".join(
        f"write.before.{i} COMMIT.before.{i} COMMIT.after.{i} write.after.{i}" for i in range(1, count + 1)
    )


def publishing(nth: int) -> str:
    """The steps of the write that publishes."""
    return f"write.before.{nth} COMMIT.before.{nth} COMMIT.after.{nth} write.after.{nth}"


PLANS: dict[str, tuple[Callable[[int, str], Plan], str]] = {
    "commit": (plan_commit, f"{acknowledging(1)} claimed.after.1 {file_steps(1)} {publishing(2)}"),
    "transaction": (plan_transaction, f"{acknowledging(1)} claimed.after.1 {file_steps(2)} {publishing(2)}"),
    "streams": (plan_streams, f"{acknowledging(2)} claimed.after.1 {file_steps(1)} {publishing(3)}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged_and_makes_nothing_twice(
    name: str, tmp_path: Path, database: str, store: Store
) -> None:
    plan_one, steps = PLANS[name]
    cradle = Cradle(tmp_path, database, OPTIONS)
    child = cradle.start()
    create_namespace(child.port)
    try:
        for number, step in enumerate(steps.split()):
            plan = plan_one(child.port, f"t{number}")
            wait_for_files(store)
            child.stop()
            acknowledged = be_killed(cradle, plan, Crash.parse(step))
            child = cradle.start()
            come_through(child, store, plan, acknowledged, step)
    finally:
        child.stop()


def be_killed(cradle: Cradle, plan: Plan, crash: Crash) -> set[str]:
    """Send everything to a service that dies at a step; the keys that it acknowledged."""
    doomed = cradle.start(crash)
    acknowledged = set()
    for call in plan.calls:
        with suppress(LostAnswerError):
            if ask(doomed.port, plan, call).status == 202:
                acknowledged.add(call.key)
    doomed.wait_for_crash()
    return acknowledged


def ask(port: int, plan: Plan, call: Call) -> Answer:
    return send(port, call.method, call.path, call.body, key=call.key, prefer=plan.prefer)


def come_through(child: Child, store: Store, plan: Plan, acknowledged: set[str], step: str) -> None:
    """What was acknowledged lands by itself. Then the client, who may not know, asks again for everything."""
    for call in plan.calls:
        if call.key in acknowledged:
            assert status_of(child.port, call.key) == "committed", step
    check_files(child.port, plan, at_least=acknowledged, step=step)
    for _ in range(2):
        for call in plan.calls:
            assert ask(child.port, plan, call).is_success, step
        for call in plan.calls:
            assert status_of(child.port, call.key) == "committed", step
        check_files(child.port, plan, at_least={call.key for call in plan.calls}, step=step)
    assert store.count_jobs() == 0, step
    counted = count_events(store)
    for call in plan.calls:
        assert counted[call.key] == sum(call.key in files.values() for files in plan.live.values()), step
    wait_for_files(store)
    for table in plan.live:
        must_be_sound(child.uri, table)
        find_orphans(child.port, table)  # also sees that everything referred to is there


def status_of(port: int, key: str) -> str:
    told = send(port, "GET", f"/v1/commits/{key}?wait=25")
    return str(told.body["status"]) if told.status == 200 else str(told.status)


def check_files(port: int, plan: Plan, *, at_least: set[str], step: str) -> None:
    """Every table shows the files of these keys, perhaps of more, each once, on top of what was there."""
    for table, files in plan.live.items():
        found = find_table(port, table)
        assert found is not None
        names = live_names(found["metadata"])
        assert len(set(names)) == len(names), (step, names)
        assert {"old"} | {file for file, key in files.items() if key in at_least} <= set(names), (step, names)
        assert set(names) <= {"old", *files}, (step, names)

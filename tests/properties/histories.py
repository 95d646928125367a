"""Random histories: writers that read at bases of their own and commit in any order, checked against serial execution.

A history is made from a number alone; the same number gives the same history, trace and verdicts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cache

from headgate.core.change import ChangeUpdate
from headgate.core.conflicts import Finding
from headgate.core.isolation import Isolation
from headgate.core.plan import plan_change
from headgate.core.table import MAIN, Snapshot
from headgate.core.updates import RemoveSnapshots, SetSnapshotRef
from tests.properties.lake import CATS, IDS, VARIANTS, Lake, Plans, Row, Variant, new_lake
from tests.properties.operations import SERIALIZABLE, SNAPSHOT, LostUpdateError, Operation, Scope, State

LAYOUTS = 12
_KINDS = (
    *(("append", ""),) * 3,
    *(("delete", how) for how in ("cow", "mor", "keys", "filter")),
    *(("update", how) for how in ("cow", "mor", "mor")),
    *(("upsert", how) for how in ("cow", "keys")),
    *(("recompute", how) for how in ("partition", "filter")),
    *(("compact", how) for how in ("keeps number", "new number", "keeps number")),
)


@dataclass
class Outcome:
    """What happened in one history; `fault` is what should never be."""

    trace: list[str] = field(default_factory=list)
    committed: int = 0
    refused: list[str] = field(default_factory=list)
    anomalies: int = 0  # commits whose result differs from serial execution, allowed by isolation `snapshot`
    fault: str | None = None


@dataclass
class Writer:
    """One writer: its work, and once it has read, its base and change."""

    name: str
    operation: Operation
    base: int | None = None
    update: ChangeUpdate | None = None


class Run:
    """A table and, beside it, the rows that a serial execution would have left."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.outcome = Outcome()
        self.states: dict[int | None, State] = {None: {}}
        head = {seen.row.tag: seen.row for seen in lake.read(lake.head)}
        self.states[lake.head] = head

    def plan(self, writer: Writer) -> None:
        """The writer reads the head and writes its files."""
        writer.base = self.lake.head
        writer.update = writer.operation.write(self.lake, writer.base)
        self.outcome.trace.append(f"{writer.name} reads {writer.base} for {writer.operation}")

    def commit(self, writer: Writer) -> None:
        """The writer commits, and the rows are compared."""
        if writer.update is None:
            return
        before = self.lake.head
        verdict = self.lake.commit(writer.update, key=writer.name)
        if not isinstance(verdict, Snapshot):
            rule = verdict.rule if isinstance(verdict, Finding) else str(verdict.evidence.get("rule"))
            self.outcome.refused.append(rule)
            self.outcome.trace.append(f"{writer.name} is refused: {rule}")
            return
        self.outcome.committed += 1
        self.outcome.trace.append(f"{writer.name} commits {verdict.snapshot_id}")
        self._compare(writer, self.states[before])

    def _compare(self, writer: Writer, now: State) -> None:
        operation, lake = writer.operation, self.lake
        serial = operation.after(now, now, lake)
        expected = serial
        if operation.isolation == SNAPSHOT:
            try:
                expected = operation.after(now, self.states[writer.base], lake)
            except LostUpdateError as error:
                self.outcome.fault = str(error)
                return
            self.outcome.anomalies += expected != serial
        self.states[lake.head] = expected
        found = sorted(seen.row for seen in lake.read(lake.head))
        if found != sorted(expected.values()):
            wrong = [row for row in found if found.count(row) > 1 or row not in expected.values()]
            lost = [row for row in expected.values() if row not in found]
            self.outcome.fault = f"after {writer.name}: {wrong} should not be there, {lost} should be"
        elif (fault := lake.find_fault()) is not None:
            self.outcome.fault = f"after {writer.name}: {fault}"

    def expire(self) -> None:
        """Forget all snapshots but the head."""
        old = [snapshot.snapshot_id for snapshot in self.lake.table.iter_snapshots()]
        gone = tuple(id_ for id_ in old if id_ != self.lake.head)
        if gone:
            self.lake.apply(RemoveSnapshots(snapshot_ids=gone))
            self.outcome.trace.append(f"expired {gone}")

    def roll_back(self) -> None:
        """Point main at the parent of the head."""
        head = None if self.lake.head is None else self.lake.table.find_snapshot(self.lake.head)
        parent = None if head is None else head.parent_snapshot_id
        if parent is not None and parent in self.states and self.lake.table.find_snapshot(parent) is not None:
            self.lake.apply(SetSnapshotRef(ref_name=MAIN, snapshot_id=parent, type="branch"))
            self.outcome.trace.append(f"rolled back to {parent}")


def run_history(number: int, *, isolation: Isolation | None = None, plans: Plans = plan_change) -> Outcome:
    """The history of this number; every writer at this isolation, or each at its own."""
    dice = random.Random(number)
    variant = VARIANTS[number % len(VARIANTS)]
    run = Run(_start(variant, dice.randrange(LAYOUTS)).fork(plans))
    writers = [
        Writer(f"w{n}", _operation(dice, f"w{n}", isolation or dice.choice((SERIALIZABLE, SNAPSHOT))))
        for n in range(dice.choice((2, 2, 3, 3, 4)))
    ]
    run.outcome.trace.append(f"history {number}: {variant}")
    steps: list[tuple[str, Writer | None]] = [("plan", writer) for writer in writers]
    dice.shuffle(steps)
    for writer in writers:
        planned = steps.index(("plan", writer))
        steps.insert(dice.randint(planned + 1, len(steps)), ("commit", writer))
    if dice.random() < 0.15:
        steps.insert(dice.randint(1, len(steps)), (dice.choice(("expire", "roll back")), None))
    for what, who in steps:
        if who is None:
            (run.expire if what == "expire" else run.roll_back)()
        else:
            (run.plan if what == "plan" else run.commit)(who)
        if run.outcome.fault is not None:
            break
    return run.outcome


def _rows(dice: random.Random, name: str, count: int) -> tuple[Row, ...]:
    ids = dice.sample(IDS, count)
    return tuple(Row(f"{name}.{n}", id_, dice.choice(CATS), dice.randrange(3)) for n, id_ in enumerate(ids))


def _operation(dice: random.Random, name: str, isolation: Isolation) -> Operation:
    kind, how = dice.choice(_KINDS)
    low = dice.randrange(len(IDS))
    scope = Scope(
        cat=dice.choice((*CATS, None)),
        ids=dice.choice(((low, low), (low, low + 2), None)),
        amount_max=dice.choice((None, None, 1)),
    )
    if how == "keys" and kind == "delete":
        scope = Scope(cat=dice.choice(CATS), ids=(low, low + dice.randrange(2)))
    elif how in ("filter", "partition"):
        scope = Scope(
            cat=dice.choice(CATS),
            ids=dice.choice((None, None, (low, low + 2))) if how == "filter" else (low, low),
        )
    return Operation(
        kind=kind,
        how=how,
        scope=scope,
        rows=_rows(dice, name, dice.randint(1, 3)) if kind in ("append", "upsert") else (),
        isolation=isolation,
        statistics=dice.random() < 0.75,
        scoped=dice.random() < 0.5,
        picks=dice.randrange(1, 32),
    )


@cache
def _start(variant: Variant, layout: int) -> Lake:
    """A table with a few commits behind it; histories fork it."""
    dice = random.Random(f"{variant} {layout}")
    run = Run(new_lake(variant))
    for n in range(dice.randint(1, 3)):
        rows = _rows(dice, f"s{n}", dice.randint(2, 4))
        run.plan(writer := Writer(f"s{n}", Operation("append", rows=rows, statistics=dice.random() < 0.75)))
        run.commit(writer)
    if dice.random() < 0.5:
        deletes = replace(_operation(dice, "d", SERIALIZABLE), kind="delete", rows=(), how="mor")
        run.plan(writer := Writer("d", deletes))
        run.commit(writer)
    assert run.outcome.fault is None, run.outcome
    return run.lake

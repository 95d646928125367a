"""A discrete-event simulator of writers that race for one table: the core's commit flow on a clock that never runs.

The flow is the real one, over metadata in memory; what is modelled is time. A load, the building of a candidate and a
swap take as long as `Costs` says, give or take a share. The catalog makes one swap at a time, in the order they come: it
takes effect at its end if its base is the head, and is refused sooner if not. The same seed gives the same history.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from bench.backoff_waits import RETRIES_MAX, Waits
from headgate.core.commit import (
    Candidate,
    Committed,
    Effect,
    Head,
    Load,
    Loaded,
    Reply,
    Swap,
    SwapLost,
    Swapped,
    TableCommit,
    Wait,
)
from headgate.core.create import TableDefinition, build_table
from headgate.core.flow import commit_flow
from headgate.core.schema import Schema
from headgate.core.updates import SetProperties
from headgate.errors import invariant

_TARGET = (("bench",), "t")


@dataclass(frozen=True, slots=True)
class Costs:
    """How long the parts of an attempt take, in milliseconds; each draws between 1 - `spread` and 1 + `spread` of it."""

    load_ms: float = 1.0
    build_ms: float = 5.0
    swap_ms: float = 4.0
    lost_ms: float = 1.0  # a swap that is refused makes nothing durable
    spread: float = 0.2


@dataclass(frozen=True, slots=True)
class Model:
    """How many writers, for how long, and when they commit.

    Each for itself: after a pause, exponential with a mean of `think_ms`. Or, with a `tick_ms`, all at once: at the next
    tick, as streams with a common trigger do.
    """

    writers: int = 30
    seconds: float = 60.0
    think_ms: float = 600.0
    tick_ms: float | None = None
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class Lap:
    """One commit of one writer."""

    writer: int
    began_ms: float
    ended_ms: float
    attempts: int
    committed: bool


@dataclass(slots=True)
class History:
    """What came of a run: commits in the order they ended, and when the catalog was at a swap."""

    laps: list[Lap] = field(default_factory=list)
    swaps: list[tuple[float, float]] = field(default_factory=list)
    head: Head | None = None


class _Queue:
    """Something that one writer has at a time: first come, first served."""

    def __init__(self) -> None:
        self.waiting: deque[_Process] = deque()
        self.is_taken = False


_Step = float | _Queue  # how many milliseconds to sleep, or what to queue for
_Process = Generator[_Step, None, None]


def simulate(model: Model, waits: Waits, *, seed: int) -> History:
    """Let the writers race; who began before the end finishes."""
    return _Simulation(model, waits, seed).run()


class _Simulation:
    """The clock, the catalog and the queue."""

    def __init__(self, model: Model, waits: Waits, seed: int) -> None:
        self._model, self._waits = model, waits
        self._random = random.Random(seed)
        self._now_ms = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, _Process]] = []
        self._turn, self._catalog = _Queue(), _Queue()
        self._head = _first_head()
        self._history = History()

    def run(self) -> History:
        for writer in range(self._model.writers):
            self._schedule(0.0, self._write(writer))
        while self._events:
            self._now_ms, _, process = heapq.heappop(self._events)
            try:
                wanted = next(process)
            except StopIteration:
                continue
            if isinstance(wanted, _Queue):
                wanted.waiting.append(process)
                self._give(wanted)
            else:
                self._schedule(wanted, process)
        for queue in (self._turn, self._catalog):
            invariant(
                not queue.waiting and not queue.is_taken, "nobody waits, and nobody has what he waited for"
            )
        self._history.head = self._head
        return self._history

    def _schedule(self, delay_ms: float, process: _Process) -> None:
        heapq.heappush(self._events, (self._now_ms + delay_ms, next(self._order), process))

    def _give(self, queue: _Queue) -> None:
        if queue.waiting and not queue.is_taken:
            queue.is_taken = True
            self._schedule(0.0, queue.waiting.popleft())

    def _end(self, queue: _Queue) -> None:
        queue.is_taken = False
        self._give(queue)

    # --- writers -----------------------------------------------------------------------------------------

    def _write(self, writer: int) -> _Process:
        """The life of one writer."""
        yield self._think()
        for number in itertools.count(1):
            if self._now_ms >= self._model.seconds * 1000:
                return
            began_ms = self._now_ms
            updates = (SetProperties(updates={f"writer-{writer}": str(number)}),)
            flow = commit_flow(
                (TableCommit(_TARGET, (), updates),), key=f"{writer}-{number}", attempts_max=RETRIES_MAX + 1
            )
            committed, attempts = yield from self._drive(flow)
            self._history.laps.append(Lap(writer, began_ms, self._now_ms, attempts, committed))
            yield self._think()

    def _drive(self, flow: Generator[Effect, Reply, object]) -> Generator[_Step, None, tuple[bool, int]]:
        """Carry out the effects of one commit; whether it landed, and by how many swaps."""
        costs, waits = self._model.costs, self._waits
        reply: Reply = None
        attempts, waited_ms, has_turn = 0, 0.0, False
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                if has_turn:
                    self._end(self._turn)
                return isinstance(stop.value, Committed), attempts
            reply = None
            match effect:
                case Load():
                    if waits.turns and not has_turn:
                        yield self._turn
                        has_turn = True
                    yield self._about(costs.load_ms)
                    reply = Loaded((self._head,), frozenset(), int(self._now_ms))
                case Swap():
                    attempts += 1
                    yield self._about(costs.build_ms)
                    reply = yield from self._swap(effect.candidates[0])
                    if has_turn:
                        self._end(self._turn)
                        has_turn = False
                case Wait():
                    waited_ms = waits.formula(attempts, self._random.random(), waited_ms)
                    yield waited_ms

    def _swap(self, candidate: Candidate) -> Generator[_Step, None, Swapped | SwapLost]:
        yield self._catalog
        began_ms, base = self._now_ms, candidate.base
        wins = base is not None and base.version == self._head.version
        yield self._about(self._model.costs.swap_ms if wins else self._model.costs.lost_ms)
        self._history.swaps.append((began_ms, self._now_ms))
        if base is not None and wins:
            self._head = Head(base.id, base.version + 1, candidate.metadata, base.metadata_location, None)
        self._end(self._catalog)
        return Swapped((self._head,)) if wins else SwapLost()

    def _think(self) -> float:
        tick_ms = self._model.tick_ms
        if tick_ms is not None:
            return tick_ms - self._now_ms % tick_ms
        return self._random.expovariate(1 / self._model.think_ms)

    def _about(self, cost_ms: float) -> float:
        spread = self._model.costs.spread
        return cost_ms * self._random.uniform(1 - spread, 1 + spread)


def _first_head() -> Head:
    schema = Schema(fields=())
    wanted = TableDefinition(
        schema=schema, location="memory:/t", uuid="00000000-0000-7000-8000-000000000000", properties={}
    )
    return Head("t", 1, build_table(wanted, now_ms=0), "", None)

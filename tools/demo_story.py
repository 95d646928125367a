"""Who does what in the demo, and the model that tells what the table must hold at the end.

Commits of a table are in one order, the order of their sequence numbers. So whoever was acknowledged writes down what it
did with that number, and the model plays all of it again in that order: the table must hold those rows, to the row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from headgate.client import Committed
from headgate.errors import CommitRefused

Row = tuple[int, int, str, Decimal]  # id, customer, region, amount
Rows = dict[int, Row]  # by id
TRIES_MAX = 40


@dataclass(frozen=True)
class Deed:
    """What an acknowledged commit did to the rows of the table."""

    sequence_number: int
    play: Callable[[Rows], None]


@dataclass(frozen=True)
class Refusal:
    """A commit that was refused: whose, when, why, and because of whom."""

    at_s: float
    actor: str
    rule: str
    theirs: str
    message: str


@dataclass
class Ledger:
    """What everybody was told. Shared by the threads of the actors."""

    began: float = field(default_factory=time.monotonic)
    deeds: list[Deed] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)  # by actor: commits, tries
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(
        self, actor: str, committed: Committed | None, play: Callable[[Rows], None], *, tries: int = 1
    ) -> None:
        """A commit was acknowledged; None is one that had nothing to do."""
        with self._lock:
            count = self.counts.setdefault(actor, [0, 0])
            count[1] += tries
            if committed is None:
                return
            count[0] += 1
            self.deeds.append(Deed(int(committed.sequence_number or 0), play))

    def refuse(self, actor: str, error: CommitRefused) -> None:
        """A commit was refused, with its evidence."""
        theirs = error.evidence.get("theirs")
        named = theirs if isinstance(theirs, Mapping) else {}
        who = f"{named.get('operation', 'a commit')} {named.get('snapshot-id', '')}".strip()
        rule = str(error.evidence.get("rule", error.code))
        refusal = Refusal(time.monotonic() - self.began, actor, rule, who, error.message)
        with self._lock:
            self.refusals.append(refusal)

    def fail(self, actor: str, error: BaseException) -> None:
        """Something that the story does not foresee."""
        with self._lock:
            self.failures.append(f"{actor}: {type(error).__name__}: {error}")

    def replay(self) -> Rows:
        """The rows that the table must hold."""
        rows: Rows = {}
        for deed in sorted(self.deeds, key=lambda deed: deed.sequence_number):
            deed.play(rows)
        return rows

    def wait_for(self, *, commits: int, patience_s: float) -> None:
        """Return when so many commits were acknowledged."""
        deadline = time.monotonic() + patience_s
        while len(self.deeds) < commits and time.monotonic() < deadline:
            time.sleep(0.1)

    def acknowledged_ids(self, below: int) -> list[int]:
        """Ids that are in the table by what was acknowledged so far."""
        with self._lock:
            deeds = list(self.deeds)
        rows: Rows = {}
        for deed in sorted(deeds, key=lambda deed: deed.sequence_number):
            deed.play(rows)
        return sorted(id_ for id_ in rows if id_ < below)


def adds(rows: Iterable[Row]) -> Callable[[Rows], None]:
    """Rows are there."""
    made = {row[0]: row for row in rows}
    return lambda table: table.update(made)


def removes(customer: int) -> Callable[[Rows], None]:
    """No row of a customer is there."""

    def play(table: Rows) -> None:
        for id_ in [id_ for id_, row in table.items() if row[1] == customer]:
            del table[id_]

    return play


def corrects(amounts: Mapping[int, Decimal]) -> Callable[[Rows], None]:
    """Rows that are there have other amounts."""

    def play(table: Rows) -> None:
        for id_, amount in amounts.items():
            if id_ in table:
                table[id_] = (*table[id_][:3], amount)

    return play


def until_it_lands(
    ledger: Ledger, actor: str, work: Callable[[], Committed | None], play: Callable[[Rows], None]
) -> None:
    """Do the work again from the new head each time that it is refused, as a job's scheduler would."""
    for tries in range(1, TRIES_MAX + 1):
        try:
            committed = work()
        except CommitRefused as error:
            ledger.refuse(actor, error)
            continue
        ledger.note(actor, committed, play, tries=tries)
        return
    ledger.failures.append(f"{actor}: refused {TRIES_MAX} times")


def together(ledger: Ledger, actors: Mapping[str, Callable[[], None]]) -> None:
    """Let all actors go at once, and wait for all of them."""

    def run(name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # outermost edge of this thread: the story tells it at the end
            ledger.fail(name, error)

    threads = [threading.Thread(target=run, args=actor, name=actor[0]) for actor in actors.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""The ratios that goals are set for, taken in turns: the gate and its peers within two minutes, several times over.

The speed of a shared machine moves by half from one minute to the next, and not by the same for everybody: two figures that
were taken ten minutes apart make a ratio of nothing. What counts is the median of ratios that were each taken together.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.service_process import running_service, sqlite_url

from bench.fine import make_floor
from bench.load import Load
from bench.peers import race_pyiceberg
from bench.points import Catalog, measure_point, open_catalog
from bench.race import Race
from bench.report import Goal
from bench.stolen import measure_quietly

CHAIN_CLIENTS, FOLD_CLIENTS = 16, 64
_FLOOR_WRITES = 300
_SLICES = 5  # of the single client's time: the floor is measured after each, for a disk drifts within seconds
_SLICES_TRIED_MAX = 15  # of which the quiet ones count: see `bench.stolen`


@dataclass(frozen=True, slots=True)
class Turn:
    """What was measured together. Rates are commits/s, `lost` is of the gate."""

    chain: float
    chain_peer: float  # PyIceberg with its default retries, as many writers
    fold: float
    fold_peer: float
    single_ms: float  # the median of one client, in the middle of the slices
    floor_ms: float  # the same of the floor
    stolen: float  # of the machine's time, by others, in the middle of those slices
    lost: int

    def ratios(self) -> tuple[float, float, float]:
        """Of the chain, of the fold, of the single client's median."""
        return self.chain / self.chain_peer, self.fold / self.fold_peer, self.single_ms / self.floor_ms

    def text(self) -> str:
        """One line."""
        chain, fold, single = self.ratios()
        return (
            f"chain at {CHAIN_CLIENTS} {self.chain:,.0f}/s = {chain:,.0f} ×, fold at {FOLD_CLIENTS} {self.fold:,.0f}/s"
            f" = {fold:,.0f} ×, one client {self.single_ms:.2f} ms = {single:.2f} × the floor"
            f" ({self.stolen:.0%} stolen)"
        )


def run_turn(
    folder: Path, *, seconds: float, warm_up_s: float, peer_s: float, options: Sequence[str], auth: bool
) -> Turn:
    """All of them once, on SQLite and a local disk."""
    folder.mkdir()
    os.sync()  # what the writers of the turn before left to the disk is theirs
    url = sqlite_url(folder / "catalog.db")
    with running_service(folder, database=url, options=options) as service:
        catalog = open_catalog(service, database=url, auth=auth)
        taken = measure_quietly(
            lambda: _measure_slice(folder, catalog, seconds / _SLICES, warm_up_s),
            wanted=_SLICES,
            tries_max=_SLICES_TRIED_MAX,
        )
        slices = [one.found for one in taken]
        chain = measure_point(catalog, mode="chain", load=Load(CHAIN_CLIENTS, seconds, warm_up_s))
        fold = measure_point(catalog, mode="fold", load=Load(FOLD_CLIENTS, seconds, warm_up_s))
    return Turn(
        chain=chain["commits_per_s"],
        chain_peer=_race(folder, CHAIN_CLIENTS, peer_s),
        fold=fold["commits_per_s"],
        fold_peer=_race(folder, FOLD_CLIENTS, peer_s),
        single_ms=statistics.median(one.single_ms for one in slices),
        floor_ms=statistics.median(one.floor_ms for one in slices),
        stolen=statistics.median(one.stolen for one in taken),
        lost=sum(row["lost"] for row in (chain, fold)) + sum(one.lost for one in slices),
    )


@dataclass(frozen=True, slots=True)
class _Slice:
    single_ms: float
    floor_ms: float
    lost: int


def _measure_slice(folder: Path, catalog: Catalog, seconds: float, warm_up_s: float) -> _Slice:
    """One client for a while, and as many bytes into the floor right after it."""
    single = measure_point(catalog, mode="chain", load=Load(1, seconds, warm_up_s))
    place = Path(tempfile.mkdtemp(prefix="floor-", dir=folder))
    step = make_floor(place, int(single["bytes_per_commit"]))
    step()
    floor_ms = statistics.median(step() for _ in range(_FLOOR_WRITES)) * 1000
    return _Slice(single["p50_ms"], floor_ms, single["lost"])


def _race(folder: Path, writers: int, seconds: float) -> float:
    found = race_pyiceberg(folder / f"pyiceberg-{writers}", Race(writers, seconds), retries=None)
    # One that published nothing is taken for one that published once in the time.
    return max(float(found["commits_per_s"]), 1 / seconds)


def turn_goals(turns: Sequence[Turn]) -> Iterator[Goal]:
    """The goals of issue 5 for contention, by the median turn of each."""
    chains, folds, singles = zip(*(turn.ratios() for turn in turns), strict=True)
    for name, ratios, bound in (
        (f"chain at {CHAIN_CLIENTS} / PyIceberg, 4 retries at {CHAIN_CLIENTS}, commits/s", chains, 150),
        (f"fold at {FOLD_CLIENTS} / PyIceberg, 4 retries at {FOLD_CLIENTS}, commits/s", folds, 500),
    ):
        yield Goal(name, statistics.median(ratios), bound, unit=" ×", runs=ratios)
    yield Goal(
        "p50 of a single client / durable floor",
        statistics.median(singles),
        3,
        at_least=False,
        unit=" ×",
        runs=singles,
    )


def records(turns: Sequence[Turn]) -> list[dict[str, float]]:
    """For the JSON copy."""
    return [asdict(turn) for turn in turns]

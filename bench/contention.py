"""Contention: many clients append one file each time to one table; what is published, how soon, and what is lost.

    ./dev bench contention [--clients 1,4,16,64,256] [--databases sqlite,postgres] [--modes chain,fold] [--seconds 5]
    ./dev bench contention --put-ms 30 --put-ms-per-mib 20          # the same over an object store's latencies

In the same run, as what it is measured by:
1. the floor: one durable write of as many bytes as one commit leaves behind (SQLite, WAL, synchronous=FULL);
2. the bare server: the same write behind the service's own HTTP server, and nothing else;
3. PyIceberg 0.12 over SqlCatalog on SQLite: writer processes that retry by themselves, 4 times and 100 times;
4. our own core in a retry loop in every writer, over a shared SQLite: the same code without a gate.

Goals are judged by ratios taken in turns (`bench.turns`), unless there are no turns: `--turns 0`.

Files and databases are durable. After every point the table is read back: what was acknowledged is there, once.
Figures go to bench/results, table and plot to docs/contention.md; with `--file` the JSON goes there and nowhere else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tools.postgres_process import running_postgres
from tools.service_process import HOST, Service, running_service, sqlite_url, start_process

from bench.common import write_result
from bench.contention_page import LOCAL, OBJECT_STORE, write_page
from bench.fine import make_floor
from bench.ground import fresh_folder
from bench.load import Target, run_load
from bench.peers import race_own_core, race_pyiceberg
from bench.points import NAMESPACE, measure_point, open_catalog
from bench.race import Race
from bench.report import (
    Goal,
    Row,
    add_options,
    find_row,
    print_goals,
    print_heading,
    print_row,
    read_clients,
    read_load,
    read_serve_options,
)
from bench.slow_files import Latencies
from bench.turns import Turn, records, run_turn, turn_goals

_FLOOR_WRITES = 300
_RETRIES_MANY = 100
_PEER_WRITERS = (1, 4, 16, 64)
_OWN_WRITERS_MAX = 16  # each is a whole service in its process; more of them were not tried
_SLOW_CLIENTS = "1,16,64,256"


class Bench:
    """The rows of one run, printed as they come."""

    def __init__(self, parsed: argparse.Namespace, folder: Path) -> None:
        self._parsed, self._folder = parsed, folder
        self._latencies = Latencies.read(parsed)
        self.points: list[dict[str, Any]] = []
        self.peers: list[dict[str, Any]] = []
        self.peer_s: float = parsed.peer_seconds
        self.floor: dict[str, float] = {}
        self.bare: dict[str, float] = {}
        self.turns: list[Turn] = []

    def run(self) -> None:
        """Every point, then the peers."""
        print_heading()
        for database in self._parsed.databases.split(","):
            self._run_database(database)
        if not self._parsed.no_peers:
            self._run_peers()
            if self._latencies is None:
                self._run_turns()

    def _run_database(self, database: str) -> None:
        folder = self._folder / database
        folder.mkdir()
        with ExitStack() as stack:
            if database == "postgres":
                url = stack.enter_context(running_postgres(folder / "server"))
            else:
                url = sqlite_url(folder / "catalog.db")
            service = stack.enter_context(self._running(folder, url))
            catalog = open_catalog(service, database=url, auth=self._parsed.auth == "on")
            for clients in read_clients(self._parsed):
                for mode in self._parsed.modes.split(","):
                    load = read_load(self._parsed, clients)
                    row = measure_point(catalog, mode=mode, load=load, keys=self._parsed.keys)
                    self.points.append({"database": database, **row})
                    print_row(f"{mode}, {database}", row)
                    if not self.floor and clients == 1 and self._latencies is None:
                        self._measure_floor(int(row["bytes_per_commit"]))

    def _measure_floor(self, size: int) -> None:
        """Right after the single client, because a shared disk drifts."""
        step = make_floor(self._folder, size)
        step()
        times = sorted(step() for _ in range(_FLOOR_WRITES))
        p50, p99 = statistics.median(times) * 1000, times[int(len(times) * 0.99)] * 1000
        self.floor = {"bytes": size, "p50_ms": p50, "p99_ms": p99}
        rate = len(times) / sum(times)
        print(f"{f'floor: {size} bytes into SQLite FULL':34s}{1:7d}{rate:11,.1f}{p50:10.2f}{p99:10.1f}")
        self._measure_bare(size)

    def _measure_bare(self, size: int) -> None:
        folder = self._folder / "bare"
        folder.mkdir()

        def command(port: int) -> list[str]:
            words = ("--port", str(port), "--folder", str(folder), "--bytes", str(size))
            return [sys.executable, "-m", "bench.bare_service", *words]

        service = start_process(command, log=folder / "service.log")
        try:
            target = Target((service.port,), NAMESPACE, "t", f"file://{folder}")
            found = run_load(target, read_load(self._parsed, 1))
        finally:
            service.stop()
        if found.failed or not found.count:
            raise RuntimeError(f"the bare server refused: {found.failed}, {found.examples}")
        self.bare = {"p50_ms": found.p50_ms, "p99_ms": found.p99_ms, "commits_per_s": found.commits_per_s}
        print(
            f"{'the same write behind HTTP':34s}{1:7d}{found.commits_per_s:11,.1f}{found.p50_ms:10.2f}{found.p99_ms:10.1f}"
        )

    def _run_peers(self) -> None:
        race_s = self.peer_s
        if self._latencies is not None:
            row = race_own_core(self._folder / "own", Race(16, race_s), self._latencies)
            self._add_peer("own core, no gate", row)
            return
        for writers in _PEER_WRITERS:
            if writers <= _OWN_WRITERS_MAX:
                own = race_own_core(self._folder / f"own-{writers}", Race(writers, race_s))
                self._add_peer("own core, no gate", own)
            for retries, label in ((None, "PyIceberg, 4 retries"), (_RETRIES_MANY, "PyIceberg, 100 retries")):
                folder = self._folder / f"pyiceberg-{writers}-{retries}"
                self._add_peer(label, race_pyiceberg(folder, Race(writers, race_s), retries=retries))

    def _run_turns(self) -> None:
        parsed = self._parsed
        for number in range(1, parsed.turns + 1):
            turn = run_turn(
                self._folder / f"turn-{number}",
                seconds=parsed.seconds,
                warm_up_s=parsed.warm_up_s,
                peer_s=self.peer_s,
                options=read_serve_options(parsed),
                auth=parsed.auth == "on",
            )
            self.turns.append(turn)
            print(f"turn {number}: {turn.text()}", flush=True)

    def _add_peer(self, label: str, row: dict[str, Any]) -> None:
        self.peers.append({"peer": label, **row})
        print_row(label, row)

    @contextmanager
    def _running(self, folder: Path, database: str) -> Iterator[Service]:
        options = read_serve_options(self._parsed)
        latencies = self._latencies
        if latencies is None:
            with running_service(folder, database=database, options=options) as service:
                yield service
            return
        warehouse = folder / "warehouse"
        warehouse.mkdir()

        def command(port: int) -> list[str]:
            place = ["--host", HOST, "--port", str(port), "--warehouse", str(warehouse)]
            serve = [sys.executable, "-m", "bench.slow_service", *latencies.words(), *place]
            return [*serve, "--database", database, *options]

        service = start_process(command, log=folder / "service.log")
        try:
            yield service
        finally:
            service.stop()


def local_goals(bench: Bench) -> Iterator[Goal]:
    """Those of issue 5 that this run can judge."""
    if bench.turns:
        yield from turn_goals(bench.turns)
    chain = find_row(bench.points, database="sqlite", mode="chain", clients=16)
    fold = find_row(bench.points, database="sqlite", mode="fold", clients=64)
    single = find_row(bench.points, database="sqlite", mode="chain", clients=1)
    labels = ("PyIceberg, 4 retries", "PyIceberg, 100 retries")
    for label in labels[1:] if bench.turns else labels:
        for name, row, writers, bound in (("chain at 16", chain, 16, 150), ("fold at 64", fold, 64, 500)):
            peer = find_row(bench.peers, peer=label, clients=writers)
            if row is not None and peer is not None:
                # One that published nothing is taken for one that published once in the time.
                rate = max(peer["commits_per_s"], 1 / bench.peer_s)
                yield Goal(
                    f"{name} / {label} at {writers}, commits/s", row["commits_per_s"] / rate, bound, unit=" ×"
                )
    if single is not None and bench.floor and not bench.turns:
        ratio = single["p50_ms"] / bench.floor["p50_ms"]
        yield Goal("p50 of a single client / durable floor", ratio, 3, at_least=False, unit=" ×")


def object_store_goals(bench: Bench) -> Iterator[Goal]:
    """Those for injected latencies."""
    for mode, bound in (("chain", 400), ("fold", 800)):
        if (row := find_row(bench.points, database="sqlite", mode=mode, clients=64)) is not None:
            yield Goal(f"{mode} at 64, commits/s", row["commits_per_s"], bound)


def lost_goal(bench: Bench) -> Goal:
    """Nothing is lost at any point."""
    lost = sum(row["lost"] for row in bench.points) + sum(turn.lost for turn in bench.turns)
    return Goal("commits lost, refused or doubled, all points", lost, 0, at_least=False)


def check_peers(rows: list[Row]) -> None:
    """Say so if a peer acknowledged what is not there: its rate would not be comparable."""
    for row in rows:
        if row["present"] < row["acknowledged"]:
            print(
                f"{row['peer']}, {row['clients']}: acknowledged {row['acknowledged']}, present {row['present']}"
            )


def main() -> int:
    """Measure, print, judge, keep."""
    parser = argparse.ArgumentParser(prog="bench contention", description=__doc__.partition("\n")[0])
    add_options(parser, clients="")
    parser.add_argument("--databases", default="sqlite,postgres", help="separated by commas")
    parser.add_argument(
        "--peer-seconds", type=float, default=15.0, help="how long writers without a gate race"
    )
    parser.add_argument("--turns", type=int, default=5, help="how often the ratios of the goals are taken")
    parser.add_argument("--no-peers", action="store_true", help="leave out the writers without a gate")
    Latencies.add_options(parser)
    parsed = parser.parse_args()
    latencies = Latencies.read(parsed)
    if not parsed.clients:
        parsed.clients = "1,4,16,64,256" if latencies is None else _SLOW_CLIENTS
    with fresh_folder() as folder:
        bench = Bench(parsed, folder)
        bench.run()
    check_peers(list(bench.peers))
    goals = [
        *(local_goals(bench) if latencies is None else object_store_goals(bench)),
        lost_goal(bench),
    ]
    print_goals(goals)
    found = {
        "seconds": parsed.seconds,
        "auth": parsed.auth,
        "latencies": None if latencies is None else latencies.words(),
        "floor": bench.floor,
        "bare": bench.bare,
        "points": bench.points,
        "peers": bench.peers,
        "turns": records(bench.turns),
        "goals": [goal.record() for goal in goals],
    }
    write_result(LOCAL if latencies is None else OBJECT_STORE, found, file=parsed.file)
    if parsed.file is None:
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())

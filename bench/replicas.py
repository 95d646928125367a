"""Two replicas of the service on one PostgreSQL, clients of both on one table, beside one replica in the same run.

    ./dev bench replicas [--clients 64] [--modes chain,fold] [--seconds 5] [--turns 2]

The replicas share the database and the warehouse on local disk, and nothing else: each has a gate of its own, and
a swap that the other has won is tried again. The turns alternate between one and two; the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.postgres_process import running_postgres
from tools.service_process import Service, start_service

from bench.common import write_result
from bench.contention_page import REPLICAS, write_page
from bench.ground import fresh_folder
from bench.points import Catalog, measure_point, open_catalog
from bench.report import (
    Goal,
    add_options,
    print_goals,
    print_heading,
    print_row,
    read_clients,
    read_load,
    read_serve_options,
)

RATIO_MIN = 0.6


def start_replicas(stack: ExitStack, folder: Path, database: str, options: list[str]) -> tuple[Service, ...]:
    """Two services that answer, over one database and one warehouse."""
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    services = []
    for index in (1, 2):
        log = folder / f"service-{index}.log"
        service = start_service(warehouse=warehouse, database=database, log=log, options=options)
        stack.callback(service.stop)
        services.append(service)
    return tuple(services)


def run(parsed: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Every point, in turns."""
    rows: list[dict[str, Any]] = []
    print_heading()
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres(folder / "server"))
        services = start_replicas(stack, folder, database, read_serve_options(parsed))
        both = open_catalog(*services, database=database, auth=parsed.auth == "on")
        one = Catalog(services[:1], both.token)
        for clients in read_clients(parsed):
            for mode in parsed.modes.split(","):
                for _ in range(parsed.turns):
                    for catalog in (one, both):
                        load = read_load(parsed, clients)
                        row = measure_point(catalog, mode=mode, load=load, keys=parsed.keys)
                        count = len(catalog.services)
                        rows.append({"replicas": count, **row})
                        print_row(f"{mode}, {count} replica{'s' if count > 1 else ''}", row)
    return rows


def judge(rows: list[dict[str, Any]]) -> list[Goal]:
    """Two beside one for each mode and number of clients, and nothing lost."""
    goals = []
    for clients, mode in dict.fromkeys((row["clients"], row["mode"]) for row in rows):
        rates = {
            count: statistics.median(
                row["commits_per_s"]
                for row in rows
                if (row["clients"], row["mode"], row["replicas"]) == (clients, mode, count)
            )
            for count in (1, 2)
        }
        label = f"{mode} at {clients}: two replicas / one, commits/s"
        goals.append(Goal(label, rates[2] / max(rates[1], 1e-9), RATIO_MIN, unit=" ×"))
    lost = sum(row["lost"] for row in rows)
    return [*goals, Goal("commits lost, refused or doubled, all points", lost, 0, at_least=False)]


def main() -> int:
    """Measure, print, judge, keep."""
    parser = argparse.ArgumentParser(prog="bench replicas", description=__doc__.partition("\n")[0])
    add_options(parser, clients="64")
    parser.add_argument("--turns", type=int, default=2, help="how often each point is measured")
    parsed = parser.parse_args()
    with fresh_folder() as folder:
        rows = run(parsed, folder)
    goals = judge(rows)
    print_goals(goals)
    found = {
        "seconds": parsed.seconds,
        "auth": parsed.auth,
        "points": rows,
        "goals": [g.record() for g in goals],
    }
    write_result(REPLICAS, found, file=parsed.file)
    if parsed.file is None:
        write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())

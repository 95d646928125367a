"""How the contention benches say what they found: rows, goals, and the options they share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import says
from bench.contention_page import show
from bench.load import Load

MODES = ("chain", "fold")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and the bound that the project has set for it."""

    label: str
    value: float
    bound: float
    at_least: bool = True
    unit: str = ""
    runs: tuple[float, ...] = ()  # of which the value is the median

    @property
    def holds(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def text(self) -> str:
        """One line."""
        sign = "≥" if self.at_least else "≤"
        value, bound = f"{show(self.value)}{self.unit}", f"{sign} {self.bound:,g}{self.unit}"
        spread = f"   of {show(min(self.runs))} to {show(max(self.runs))}" if self.runs else ""
        return f"{self.label:66s}{value:>12s}   goal {bound:>10s}   {says(self.holds)}{spread}"

    def record(self) -> dict[str, Any]:
        """For the JSON copy."""
        return {
            "label": self.label,
            "value": self.value,
            "bound": self.bound,
            "at_least": self.at_least,
            "unit": self.unit,
            "holds": self.holds,
            "runs": list(self.runs),
        }


def add_options(parser: argparse.ArgumentParser, *, clients: str) -> None:
    """Options of every bench that loads one table."""
    parser.add_argument("--clients", default=clients, help="how many clients, separated by commas")
    parser.add_argument("--modes", default=",".join(MODES), help="group modes, separated by commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a point is measured")
    parser.add_argument("--warm-up-s", type=float, default=1.0, help="how long it runs before")
    parser.add_argument("--keys", action="store_true", help="send an Idempotency-Key with each request")
    parser.add_argument("--auth", choices=("on", "off"), default="on", help="whether requests need a token")
    parser.add_argument("--serve", default="", metavar="OPTIONS", help="further options of headgate serve")
    parser.add_argument("--file", type=Path, help="write the JSON here, and leave results and docs alone")


def read_clients(parsed: argparse.Namespace) -> list[int]:
    """The numbers of clients that were asked for."""
    return [int(word) for word in parsed.clients.split(",")]


def read_load(parsed: argparse.Namespace, clients: int) -> Load:
    """The load of one point."""
    return Load(clients, parsed.seconds, parsed.warm_up_s)


def read_serve_options(parsed: argparse.Namespace) -> list[str]:
    """What the service is started with, beside its place and database."""
    return ["--auth", parsed.auth, *shlex.split(parsed.serve)]


def print_heading() -> None:
    """The columns of `print_row`."""
    print(
        f"{'':34s}{'writers':>7s}{'commits/s':>11s}{'p50 ms':>10s}{'p99 ms':>10s}{'lost':>8s}"
        f"{'attempts':>10s}{'per swap':>10s}{'CPU µs':>8s}{'stolen':>8s}",
        flush=True,
    )


def print_row(label: str, row: Row) -> None:
    """One point: of a gate, or of writers without one."""
    lost = f"{row['lost']}" if "lost" in row else f"{row['lost_share']:.0%}"
    gate = ""
    if "attempts_per_commit" in row:
        gate = (
            f"{row['attempts_per_commit']:10.2f}{row['commits_per_swap']:10.1f}{row['service_cpu_us']:8.0f}"
            f"{row['stolen']:8.0%}"
        )
    print(
        f"{label:34s}{row['clients']:7d}{row['commits_per_s']:11,.1f}{row['p50_ms']:10.2f}{row['p99_ms']:10.1f}"
        f"{lost:>8s}{gate}",
        flush=True,
    )
    for status, text in row.get("examples", {}).items():
        print(f"    {row['failed'][status]} × {status}: {text}", flush=True)


def print_goals(goals: Iterable[Goal]) -> None:
    """One line each."""
    print()
    for goal in goals:
        print(goal.text())


def find_row(rows: Iterable[Row], **wanted: object) -> Row | None:
    """The row that has these values; None when that point was not asked for."""
    return next((row for row in rows if all(row.get(k) == v for k, v in wanted.items())), None)

"""Writes the measured parts of docs/contention.md and its plots from bench/results. Measures nothing.

    ./dev bench contention_page

Each part stands between two marks of its own; a result that is not there says how to get it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tools.plot_svg import COLOURS, Chart, Line, draw_chart

LOCAL, OBJECT_STORE, REPLICAS = "contention", "contention_object_store", "replicas"

_ROOT = Path(__file__).resolve().parent.parent
RESULTS, DOCS = _ROOT / "bench" / "results", _ROOT / "docs"
_COMMANDS = {
    LOCAL: "./dev bench contention",
    OBJECT_STORE: "./dev bench contention --put-ms 30 --put-ms-per-mib 20",
    REPLICAS: "./dev bench replicas",
}
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}

Result = dict[str, Any]


def show(value: float) -> str:
    """A figure with as many digits as mean something."""
    return (
        f"{value:,.0f}"
        if value >= 100 or value == int(value)
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )


def write_page(*, results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Bring page and plots up to the results."""
    found = {name: read_result(results, name) for name in _COMMANDS}
    (docs / "images").mkdir(exist_ok=True)
    for name in (LOCAL, OBJECT_STORE):
        if (result := found[name]) is not None:
            (docs / "images" / f"{name}.svg").write_text(plot(result), encoding="utf-8")
    page = docs / "contention.md"
    page.write_text(fill_page(page.read_text(encoding="utf-8"), found), encoding="utf-8")


def read_result(results: Path, name: str) -> Result | None:
    """The figures of a bench, if it has been run."""
    file = results / f"{name}.json"
    if not file.exists():
        return None
    found: Result = json.loads(file.read_text(encoding="utf-8"))
    return found


def fill_page(page: str, found: dict[str, Result | None]) -> str:
    """The page with every marked part made anew."""
    for name, result in found.items():
        page = fill_part(page, name, _part(name, result))
    return page


def fill_part(page: str, name: str, text: str, *, maker: str = "bench/contention_page.py") -> str:
    """The page with another text between the marks of one part; all other parts stay as they are."""
    begin, end = f"<!-- {name}: made by {maker} -->", f"<!-- end of {name} -->"
    before, mark, rest = page.partition(begin)
    after, closing, tail = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"the page has no part between {begin} and {end}; found after it: {after[:40]!r}")
    return f"{before}{begin}\n\n{text}\n\n{end}{tail}"


def plot(result: Result) -> str:
    """Commits a second over writers, of every curve of a run."""
    lines: list[Line] = []
    for colour, (mode, database) in zip(
        (0, 0, 1, 1), ((m, d) for m in ("chain", "fold") for d in DATABASES), strict=True
    ):
        rows = [r for r in result["points"] if (r["mode"], r["database"]) == (mode, database)]
        lines.append(_line(f"{mode}, {DATABASES[database]}", rows, colour, dashed=database == "postgres"))
    for index, label in enumerate(dict.fromkeys(row["peer"] for row in result["peers"])):
        rows = [row for row in result["peers"] if row["peer"] == label]
        lines.append(_line(label, rows, 2 + index, dashed=False))
    title = "Commits to one table, one file each"
    if result["latencies"] is not None:
        title += ", object-store latencies"
    drawn = tuple(line for line in lines if line.points)
    return draw_chart(Chart(title, "writers", "commits/s", drawn))


def _line(label: str, rows: Iterable[Result], colour: int, *, dashed: bool) -> Line:
    # A rate of zero has no place on a logarithmic axis; the table shows it.
    points = tuple((row["clients"], row["commits_per_s"]) for row in rows if row["commits_per_s"] > 0)
    return Line(label, points, COLOURS[colour], dashed)


def _part(name: str, result: Result | None) -> str:
    if result is None:
        return f"Not measured yet: `{_COMMANDS[name]}`."
    machine = result["machine"]
    said = (
        f"`{_COMMANDS[name]}`, {result['seconds']:g} s a point, on {machine['cores']} cores with"
        f" Python {machine['python']}; token checks {result['auth']}."
    )
    images = [] if name == REPLICAS else [f"![commits/s over writers](images/{name}.svg)", ""]
    return "\n".join([said, "", *images, *_TABLES[name](result), "", *goal_rows(result)])


def _point_rows(result: Result) -> list[str]:
    rows = [
        _cells(
            f"{row['mode']}, {DATABASES[row['database']]}",
            row,
            str(row["lost"]),
            f"{row['attempts_per_commit']:.2f}",
        )
        for row in sorted(
            result["points"], key=lambda r: (r["database"] != "sqlite", r["mode"], r["clients"])
        )
    ]
    rows += [_cells(row["peer"], row, f"{row['lost_share']:.0%}", "") for row in result["peers"]]
    floor = result["floor"]
    if floor:
        label = f"floor: {floor['bytes']:,} bytes durable in SQLite"
        rows.append(f"| {label} | 1 | | {floor['p50_ms']:.2f} | {floor['p99_ms']:.1f} | | |")
    bare = result.get("bare")
    if bare:
        rate = show(bare["commits_per_s"])
        rows.append(
            f"| the same write behind HTTP | 1 | {rate} | {bare['p50_ms']:.2f} | {bare['p99_ms']:.1f} | | |"
        )
    return _table("who commits", rows)


def _replica_rows(result: Result) -> list[str]:
    rows = [
        _cells(
            f"{row['mode']}, {row['replicas']} replica{'s' if row['replicas'] > 1 else ''}",
            row,
            str(row["lost"]),
            f"{row['attempts_per_commit']:.2f}",
        )
        for row in result["points"]
    ]
    return _table("mode", rows)


def _cells(label: str, row: Result, lost: str, attempts: str) -> str:
    return (
        f"| {label} | {row['clients']} | {show(row['commits_per_s'])} | {row['p50_ms']:,.2f} | {row['p99_ms']:,.1f}"
        f" | {lost} | {attempts} |"
    )


def _table(first: str, rows: Sequence[str]) -> list[str]:
    return [
        f"| {first} | writers | commits/s | p50 ms | p99 ms | lost | attempts per commit |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
    ]


def goal_rows(result: Result) -> list[str]:
    """The goals of a run as a table."""
    rows = [
        f"| {goal['label']} | {show(goal['value'])}{goal['unit']}{_spread(goal)} | {'≥' if goal['at_least'] else '≤'}"
        f" {goal['bound']:,g}{goal['unit']} | {'yes' if goal['holds'] else '**no**'} |"
        for goal in result["goals"]
    ]
    return ["| goal | measured | bound | reached |", "|---|---:|---:|---|", *rows]


def _spread(goal: Result) -> str:
    """Of a goal that is judged by the median of several runs."""
    runs = goal.get("runs")
    return f" (median of {show(min(runs))} to {show(max(runs))})" if runs else ""


_TABLES: dict[str, Callable[[Result], list[str]]] = {
    LOCAL: _point_rows,
    OBJECT_STORE: _point_rows,
    REPLICAS: _replica_rows,
}


if __name__ == "__main__":
    write_page()

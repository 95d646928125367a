"""Writes the parts of docs/contention.md that are about the library, and their plots, from bench/results.

    ./dev bench library_page

Measures nothing. Each part stands between marks of its own, so that the parts of other benches stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.plot_svg import COLOURS, Chart, Line, draw_chart

from bench.contention_page import DATABASES, DOCS, RESULTS, fill_part, goal_rows, read_result, show

LIBRARY, BACKOFF = "library", "backoff"
MAKER = "bench/library_page.py"

Result = dict[str, Any]
_KINDS = ("data", "manifests", "lists", "metadata")


def write_pages(*, results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Bring the parts and their plots up to the results."""
    page = docs / "contention.md"
    text = page.read_text(encoding="utf-8")
    (docs / "images").mkdir(exist_ok=True)
    for name, image in draw_all(results).items():
        (docs / "images" / f"{name}.svg").write_text(image, encoding="utf-8")
    page.write_text(fill_parts(text, results), encoding="utf-8")


def fill_parts(page: str, results: Path = RESULTS) -> str:
    """The page with both parts made anew."""
    for name, make in _PARTS.items():
        result = read_result(results, name)
        text = f"Not measured yet: `./dev bench {name}`." if result is None else make(result)
        page = fill_part(page, name, text, maker=MAKER)
    return page


def draw_all(results: Path = RESULTS) -> dict[str, str]:
    """The plots of the results that are there, by name."""
    images: dict[str, str] = {}
    if (result := read_result(results, LIBRARY)) is not None:
        images[LIBRARY] = library_plot(result)
    if (result := read_result(results, BACKOFF)) is not None:
        for load in _LOADS:
            if (image := backoff_plot(result, load)) is not None:
                images[f"{BACKOFF}_{load}"] = image
    return images


def count_orphans(row: Mapping[str, Any]) -> int:
    """Files that nobody names."""
    return sum(row["orphans"].values())


def _ran(result: Result, command: str) -> str:
    machine = result["machine"]
    return f"`{command}`, on {machine['cores']} cores with Python {machine['python']}."


# --- the library beside PyIceberg ---------------------------------------------------------------------------


def library_part(result: Result) -> str:
    """Table, plot and goals of `./dev bench library`."""
    rows = [_library_row(row) for row in result["points"]]
    return "\n".join(
        [
            f"{_ran(result, './dev bench library')} {result['seconds']:g} s a race.",
            "",
            "![commits/s over writer processes](images/library.svg)",
            "",
            "| who commits | writers | snapshots before | commits/s | p50 ms | p99 ms | lost | attempts per commit"
            " | files left to nobody |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---|",
            *rows,
            "",
            *goal_rows(result),
        ]
    )


def _library_row(row: Result) -> str:
    left = ", ".join(f"{row['orphans'][kind]} {kind}" for kind in _KINDS if row["orphans"][kind]) or "none"
    lost = f"{row['lost_share']:.0%}" if row["lost_share"] else "0"
    stuck = f" ({row['unfinished']} stopped)" if row["unfinished"] else ""
    times = f"{row['p50_ms']:,.1f} | {row['p99_ms']:,.0f}" if row["count"] else "|"
    return (
        f"| {row['who']}, {DATABASES[row['database']]} | {row['clients']} | {row['history']:,} |"
        f" {show(row['commits_per_s'])} | {times} | {lost}{stuck} |"
        f" {row['attempts_per_commit']:.2f} | {left} |"
    )


def library_plot(result: Result) -> str:
    """Commits a second over writer processes, for tables without a history."""
    lines = []
    for index, who in enumerate(dict.fromkeys(row["who"] for row in result["points"])):
        for database in dict.fromkeys(row["database"] for row in result["points"]):
            points = tuple(
                (row["clients"], row["commits_per_s"])
                for row in result["points"]
                if (row["who"], row["database"], row["history"]) == (who, database, 0)
                and row["commits_per_s"] > 0
            )
            if points:
                label = f"{who}, {DATABASES[database]}"
                lines.append(Line(label, points, COLOURS[index], dashed=database == "postgres"))
    return draw_chart(
        Chart("Appends to one table of a SqlCatalog", "writer processes", "commits/s", tuple(lines))
    )


# --- backoff ------------------------------------------------------------------------------------------------


def backoff_part(result: Result) -> str:
    """Tables of `./dev bench backoff`, for real and in the simulator, beside the seed's figures."""
    parts = [
        f"{_ran(result, './dev bench backoff')} {result['writers']} writers; {result['seconds']:g} s a race for real,"
        f" {result['simulated_seconds']:g} s in the simulator; first wait {result['wait_min_ms']} ms, longest"
        f" {result['wait_max_ms']:,} ms.",
    ]
    for load, said in _LOADS.items():
        rows = [row for row in result["points"] if row["load"] == load]
        if rows:
            parts += ["", said.format(**result), "", f"![{load}](images/{BACKOFF}_{load}.svg)", ""]
            parts += _backoff_table(rows, result["published"])
    return "\n".join(parts)


_LOADS = {
    "apart": "**Apart**: each writer commits after a pause of its own, {think_ms:,.0f} ms in the mean.",
    "together": "**Together**: all writers commit at one tick, every {tick_ms:,.0f} ms.",
}


def _backoff_table(rows: list[Result], published: list[Result]) -> Iterator[str]:
    yield (
        "| waits | where | commits that retried | retries of those | of all | over 4 retries | 8 or more | most"
        " | p50 ms | p99 ms | max ms | given up | commits/s |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for waits in dict.fromkeys(row["waits"] for row in rows):
        for row in published:
            if row["waits"] == waits:
                retries = "" if row["retries"] is None else f"{row['retries']:g}"
                eight = "" if row["eight_or_more"] is None else f"{row['eight_or_more']:.1%}"
                most = "" if row["most"] is None else str(row["most"])
                yield f"| {waits} | seed | {row['retried']:.0%} | {retries} | | | {eight} | {most} | | | | | |"
        for row in rows:
            if row["waits"] == waits:
                yield (
                    f"| {waits} | {row['where']} | {row['retried']:.0%} | {row['retries_per_retried']:.2f} |"
                    f" {row['retries_per_commit']:.2f} | {row['over_four']:.1%} | {row['eight_or_more']:.1%} |"
                    f" {row['most']} | {row['p50_ms']:,.0f} | {row['p99_ms']:,.0f} | {row['max_ms']:,.0f} |"
                    f" {row['given_up']} | {show(row['commits_per_s'])} |"
                )


def backoff_plot(result: Result, load: str) -> str | None:
    """The share of commits that needed at least so many retries; None when nobody retried."""
    names = list(dict.fromkeys(row["waits"] for row in result["points"]))
    lines = []
    for row in result["points"]:
        points = tuple((least, share * 100) for least, share in row["tail"] if share > 0)
        if row["load"] == load and points:
            label = f"{row['waits']}, {row['where']}"
            colour = COLOURS[names.index(row["waits"]) % len(COLOURS)]
            lines.append(Line(label, points, colour, dashed=row["where"] == "simulated"))
    if not lines:
        return None
    title = f"Retries of {result['writers']} writers, {load}"
    return draw_chart(Chart(title, "retries, at least", "% of commits", tuple(lines)))


_PARTS = {LIBRARY: library_part, BACKOFF: backoff_part}


if __name__ == "__main__":
    write_pages()

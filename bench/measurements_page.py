"""Writes the measured parts of docs/measurements.md and its plot from bench/results. Measures nothing.

    ./dev bench measurements_page

Each part stands between two marks of its own; a result that is not there says how to get it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.plot_svg import COLOURS, Chart, Line, draw_chart

from bench.contention_page import DOCS, RESULTS, Result, fill_part, read_result, show

MAKER = "bench/measurements_page.py"
FAMILIES = {"snapshots": "snapshots kept", "manifests": "manifests", "files": "live files"}
_MIB = 1 << 20


def write_page(*, results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Bring page and plot up to the results."""
    page = docs / "measurements.md"
    text = page.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        result = read_result(results, name)
        part = f"Not measured yet: `./dev bench {name}`." if result is None else make(result)
        text = fill_part(text, name, part, maker=MAKER)
        if name == "growth" and result is not None:
            (docs / "images" / "growth.svg").write_text(plot_growth(result), encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def plot_growth(result: Result) -> str:
    """Milliseconds of a commit over what the table holds."""
    lines = [
        Line(label, tuple((p["size"], p["p50_ms"]) for p in result[family]["points"]), COLOURS[at])
        for at, (family, label) in enumerate(FAMILIES.items())
    ]
    sizes = [x for line in lines for x, _ in line.points]
    floor = min(result[family]["floor"]["p50_ms"] for family in FAMILIES)
    lines.append(Line("durable floor", ((min(sizes), floor), (max(sizes), floor)), COLOURS[-1], dashed=True))
    title = "What one commit takes as a table grows"
    return draw_chart(Chart(title, "snapshots, manifests or files", "p50, ms", tuple(lines)))


def _growth(result: Result) -> str:
    rows = []
    for family, label in FAMILIES.items():
        for point in result[family]["points"]:
            rows.append(
                f"| {label} | {point['size']:,} | {point['p50_ms']:.2f} | {point['p99_ms']:.1f} |"
                f" {point['ratio_to_first']:.2f} × | {point['ratio_to_floor']:.1f} × | {point['rss_bytes'] / _MIB:,.0f} |"
            )
    goals = [
        f"| {label}: last / first | {result[family]['last_to_first']:.2f} × | ≤ {result[family]['goal']:g} × |"
        f" {_says(result[family]['reached'])} |"
        for family, label in FAMILIES.items()
    ]
    return "\n".join(
        [
            "![milliseconds of a commit over the size of the table](images/growth.svg)",
            "",
            "| what grows | of them | p50 ms | p99 ms | to the first | to the floor | service MiB |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            *_goal_head(),
            *goals,
        ]
    )


def _window(result: Result) -> str:
    rows = []
    for column, filter_ in (("part", "a partition"), ("value", "a column's bounds")):
        for what in ("validation", "commit"):
            peer = result["pyiceberg"][column][what]["p50_ms"]
            for state, label in (("warm", "warm"), ("cold", "first request after a restart")):
                ours = result["ours"][column][what][state]
                ratio = result["ratios"][f"{column}_{what}_{state}"]
                asked = _says(ratio["reached"]) if what == "validation" else ""
                rows.append(
                    f"| {what} by {filter_}, {label} | {ours['p50_ms']:.1f} | {ours['max_ms']:.1f} | {peer:,.0f} |"
                    f" {ratio['ratio']:,.0f} × | {asked} |"
                )
    start = f"The service started in {result['ours']['start_s']:.2f} s, reading ahead included."
    head = "| what | ours, p50 ms | slowest | PyIceberg, p50 ms | faster | ≥ 500 × |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---|", *rows, "", start])


def _compaction(result: Result) -> str:
    rows = [
        f"| {name.replace('_', ', ')} | {case['commits_per_s']:,.0f} | {case['p50_ms']:.1f} | {case['tail']:.1f} × |"
        f" {_floor_tail(case)} |"
        f" {case['manifests']:,} | {case['ideal']} | {case['plan_ms']:,.0f} |"
        for name, case in result["cases"].items()
    ]
    head = (
        "| table, merging, writers | commits/s | p50 ms | p99 / p50 | the floor's | manifests | ideal |"
        " PyIceberg plans a scan, ms |"
    )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|", *rows])


def _floor_tail(case: Result) -> str:
    """Of durable writes of the same size, right after the commits; a result of before that was measured has none."""
    return f"{case['floor_tail']:.1f} ×" if "floor_tail" in case else ""


def _rebase(result: Result) -> str:
    rows = []
    for name, label in (("plain", "without"), ("rebased", "with `headgate.rebase`")):
        case = result[name]
        audit = "sound" if case["audit"]["sound"] else "**not sound**"
        rows.append(
            f"| {label} | {case['commits']} | {case['lost']} | {case['answers_409']:,} |"
            f" {case['pyiceberg_rows']:,} of {case['expected_rows']:,} | {audit} |"
        )
    head = "| the property | commits tried | lost | 409s that clients saw | rows of acknowledged commits | audit |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---|", *rows])


def _soak(result: Result) -> str:
    kinds = "; ".join(
        f"{kind} {times['count']:,} (p50 {times['p50_ms']:.0f} ms, p99 {times['p99_ms']:.0f} ms)"
        for kind, times in result["kinds"].items()
    )
    refused = ", ".join(f"{count:,} by `{rule}`" for rule, count in result["conflicts"].items())
    return "\n".join(
        [
            f"{result['minutes']:g} minutes, {result['clients']} clients: {result['acknowledged']:,} changes acknowledged"
            f" ({show(result['changes_per_s'])}/s), {result['failures']} failures. {kinds}.",
            "",
            f"Refused with evidence: {refused or 'none'}.",
            "",
            *_soak_goals(result),
        ]
    )


def _soak_goals(result: Result) -> list[str]:
    differ = result["live_missing"] + result["live_unexpected"] + len(result["impossible"])
    rows = [
        f"| memory: mean of the last third / of the middle third | {result['rss_last_to_middle']:.2f} × | ≤ 1.1 × |"
        f" {_says(result['flat'])} |",
        f"| files of {result['live_expected']:,} that differ from what was acknowledged | {differ} | 0 |"
        f" {_says(result['exact'])} |",
        f"| errors of the audit | {result['audit']['errors']} | 0 | {_says(result['audit']['sound'])} |",
    ]
    return [*_goal_head(), *rows]


def _goal_head() -> list[str]:
    return ["| goal | measured | bound | reached |", "|---|---:|---:|---|"]


def _says(holds: bool) -> str:
    return "yes" if holds else "**no**"


PARTS: dict[str, Callable[[Result], str]] = {
    "growth": _growth,
    "window": _window,
    "compaction": _compaction,
    "rebase": _rebase,
    "soak": _soak,
}


if __name__ == "__main__":
    write_page()

"""A chart of lines on two logarithmic axes as SVG text: enough for the docs, without a plotting library.

Nothing is measured or rounded here: the points are drawn where they are, and each says its value when pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

# Okabe and Ito's colours, which the colour-blind can tell apart too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")

_WIDTH, _HEIGHT = 880, 500
_LEFT, _TOP, _RIGHT, _BOTTOM = 74, 56, 260, 58  # room around the plot; the legend is on the right
_LEGEND_STEP = 24
_MINOR_TICKS = (2, 5)  # within a decade, drawn as fainter lines


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the chart; its points are (x, y), all above zero."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. Every x of a point gets a tick."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis: values from `low` to `high` between two places of the picture."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def draw_chart(chart: Chart) -> str:
    """The whole SVG document."""
    points = [point for line in chart.lines for point in line.points]
    if not points or min(min(point) for point in points) <= 0:
        raise ValueError("a logarithmic chart needs points, all of them above zero")
    xs = sorted({x for x, _ in points})
    low, high = _decades([y for _, y in points])
    across = _Scale(xs[0], max(xs[-1], xs[0] * 2), _LEFT + 14, _WIDTH - _RIGHT - 14)
    up = _Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label={quoteattr(chart.title)} font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 28, chart.title, size=17, anchor="start", weight="600"),
        *_draw_grid(chart, xs, across, up),
    ]
    for index, line in enumerate(chart.lines):
        parts += _draw_line(line, across, up)
        parts += _draw_key(line, _TOP + 12 + index * _LEGEND_STEP)
    return "\n".join([*parts, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around the values; at least one decade."""
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _draw_grid(chart: Chart, xs: Sequence[float], across: _Scale, up: _Scale) -> Iterator[str]:
    left, right = _LEFT, _WIDTH - _RIGHT
    decade = up.low
    while decade <= up.high * 1.001:
        y = up.place(decade)
        yield _stroke((left, y), (right, y), "#cfcfcf")
        yield _text(left - 8, y + 4, _number(decade), anchor="end")
        for minor in _MINOR_TICKS:
            if decade * minor < up.high:
                y = up.place(decade * minor)
                yield _stroke((left, y), (right, y), "#eeeeee")
        decade *= 10
    for x in xs:
        yield _stroke((across.place(x), up.end), (across.place(x), up.start), "#e4e4e4")
        yield _text(across.place(x), up.start + 20, _number(x))
    yield _stroke((left, up.start), (right, up.start), "#444444")
    yield _stroke((left, up.start), (left, up.end), "#444444")
    yield _text((left + right) / 2, _HEIGHT - 14, chart.x_label)
    middle = (up.start + up.end) / 2
    yield _text(20, middle, chart.y_label, turned=True)


def _draw_line(line: Line, across: _Scale, up: _Scale) -> Iterator[str]:
    places = [(across.place(x), up.place(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield (
        f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="2.2"'
        f' stroke-linejoin="round"{_dash(line)}/>'
    )
    for (x, y), (x_value, y_value) in zip(places, line.points, strict=True):
        tip = escape(f"{line.label}: {y_value:,.1f} at {_number(x_value)}")
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{line.colour}"><title>{tip}</title></circle>'


def _draw_key(line: Line, y: float) -> Iterator[str]:
    x = _WIDTH - _RIGHT + 16
    yield (
        f'<line x1="{x}" y1="{y:.1f}" x2="{x + 28}" y2="{y:.1f}" stroke="{line.colour}" stroke-width="2.2"'
        f"{_dash(line)}/>"
    )
    yield f'<circle cx="{x + 14}" cy="{y:.1f}" r="3.6" fill="{line.colour}"/>'
    yield _text(x + 36, y + 4, line.label, anchor="start")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _dash(line: Line) -> str:
    return ' stroke-dasharray="6 4"' if line.dashed else ""


def _stroke(start: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    anchor: str = "middle",
    weight: str = "400",
    turned: bool = False,
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="#222222"'
        f' text-anchor="{anchor}"{turn}>{escape(text)}</text>'
    )

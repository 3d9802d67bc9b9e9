"""Error against cost as one SVG file that needs nothing else; light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720.0, 440.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 560.0, 58.0, 390.0
ROW = 18.0
COLOURS = (
    "#3b6fd4", "#d9622b", "#2f9e5b", "#b23a8e", "#8a6d00", "#15808f", "#7a51c7", "#c43c3c", "#5d7a1f", "#7d6a5a",
)  # fmt: skip
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222}.soft{fill:#667}.grid{stroke:#dde}.axis{stroke:#889}
.paper{fill:#fff}.mark{fill-opacity:.8}.line{fill:none;stroke-opacity:.6;stroke-width:1.5}
@media(prefers-color-scheme:dark){text{fill:#eee}.soft{fill:#aab}.grid{stroke:#334}.paper{fill:#15171c}}
"""


@dataclass(frozen=True)
class Point:
    """A network: which series it belongs to, what it costs, its error, and how far that varies.

    Attributes:
        series: Points of one series share a colour and are joined.
        x: Per cent of the dense network's multiply-adds.
        y: Error, or what it gained.
        spread: Half the length of the whisker.
        label: Words beside the point.
    """

    series: str
    x: float
    y: float
    spread: float = 0.0
    label: str = ""


def tradeoff_svg(title: str, points: Sequence[Point], y_label: str) -> str:
    """The figure as text; without any point it says so."""
    series = list(dict.fromkeys(point.series for point in points))
    room = max((point.spread for point in points), default=0.0)
    x = _Scale([p.x for p in points] + [100.0], LEFT, RIGHT)
    y = _Scale([p.y - room for p in points] + [p.y + room for p in points], BOTTOM, TOP)
    height = max(HEIGHT, TOP + ROW * (len(series) + 1))
    body = [f'<rect class="paper" width="{WIDTH:g}" height="{height:g}"/>', _text(8, 20, title)]
    body += _axes(x, y, y_label)
    taken: list[tuple[float, float]] = []
    for place, name in enumerate(series):
        own = sorted((p for p in points if p.series == name), key=lambda p: p.x)
        body += _draw(own, x, y, COLOURS[place % len(COLOURS)], place // len(COLOURS), taken)
        body += _legend(name, place)
    if not points:
        body.append(_text((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, "no run is finished", "soft", "middle"))
    told = "; ".join(f"{p.series} {p.label}: {p.y:.2f} at {p.x:.1f} % of the multiply-adds" for p in points)
    about = f"<title>{_safe(title)}</title><desc>{_safe(told)}</desc>"
    box = f'viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {box}>'
    return f"{head}{about}<style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"


class _Scale:
    """From values to places, with some room around them."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = 0.05 * ((high - low) or abs(high) or 1.0)
        self.low, self.high, self.start, self.end = low - room, high + room, start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def marks(self) -> list[float]:
        """Round numbers in the range."""
        rough = (self.high - self.low) / 5
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough * 0.999)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(number * step, 10) for number in range(first, last + 1)]


def _axes(x: _Scale, y: _Scale, y_label: str) -> list[str]:
    parts = []
    for value in y.marks():
        parts.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{RIGHT}"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:g}", "soft", "end"))
    for value in x.marks():
        parts.append(f'<path class="axis" d="M{x(value):.1f} {BOTTOM}v5"/>')
        parts.append(_text(x(value), BOTTOM + 20, f"{value:g}", "soft", "middle"))
    parts.append(f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    parts.append(_text(RIGHT, BOTTOM + 40, "multiply-adds, % of the dense network", "soft", "end"))
    return [*parts, _text(8, TOP - 14, y_label, "soft")]


def _draw(
    own: Sequence[Point], x: _Scale, y: _Scale, colour: str, shape: int, taken: list[tuple[float, float]]
) -> list[str]:
    parts = []
    if len(own) > 1:
        way = "L".join(f"{x(p.x):.1f} {y(p.y):.1f}" for p in own)
        parts.append(f'<path class="line" stroke="{colour}" d="M{way}"/>')
    for p in own:
        if p.spread:
            ends = (y(p.y - p.spread), y(p.y + p.spread))
            parts.append(f'<path class="line" stroke="{colour}" d="M{x(p.x):.1f} {ends[0]:.1f}V{ends[1]:.1f}"/>')
        words = f"{p.series} {p.label}: {p.y:.2f} at {p.x:.1f} %"
        parts.append(_marker(x(p.x), y(p.y), colour, shape, words))
        if p.label:
            parts.append(_label(p.label, x(p.x), y(p.y), taken))
    return parts


def _marker(x: float, y: float, colour: str, shape: int, words: str) -> str:
    about = f"<title>{_safe(words)}</title>"
    if shape % 2:  # more series than colours: squares
        return f'<rect class="mark" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}">{about}</rect>'
    return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">{about}</circle>'


def _label(words: str, x: float, y: float, taken: list[tuple[float, float]]) -> str:
    """Words beside a point, moved down while other words are there."""
    left = x > (LEFT + RIGHT) / 2
    while any(abs(x - other_x) < 9 * len(words) and abs(y - other_y) < 13 for other_x, other_y in taken):
        y += 13
    taken.append((x, y))
    return _text(x - 9 if left else x + 9, y + 4, words, "soft", "end" if left else "start")


def _legend(name: str, place: int) -> list[str]:
    y = TOP + ROW * place
    return [
        _marker(RIGHT + 20, y, COLOURS[place % len(COLOURS)], place // len(COLOURS), name),
        _text(RIGHT + 32, y + 4, name),
    ]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{_safe(words)}</text>'


def _safe(words: str) -> str:
    return html.escape(words, quote=True)

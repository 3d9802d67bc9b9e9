"""SVG by hand: axes, lines, bands, dots and labels, as text that needs neither script nor network.

Lengths are in units of a picture ``WIDTH`` units wide. On a phone the page shows it at two thirds and its letters a
third larger (``page.css``), so everything is laid out for the larger letters.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

WIDTH = 540.0
LETTER = 10.4  # an average letter on a phone
ROW = 22.0
MARGIN = 12  # around a picture that is a file of its own
COLOURS = 8


@dataclass(frozen=True)
class Axis:
    """A range of numbers and how to write them.

    Attributes:
        label: What it is, with its unit.
        low: Where it begins.
        high: Where it ends.
        ticks: Marked places and their texts; chosen by themselves if not given.
        log: Logarithmic.
        whole: Only whole numbers are marked.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] | None = None
    log: bool = False
    whole: bool = False

    def marks(self, most: int = 5) -> list[tuple[float, str]]:
        """The places to mark."""
        if self.ticks is not None:
            return list(self.ticks)
        if self.log:
            return [(value, number(value)) for value in nice_log(self.low, self.high, most)]
        values = nice(self.low, self.high, most)
        return [(value, number(value)) for value in values if not self.whole or value == round(value)]

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log10(max(v, 1e-30)) for v in (low, high, value))
        return min(max((value - low) / (high - low or 1.0), 0.0), 1.0)


def nice(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two numbers."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * m for m in (1, 2, 5, 10) if base * m >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def nice_log(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two numbers, evenly spread over their orders of magnitude."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**d for d in decades for m in digits if low <= m * 10.0**d * (1 + 1e-9) <= high * (1 + 2e-9)]
        if len(values) <= most + 1:
            return [float(f"{value:.6g}") for value in values]
    step = math.ceil(len(values) / most)
    return [float(f"{value:.6g}") for value in values[::step]]


def span(label: str, values: Sequence[float], *, zero: bool = False, log: bool = False) -> Axis:
    """An axis that holds all values with a little room."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if log:
        return Axis(label, low / 1.1, high * 1.1 if high > low else low * 10, log=True)
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return Axis(label, 0.0 if zero and low >= 0 else low - room, high + room)


def number(value: float) -> str:
    """A number as short as it can be said: 0.05, 1,200, 3.1 M, 2e-05."""
    size = abs(value)
    for limit, unit in ((1e9, " G"), (1e6, " M")):
        if size >= limit:
            return f"{value / limit:.3g}{unit}"
    if size >= 1000:
        return f"{value:,.0f}"
    return "0" if size == 0 else f"{value:.3g}"


def escape(text: object) -> str:
    """Text for inside a tag or an attribute."""
    return html.escape(str(text), quote=True)


def colour(place: int) -> str:
    """The class of the colour of a run or a series."""
    return f"c{place % COLOURS}"


def hue(place: int, count: int) -> str:
    """A colour on the way from blue to red, for many lines with an order."""
    return f"hsl({220 - 210 * place / max(count - 1, 1):.0f} 65% 52%)"


def svg(alt: str, height: float, body: Sequence[str], width: float = WIDTH) -> str:
    """A picture with its text alternative."""
    box = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg class="chart" role="img" aria-label="{escape(alt)}" {box}>{"".join(body)}</svg>'


def standalone(picture: str) -> str:
    """A picture as a file of its own, with its colours and a margin."""
    style = resources.files("pcshrink.report").joinpath("templates/figures.css").read_text(encoding="utf-8")
    frame = re.match(r'<svg (.*?) viewBox="0 0 (\S+) (\S+)" width="\S+" height="\S+">', picture)
    assert frame is not None
    width, height = float(frame[2]) + 2 * MARGIN, float(frame[3]) + 2 * MARGIN
    place = f'x="-{MARGIN}" y="-{MARGIN}" width="{width:g}" height="{height:g}"'
    view = f'viewBox="-{MARGIN} -{MARGIN} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {frame[1]} {view}><style>{style}</style>'
    return f'{head}<rect class="paper" {place}/>{picture[frame.end() :]}\n'


def text(x: float, y: float, words: object, kind: str = "", anchor: str = "start") -> str:
    """Some words; ``y`` is their base line."""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}"{side}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A filled rectangle; ``title`` is shown under a pointer."""
    shown = f"><title>{escape(title)}</title></rect>" if title else "/>"
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"{shown}'


def legend(entries: Sequence[tuple[str, str]], width: float = WIDTH) -> tuple[list[str], float]:
    """Coloured names in rows, and the height they take: (name, colour class or CSS colour)."""
    parts, x, y = [], 0.0, 0.0
    for name, kind in entries:
        wide = 34 + LETTER * len(name)
        if x and x + wide > width:
            x, y = 0.0, y + ROW
        paint = f'class="line {kind}"' if not kind.startswith("hsl") else f'class="line" style="stroke:{kind}"'
        parts += [f'<path {paint} d="M{x:.1f} {y + 11:.1f}h20"/>', text(x + 26, y + 16, name)]
        x += wide
    return parts, y + ROW + 4 if entries else 0.0

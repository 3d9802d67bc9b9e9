"""A plot with two axes, and names beside its points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pcshrink.report.draw import LETTER, ROW, WIDTH, Axis, box, escape, legend, svg, text


class Chart:
    """A plot with two axes, filled by calls and then asked for its text.

    Args:
        alt: What it shows, in a sentence or two, for those who cannot see it.
        x: The horizontal axis.
        y: The vertical axis.
        names: Legend: (name, colour class or CSS colour).
        phases: Parts of the horizontal axis: name, start, end.
        height: Of the plot itself.
    """

    def __init__(
        self, alt: str, x: Axis, y: Axis, names: Sequence[tuple[str, str]] = (),
        phases: Sequence[tuple[str, float, float]] = (), height: float = 220.0,
    ) -> None:  # fmt: skip
        self.alt, self.x, self.y = alt, x, y
        self.body, above = legend(names)
        marks = y.marks()
        self.left = max([LETTER * len(words) for _, words in marks] + [20.0]) + 8
        self.right, self.top = WIDTH - 14, above + ROW + (ROW if phases else 4)
        self.bottom = self.top + height
        self.body.append(text(0, above + 16, y.label, "soft"))
        self.front: list[str] = []  # drawn last
        for place, (name, start, end) in enumerate(phases):
            self._phase(name, max(start, x.low), min(end, x.high), shaded=place % 2 == 0)
        for value, words in marks:
            self.body.append(self.rule(self.left, self.at_y(value), self.right, self.at_y(value), "grid"))
            self.body.append(text(self.left - 8, self.at_y(value) + 5, words, "soft", "end"))
        for value, words in x.marks():
            self.body.append(self.rule(self.at_x(value), self.bottom, self.at_x(value), self.bottom + 5, "axis"))
            self.body.append(text(self.at_x(value), self.bottom + 21, words, "soft", "middle"))
        self.body.append(self.rule(self.left, self.bottom, self.right, self.bottom, "axis"))
        self.body.append(text(self.right, self.bottom + 42, x.label, "soft", "end"))

    def at_x(self, value: float) -> float:
        """Where a value of the horizontal axis is drawn."""
        return self.left + self.x.share(value) * (self.right - self.left)

    def at_y(self, value: float) -> float:
        """Where a value of the vertical axis is drawn."""
        return self.bottom - self.y.share(value) * (self.bottom - self.top)

    @staticmethod
    def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
        """A straight line."""
        return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str, title: str = "") -> None:
        """A line through points; a value that is no number interrupts it."""
        parts, pen = [], "M"
        for x, y in zip(xs, ys, strict=True):
            if not math.isfinite(y):
                pen = "M"
                continue
            parts.append(f"{pen}{self.at_x(x):.1f} {self.at_y(y):.1f}")
            pen = "L"
        paint = f'class="line" style="stroke:{kind}"' if kind.startswith("hsl") else f'class="line {kind}"'
        name = f"<title>{escape(title)}</title>" if title else ""
        self.front.append(f'<path {paint} d="{"".join(parts)}">{name}</path>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        """The area between two lines."""
        places = [i for i in range(len(xs)) if math.isfinite(low[i]) and math.isfinite(high[i])]
        forth = [f"{self.at_x(xs[i]):.1f} {self.at_y(high[i]):.1f}" for i in places]
        back = [f"{self.at_x(xs[i]):.1f} {self.at_y(low[i]):.1f}" for i in reversed(places)]
        if places:
            self.body.append(f'<path class="area {kind}" d="M{"L".join(forth + back)}Z"/>')

    def _phase(self, name: str, low: float, high: float, *, shaded: bool) -> None:
        start, end = self.at_x(low), self.at_x(high)
        if shaded and high > low:
            self.body.append(box(start, self.top, end - start, self.bottom - self.top, "phase"))
        if LETTER * len(name) < end - start:
            self.body.append(text((start + end) / 2, self.top - 6, name, "soft small", "middle"))

    def mark(self, value: float, words: str) -> None:
        """A vertical line with some words at its foot."""
        x = self.at_x(value)
        left = x - LETTER * len(words) - 6 > self.left
        self.front.append(self.rule(x, self.top, x, self.bottom, "mark"))
        self.front.append(text(x - 5 if left else x + 5, self.bottom - 7, words, "small", "end" if left else "start"))

    def dot(self, x: float, y: float, kind: str, title: str = "", *, hollow: bool = False, size: float = 5) -> None:
        """A point."""
        shape = f'class="{"ring" if hollow else "dot"} {kind}" cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}"'
        self.front.append(f'<circle {shape} r="{size:g}"><title>{escape(title)}</title></circle>')

    def whisker(self, x: float, low: float, high: float, kind: str) -> None:
        """An interval of the vertical axis."""
        place, tip = self.at_x(x), 4
        ends = "".join(f"M{place - tip:.1f} {self.at_y(v):.1f}h{2 * tip}" for v in (low, high))
        self.front.append(
            f'<path class="thin {kind}" d="M{place:.1f} {self.at_y(low):.1f}L{place:.1f} {self.at_y(high):.1f}{ends}"/>'
        )

    def svg(self) -> str:
        """The whole picture."""
        return svg(self.alt, self.bottom + 48, [*self.body, *self.front])


class Labels:
    """Names beside points, none upon another."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.taken: list[tuple[float, float, float, float]] = []

    def block(self, x: float, low: float, high: float, reach: float = 6) -> None:
        """Keep a point, or an interval of the vertical axis, free."""
        place, top, bottom = self.chart.at_x(x), self.chart.at_y(high), self.chart.at_y(low)
        self.taken.append((place - reach, top - reach, place + reach, bottom + reach))

    def add(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Put a name where there is room: right, left, a little lower or higher, further away."""
        at_x, at_y, wide = self.chart.at_x(x), self.chart.at_y(y), LETTER * len(words)
        steps = [sign * 15.0 * n for n in range(8) for sign in ((1, -1) if n else (1,))]
        place = None
        for side, step in ((side, step) for gap in (9, 20) for step in steps for side in (gap, -gap)):
            start = at_x + side if side > 0 else at_x + side - wide
            area = (start, at_y + step - 8, start + wide, at_y + step + 8)
            if start < 0 or area[2] > WIDTH or area[1] < self.chart.top - 10 or area[3] > self.chart.bottom:
                continue
            free = not any(_meet(area, other) for other in self.taken)
            if free or place is None:
                place = side, step, area
            if free:
                break
        if place is None:
            return  # longer than the picture is wide; the point's own title says it
        side, step, area = place
        self.taken.append(area)
        anchor = "start" if side > 0 else "end"
        if abs(step) > 20:  # far from its point, so a line leads back
            self.chart.front.append(self.chart.rule(at_x, at_y, at_x + side * 0.9, at_y + step, "axis"))
        self.chart.front.append(text(at_x + side, at_y + step + 5, words, f"{kind} small".strip(), anchor))


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

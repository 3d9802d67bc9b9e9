"""A network as a picture: its layers from top to bottom, and beside them which channels leave together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcshrink.report.bars import short
from pcshrink.report.draw import LETTER, WIDTH, box, colour, escape, svg, text

HEIGHT = 22.0
WIDEST_LANE = 20.0
MOST_FOR_LANES = 170.0
LONGEST_NAME = 21


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer: its name, and its multiply-adds before and after, None where the latter are not known."""

    name: str
    before: float
    after: float | None


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Channels that leave together: who writes them, who reads them."""

    name: str
    writers: Sequence[str]
    readers: Sequence[str]


def lane_numbers(spans: Sequence[tuple[int, int]]) -> list[int]:
    """A lane for each span of rows, so that no two spans of a lane overlap; few lanes, the first ones first."""
    ends: list[int] = []
    lanes = [0] * len(spans)
    for place in sorted(range(len(spans)), key=lambda p: (spans[p][0], -spans[p][1])):
        start, end = spans[place]
        lane = next((n for n, last in enumerate(ends) if last < start), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane], lanes[place] = end, lane
    return lanes


def network_picture(layers: Sequence[Layer], groups: Sequence[Channels], stays: Mapping[str, str]) -> str:
    """Layers as rows, groups as lines with a dot at each writer and a ring at each reader, and every layer's cost."""
    row = {layer.name: place for place, layer in enumerate(layers)}
    drawn, spans = [], []
    for number, group in enumerate(groups):
        places = [row[name] for name in (*group.writers, *group.readers) if name in row]
        if places:
            drawn.append((number, group))
            spans.append((min(places), max(places)))
    lanes = lane_numbers(spans)
    left = LETTER * max([len(short(layer.name, LONGEST_NAME)) for layer in layers] + [5]) + 24
    pitch = min(WIDEST_LANE, MOST_FOR_LANES / (max(lanes, default=0) + 1))
    bars = left + pitch * (max(lanes, default=0) + 1) + 10
    body = [text(14, 15, "layer", "soft"), text(WIDTH, 15, "multiply-adds", "soft", "end")]
    longest = max([layer.before for layer in layers] + [1.0])
    for place, layer in enumerate(layers):
        body += _row(layer, HEIGHT * (place + 1), bars, (WIDTH - bars) / longest, stays.get(layer.name))
    for (number, group), span, lane in zip(drawn, spans, lanes, strict=True):
        x, kind = left + pitch * (lane + 0.5), colour(number)
        body += _lane(group, number, kind, x, [HEIGHT * (p + 1.5) for p in span], row)
    return svg(_alt(layers, groups, stays), HEIGHT * (len(layers) + 1) + 6, body)


def _row(layer: Layer, y: float, bars: float, scale: float, stays: str | None) -> list[str]:
    name = short(layer.name, LONGEST_NAME)
    left = f" → {layer.after:,.0f}" if layer.after is not None else ""
    told = f"{layer.name}: {layer.before:,.0f}{left} multiply-adds"
    parts = [
        f'<path class="grid" d="M14 {y + HEIGHT / 2:.1f}H{bars:.1f}"/>',
        f'<rect class="paper" x="12" y="{y:.1f}" width="{LETTER * len(name):.0f}" height="20"/>',
        text(14, y + 16, name),
        box(bars, y + 4, layer.before * scale, HEIGHT - 8, "before", told),
    ]
    if layer.after is not None:
        parts.append(box(bars, y + 7, layer.after * scale, HEIGHT - 14, "fill ref", told))
    return [box(0, y + 6, 9, 9, "stay", f"{layer.name} stays: {stays}"), *parts] if stays else parts


def _lane(
    group: Channels, number: int, kind: str, x: float, ends: Sequence[float], row: Mapping[str, int]
) -> list[str]:
    title = f"<title>group {number + 1}, {escape(group.name)}</title>"
    parts = [f'<path class="lane {kind}" d="M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}">{title}</path>']
    for names, shape, size in ((group.readers, "ring", 4.5), (group.writers, "dot", 5.5)):
        places = [HEIGHT * (row[name] + 1.5) for name in names if name in row]
        parts += [
            f'<circle class="{shape} {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}">{title}</circle>' for y in places
        ]
    return parts


def _alt(layers: Sequence[Layer], groups: Sequence[Channels], stays: Mapping[str, str]) -> str:
    told = [f"group {n + 1}: written by {', '.join(g.writers)}" for n, g in enumerate(groups[:40])]
    more = f"; and {len(groups) - 40} more" if len(groups) > 40 else ""
    return f"{len(layers)} layers, {len(groups)} groups, {len(stays)} layers stay. {'; '.join(told)}{more}."

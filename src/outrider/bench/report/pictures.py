"""The pictures of a report, one panel each: small, so that a phone stacks them and a desk sees them side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from outrider.bench.document import Interval, Quantiles, Speedup, StepCost
from outrider.bench.report.content import Panel
from outrider.bench.report.look import BAD, GOOD, MUTED, PAPER, TEXT, Look
from outrider.bench.report.svg import draw, inline
from outrider.bench.report.text import clean, usd
from outrider.bench.steps import earned

SIZE = (312.0, 216.0)
SMALL = (250.0, 172.0)
Looks = Mapping[str, Look]


@dataclass(frozen=True, slots=True)
class Bar:
    """One cost: `arm` is empty for a commercial model; a gap stands between groups."""

    label: str
    value: float
    group: str
    arm: str = ""


def panel(
    name: str, title: str, description: str, paint: Callable[[Axes], None], size: tuple[float, float] = SIZE
) -> Panel:
    """The finished picture; `name` must be unique in the page."""
    return Panel(name, clean(title), inline(draw(size, paint), name, clean(title), clean(description)))


def speedup(axes: Axes, points: Sequence[Speedup], looks: Looks, all_points: Sequence[Speedup]) -> None:
    """Ratio over measured running requests (log2), 95 % intervals, the 1.0 line; hollow markers are not steady.

    `all_points`: those of all panels, which share their axes.
    """
    axes.axhline(1.0, color=TEXT.light, linewidth=1.1, zorder=1.5)
    for arm, look in looks.items():
        mine = sorted((one for one in points if one.arm == arm), key=lambda one: one.running)
        if not mine:
            continue
        x, y = [one.running for one in mine], [one.ratio.value for one in mine]
        axes.plot(x, y, color=look.ink.light, linestyle=look.dash, zorder=3)
        for one in mine:
            _whisker(axes, one.running, one.ratio, look)
            fill = look.ink.light if one.steady else PAPER.light
            edge = PAPER.light if one.steady else look.ink.light
            axes.plot(
                [one.running],
                [one.ratio.value],
                marker=look.marker,
                color=fill,
                markeredgecolor=edge,
                zorder=4,
            )
    _running_axis(axes, [one.running for one in all_points])
    # two trials can give an interval of a thousand: the panel shows the ratios, the table the whole interval
    values = [one.ratio.value for one in all_points]
    lows = [one.ratio.value if one.ratio.low is None else one.ratio.low for one in all_points]
    highs = [one.ratio.value if one.ratio.high is None else one.ratio.high for one in all_points]
    low = max(min([*lows, 1.0]), 0.5 * min([*values, 1.0]))
    high = min(max([*highs, 1.0]), 1.5 * max([*values, 1.0]))
    axes.set_ylim(max(0.0, low - 0.12 * (high - low) - 0.05), high + 0.08 * (high - low) + 0.05)
    axes.set_ylabel("speed-up (× baseline)")


def step_map(
    axes: Axes,
    points: Sequence[StepCost],
    looks: Looks,
    all_points: Sequence[StepCost],
    ringed: Collection[int] = (),
) -> None:
    """One arm: tokens a step needs (T ratio, line) against those it made (dashed); green where they suffice, red where not.

    `all_points`: those of all panels, which share their axes. `ringed`: the loads at which the measured speed-up says otherwise.
    """
    mine = sorted(points, key=lambda one: one.running)
    look = looks[mine[0].arm]
    x, need = [one.running for one in mine], [one.break_even_length for one in mine]
    axes.plot(x, need, color=TEXT.light, marker="o", markersize=4, label="needed")
    had = [(one.running, made, one.break_even_length) for one in mine if (made := earned(one)) is not None]
    if had:
        hx, hy, _ = (list(column) for column in zip(*had, strict=True))
        axes.plot(hx, hy, color=look.ink.light, marker=look.marker, linestyle="--", label="measured")
        fx, fy, fn = (list(column) for column in zip(*with_crossings(had), strict=True))
        pays = [y >= n for y, n in zip(fy, fn, strict=True)]
        axes.fill_between(fx, fy, fn, where=pays, color=GOOD.light, alpha=0.18, linewidth=0)
        lost = [y <= n for y, n in zip(fy, fn, strict=True)]
        axes.fill_between(fx, fy, fn, where=lost, color=BAD.light, alpha=0.18, linewidth=0)
    for one in mine:
        if one.concurrency in ringed and (made := earned(one)) is not None:
            at = ([one.running], [made])
            axes.plot(*at, marker="o", markersize=12, fillstyle="none", markeredgecolor=TEXT.light)
    _running_axis(axes, [one.running for one in all_points])
    tallest = [max(one.break_even_length, earned(one) or 0.0) for one in all_points]
    axes.set_ylim(0.9, 1.06 * max([*tallest, 1.0]))
    axes.set_ylabel("tokens per step")


def with_crossings(points: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Points (running requests, made, needed) with those added where the two lines meet as they are drawn: straight in log x."""
    found = [points[0]]
    for (x0, made0, need0), (x1, made1, need1) in pairwise(points):
        before, after = made0 - need0, made1 - need1
        if before * after < 0:
            share = before / (before - after)
            level = made0 + share * (made1 - made0)
            found.append((x0 * (x1 / x0) ** share, level, level))
        found.append((x1, made1, need1))
    return found


def positions(axes: Axes, rates: Mapping[str, Sequence[float]], looks: Looks) -> None:
    """Acceptance rate of each draft position, one line an arm, 0 to 1."""
    longest = max(len(values) for values in rates.values())
    for arm, values in rates.items():
        look = looks[arm]
        at = list(range(1, len(values) + 1))
        axes.plot(
            at,
            list(values),
            color=look.ink.light,
            marker=look.marker,
            linestyle=look.dash,
            clip_on=False,
            zorder=3,
        )
    axes.set_ylim(0, 1)
    axes.set_xlim(0.7, longest + 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    axes.set_xlabel("draft position")
    axes.set_ylabel("accepted (0–1)")


def latency(axes: Axes, curves: Mapping[str, Quantiles], looks: Looks, scale: float | None) -> None:
    """Percentile 1 to 99 against the time, one curve an arm; markers at p50 and, where n allows, p95 and p99.

    A curve ends at the last percentile that n allows: 99, 95 or, below 72 values, 90.

    `scale`: None for milliseconds, or the time that counts as 1 (the baseline's p50).
    """
    unit = scale or 1.0
    values: list[float] = []
    for arm, quantiles in curves.items():
        look = looks[arm]
        known = quantiles.curve[
            : 99 if quantiles.p99 is not None else 95 if quantiles.p95 is not None else 90
        ]
        marks = [(50, quantiles.p50), (95, quantiles.p95), (99, quantiles.p99)]
        shown = [(place, value / unit) for place, value in marks if value is not None]
        if known:
            step = [place for place in range(1, len(known) + 1) if place % 3 == 1 or place >= 94]
            ys = [known[place - 1] / unit for place in step]
            axes.plot(step, ys, color=look.ink.light, linestyle=look.dash, linewidth=1.4)
            values += ys
        axes.plot(
            *zip(*shown, strict=True),
            color=look.ink.light,
            marker=look.marker,
            linestyle="none",
            markersize=4.5,
        )
        values += [value for _, value in shown]
    axes.set_xlim(0, 101)
    axes.xaxis.set_major_locator(FixedLocator([1, 25, 50, 75, 99]))
    _time_axis(axes, [value for value in values if value > 0])
    axes.set_xlabel("percentile")
    axes.set_ylabel("× baseline's p50" if scale else "ms")


def cost(axes: Axes, bars: Sequence[Bar], looks: Looks) -> None:
    """Horizontal bars from zero, dearest label at its end; commercial models are hatched."""
    top = max(bar.value for bar in bars)
    places: list[float] = []
    for at, bar in enumerate(bars):
        new = at > 0 and bar.group != bars[at - 1].group
        place = places[-1] + (1.6 if new else 1) if places else 0.0
        places.append(place)
        ink = looks[bar.arm].ink if bar.arm else MUTED
        hatch = None if bar.arm else "////"
        face = ink.light if bar.arm else "none"
        axes.barh(place, bar.value, height=0.68, color=face, edgecolor=ink.light, linewidth=0.8, hatch=hatch)
        axes.text(bar.value + 0.012 * top, place, usd(bar.value), va="center", fontsize=8)
    axes.set_yticks(places, [clean(bar.label) for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, top * 1.13)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=TEXT.light)
    axes.set_xlabel("USD per 1M output tokens")


def swatch(look: Look, name: str) -> str:
    """The arm's marker on a piece of its line, as an SVG symbol for legends and tables."""

    def paint(axes: Axes) -> None:
        axes.set_axis_off()
        line = Line2D([0.08, 0.92], [0.5, 0.5], color=look.ink.light, linestyle=look.dash, linewidth=2)
        axes.add_line(line)
        axes.plot([0.5], [0.5], marker=look.marker, color=look.ink.light, markersize=7)
        axes.set(xlim=(0, 1), ylim=(0, 1))

    svg = inline(draw((26, 12), paint), name, "", "")
    start = svg.index("<desc")
    body = svg[svg.index("</desc>", start) + len("</desc>") : -len("</svg>")]
    view = svg.split('viewBox="')[1].split('"')[0]
    return f'<symbol id="{name}" viewBox="{view}">{body}</symbol>'


def _whisker(axes: Axes, x: float, interval: Interval, look: Look) -> None:
    if interval.low is not None and interval.high is not None:
        below, above = interval.value - interval.low, interval.high - interval.value
        axes.errorbar(
            [x],
            [interval.value],
            yerr=[[max(below, 0.0)], [max(above, 0.0)]],
            color=look.ink.light,
            capsize=2.5,
            linewidth=1,
        )


def _running_axis(axes: Axes, values: Sequence[float]) -> None:
    """log2 with a tick at every power of two; a single point gets room on both sides."""
    low = math.floor(math.log2(max(min(values), 0.25)) + 0.3)
    high = max(math.ceil(math.log2(max(values)) - 0.15), low + 1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(low, high + 1)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(2 ** (low - 0.25), min(values) * 0.87), max(2 ** (high + 0.25), max(values) * 1.15))
    axes.set_xlabel("measured running requests")


def _time_axis(axes: Axes, values: Sequence[float]) -> None:
    """Logarithmic where the values span more than a factor of six, from zero otherwise."""
    if values and max(values) / min(values) > 6:
        axes.set_yscale("log")
        low, high = min(values) * 0.85, max(values) * 1.2
        steps = [base * 10.0**power for power in range(-4, 8) for base in (1, 2, 5)]
        inside = [step for step in steps if low <= step <= high]
        if len(inside) > 6:
            inside = [step for step in inside if f"{step:e}"[0] == "1"]
        axes.yaxis.set_major_locator(FixedLocator(inside))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(low, high)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.set_ylim(0, (max(values) * 1.1) if values else 1)
    # after the scale: setting a scale sets its own formatter
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))

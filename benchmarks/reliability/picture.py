"""`timeline.svg`: draft in force of the governed arm, tokens a second of every arm, over the run; light and dark in one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.reliability.figures import CellInfo, PhaseFigures, ReliabilityRun
from benchmarks.reliability.plan import ARMS, GOVERNED
from benchmarks.reliability.report import WORDS
from outrider.bench.report.chart import stand_alone
from outrider.bench.report.look import ARMS as INKS
from outrider.bench.report.look import BASE, MUTED, TEXT, Look
from outrider.bench.report.svg import draw_figure

WIDTH, HEIGHT = 900.0, 300.0  # of a round
LOOKS = dict(
    zip(ARMS, (Look(INKS[0], "s", "-"), Look(INKS[1], "D", "--"), Look(BASE, "o", ":")), strict=True)
)
DRAFTS = ("off", "ngram", "eagle3")


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of a round on the picture's time axis: from where to where, in seconds; as wide as its slowest arm took."""

    round: int
    phase: str
    begin_s: float
    end_s: float


def spans(run: ReliabilityRun) -> list[Span]:
    """All of them, a round after the other, each round from 0."""
    found: list[Span] = []
    for number in range(run.rounds):
        begin_s = 0.0
        for phase in run.phases:
            took = [one.took_s for one in run.cells if (one.round, one.phase) == (number, phase.name)]
            end_s = begin_s + max(took)
            found.append(Span(number, phase.name, begin_s, end_s))
            begin_s = end_s
    return found


def drafts_over_time(phase: PhaseFigures, span: Span) -> Iterator[tuple[float, float, str]]:
    """(from, to, draft in force) within a phase of a round."""
    mine = [one for one in phase.switches if one.round == span.round]
    at_s, draft = span.begin_s, phase.begins_with[span.round]
    for one in mine:
        moment_s = min(max(span.begin_s + one.after_s, span.begin_s), span.end_s)
        yield at_s, moment_s, draft
        at_s, draft = moment_s, one.after
    yield at_s, span.end_s, draft


def render_timeline(run: ReliabilityRun) -> str:
    """The SVG's text. Same run, same bytes."""
    size = (WIDTH, HEIGHT * run.rounds)
    title = "Draft in force and tokens a second over the phases, a round above the other"
    told = "; ".join(
        f"{one.before} to {one.after} {one.after_s:.0f} s into {phase.name} of round {one.round + 1}"
        for phase in run.phases
        for one in phase.switches
    )
    svg = draw_figure(size, partial(_paint, run=run))
    return stand_alone(svg, size, title, told or "No switch")


def _paint(figure: Figure, run: ReliabilityRun) -> None:
    ratios = [0.5, 1.6] * run.rounds
    rows = figure.subplots(2 * run.rounds, 1, sharex=True, height_ratios=ratios)
    every = spans(run)
    end_s = max(one.end_s for one in every)
    most = max((value for cell in run.cells for value in cell.tok_s), default=1.0)
    for number in range(run.rounds):
        mine = [one for one in every if one.round == number]
        top, low = rows[2 * number], rows[2 * number + 1]
        _drafts(top, run.phases, mine)
        top.set_title(
            f"round {number + 1}: draft in force, governed", loc="left", fontsize=10, fontweight="bold", color=TEXT.light
        )  # fmt: skip
        _rates(low, run, mine)
        low.set_ylim(0, most * 1.25)
        low.set_title("tokens a second", loc="left", fontsize=10, fontweight="bold", color=TEXT.light)
        for span in mine:
            for axes in (top, low):
                axes.axvline(span.begin_s / 60, color=MUTED.light, linewidth=0.8, linestyle=":")
            low.annotate(
                span.phase, (span.begin_s / 60, 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                textcoords="offset points", color=MUTED.light, fontsize=9,
            )  # fmt: skip
    rows[-1].set_xlim(0, end_s / 60)
    rows[-1].set_xlabel(
        "minutes of each arm's own traffic; the last quarter of a phase is closed loop", color=MUTED.light
    )
    handles, labels = rows[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(ARMS), frameon=False, fontsize=9.5)


def _drafts(axes: Axes, phases: Sequence[PhaseFigures], mine: Sequence[Span]) -> None:
    ink = LOOKS[GOVERNED].ink.light
    for phase, span in zip(phases, mine, strict=True):
        for begin_s, end_s, draft in drafts_over_time(phase, span):
            place = DRAFTS.index(draft) if draft in DRAFTS else 0
            axes.barh(place, (end_s - begin_s) / 60, left=begin_s / 60, height=0.62, color=ink, linewidth=0)
    axes.set_yticks(range(len(DRAFTS)), ["no draft", "n-gram", "head"])
    axes.set_ylim(-0.6, len(DRAFTS) - 0.4)
    axes.grid(visible=False)


def _rates(axes: Axes, run: ReliabilityRun, mine: Sequence[Span]) -> None:
    for arm, look in LOOKS.items():
        times, rates = [], []
        for span in mine:
            cell = _cell(run, span, arm)
            for place, rate in enumerate(cell.tok_s):
                times.append((span.begin_s + place * run.bin_s) / 60)
                rates.append(rate)
            times.append(span.end_s / 60)  # a gap: the next phase is another moment of the machine
            rates.append(float("nan"))
        axes.plot(
            times, rates, color=look.ink.light, linestyle=look.dash, linewidth=1.3, drawstyle="steps-post", label=WORDS[arm]
        )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _cell(run: ReliabilityRun, span: Span, arm: str) -> CellInfo:
    return next(one for one in run.cells if (one.round, one.phase, one.arm) == (span.round, span.phase, arm))

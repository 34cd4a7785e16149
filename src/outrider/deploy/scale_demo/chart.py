"""The picture of a run: load, replicas and queue wait over time, one above the other; light and dark in one SVG.

``python -m outrider.deploy.scale_demo.chart scale-demo/run.json --out chart.svg``
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from outrider.bench.report.chart import stand_alone
from outrider.bench.report.look import ARMS, BAD, MUTED, TEXT
from outrider.bench.report.svg import draw_figure
from outrider.bench.report.write import put
from outrider.deploy.scale_demo.document import Sample, ScaleRun

SIZE = (720.0, 520.0)
LOAD, COUNT, WAIT = (ink.light for ink in ARMS[:3])


def render_chart(run: ScaleRun) -> str:
    """The SVG's text. Same run, same bytes."""
    title = "Scale-out: load, replicas and queue wait over time"
    return stand_alone(draw_figure(SIZE, partial(_paint, run=run)), SIZE, title, _told(run))


def _told(run: ScaleRun) -> str:
    words = "; ".join(f"{check.name}: {check.found}" for check in run.checks)
    return f"{words}. Windows compressed {run.compression:g} times, engines simulated by times of {run.times.hardware}."


def _paint(figure: Figure, run: ScaleRun) -> None:
    top, middle, low = figure.subplots(3, 1, sharex=True, height_ratios=(1.0, 1.1, 1.4))
    times = [one.at_s for one in run.samples]
    _load(top, run)
    _replicas(middle, run.samples)
    wait = [float("nan") if one.queue_wait_ms is None else one.queue_wait_ms / 1e3 for one in run.samples]
    low.plot(times, wait, color=WAIT, drawstyle="steps-post")
    low.axhline(run.target_ms / 1e3, color=BAD.light, linestyle="--", linewidth=1.1)
    low.annotate(
        f"target {run.target_ms:g} ms", (1, run.target_ms / 1e3), xycoords=("axes fraction", "data"),
        xytext=(-2, 3), textcoords="offset points", ha="right", color=BAD.light, fontsize=9,
    )  # fmt: skip
    low.set_ylim(bottom=0)
    low.set_xlim(0, times[-1])
    low.yaxis.set_major_locator(MaxNLocator(5))
    _title(low, "queue wait, s", "the front's gauge, as Prometheus answers the autoscaler's query")
    low.set_xlabel(_below(run), color=MUTED.light)
    begin = 0.0
    for phase in run.phases[:-1]:
        begin += phase.length_s
        for axes in (top, middle, low):
            axes.axvline(begin, color=MUTED.light, linewidth=0.8, linestyle=":")


def _load(axes: Axes, run: ScaleRun) -> None:
    window = max(round(10.0 / (run.samples[1].at_s - run.samples[0].at_s)), 1)
    rows = run.samples
    sent = [
        (last.at_s, (last.sent - first.sent) / (last.at_s - first.at_s))
        for first, last in zip(rows, rows[window:], strict=False)
    ]
    axes.plot(
        [at for at, _ in sent], [rate for _, rate in sent], color=LOAD, linewidth=1.1, label="sent, last 10 s"
    )
    begin, x, y = 0.0, [], []
    for phase in run.phases:
        x += [begin, begin + phase.length_s]
        y += [phase.rate_s, phase.rate_s]
        begin += phase.length_s
    axes.plot(x, y, color=TEXT.light, linewidth=1.2, linestyle="--", label="mean of the draw")
    axes.set_ylim(bottom=0)
    _title(axes, "load, requests/s", "")
    axes.legend(loc="upper right", frameon=False, fontsize=9, ncols=2)


def _replicas(axes: Axes, rows: Sequence[Sample]) -> None:
    times, ready = [one.at_s for one in rows], [one.ready for one in rows]
    axes.fill_between(times, ready, step="post", color=COUNT, alpha=0.18, linewidth=0)
    axes.plot(times, ready, color=COUNT, drawstyle="steps-post", label="ready")
    declared = [one.declared for one in rows]
    axes.plot(
        times,
        declared,
        color=TEXT.light,
        drawstyle="steps-post",
        linestyle="--",
        linewidth=1.2,
        label="declared",
    )
    axes.set_ylim(0, max(declared) + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    _title(axes, "replicas", "processes on this machine")
    axes.legend(loc="upper right", frameon=False, fontsize=9, ncols=2)


def _title(axes: Axes, name: str, more: str) -> None:
    axes.set_title(name, loc="left", fontsize=10, fontweight="bold", color=TEXT.light)
    if more:
        axes.set_title(more, loc="right", fontsize=9, color=MUTED.light)


def _below(run: ScaleRun) -> str:
    return (
        f"seconds · {run.whole:,} of {run.sent:,} requests answered whole\n"
        f"every window of the loop 1/{run.compression:g} of the declared one · engines simulated: {run.times.run}, "
        f"{run.times.arm}, times of one {run.times.hardware}"
    )


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The SVG to write.")
def main(run: Path, out: Path) -> None:
    """Draw RUN (the run.json of `outrider scale-demo`)."""
    put(out, render_chart(ScaleRun.model_validate_json(run.read_bytes())))


if __name__ == "__main__":
    main()

"""One picture of several runs for a README: speed-up over measured running requests, a panel a run and prompt set.

``python -m outrider.bench.report.chart results/*.json --out results/speedup.svg``. The SVG stands alone: it carries its
colours for light and dark, needs no font and names the kind of numbers it shows under each panel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import ValidationError

from outrider.bench.document import BASELINE, RunDocument, Speedup
from outrider.bench.report.look import MUTED, TEXT, Look, css_variables, looks
from outrider.bench.report.pictures import speedup
from outrider.bench.report.svg import draw_figure, inline
from outrider.bench.report.text import clean
from outrider.bench.report.write import put
from outrider.core.errors import MeasurementError, OutriderError

WIDTH, HEIGHT, ACROSS = 300.0, 236.0, 3
FONTS = (
    'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans","DejaVu Sans",sans-serif'
)


@dataclass(frozen=True, slots=True)
class _Place:
    """One panel: a run on one prompt set."""

    title: str
    below: str
    points: tuple[Speedup, ...]


def write_chart(documents: Sequence[RunDocument], path: Path) -> None:
    """Write the SVG. Same documents, same bytes.

    Raises MeasurementError where no document has a speed-up, or the file cannot be written.
    """
    put(path, render_chart(documents))


def render_chart(documents: Sequence[RunDocument]) -> str:
    """The SVG's text."""
    places = _places(documents)
    if not places:
        raise MeasurementError(
            "no speed-up in any of these runs: there is nothing to draw",
            hint="name the run.json of a bench run whose baseline and one more arm stand",
        )
    arms = looks(arm.name for document in documents for arm in document.arms if arm.name != BASELINE)
    shown = {
        arm: look
        for arm, look in arms.items()
        if any(one.arm == arm for place in places for one in place.points)
    }
    across = 2 if len(places) == 4 else min(ACROSS, len(places))
    down = math.ceil(len(places) / across)
    size = (WIDTH * across, HEIGHT * down + 26.0)
    told = "; ".join(f"{place.title}: {_words(place.points)}" for place in places)
    svg = draw_figure(size, partial(_paint, places=places, arms=shown, grid=(down, across)))
    return stand_alone(
        svg, size, "Speed-up of each draft over no draft, against measured running requests", told
    )


def stand_alone(svg: str, size: tuple[float, float], title: str, told: str) -> str:
    """matplotlib's SVG as a file of its own, light and dark: `title` and `told` are read aloud."""
    body = inline(svg, "chart", title, told)
    style = (
        f"<style>:root{{{css_variables('light')}--page:#fff}}"
        f"@media (prefers-color-scheme:dark){{:root{{{css_variables('dark')}--page:#15181c}}}}"
        f"svg{{stroke-linejoin:round}}text{{font-family:{FONTS}}}</style>"
    )
    at = body.index("</desc>") + len("</desc>")
    page = f'<rect width="{size[0]:g}" height="{size[1]:g}" fill="var(--page)"/>'
    sized = body[:at].replace("<svg ", f'<svg width="{size[0]:g}" height="{size[1]:g}" ', 1)
    return sized + style + page + body[at:] + "\n"


def _places(documents: Sequence[RunDocument]) -> list[_Place]:
    found = []
    for document in documents:
        labels = document.labels
        below = (
            f"{labels.weights} weights, {labels.acceptance} acceptance, temperature {labels.temperature:g}"
        )
        for info in document.prompt_sets:
            points = tuple(
                one for one in document.speedups if one.prompt_set == info.name and one.running > 0
            )
            if points:
                title = document.name if len(document.prompt_sets) == 1 else f"{document.name}: {info.name}"
                found.append(_Place(clean(title), clean(below), points))
    return found


def _words(points: Sequence[Speedup]) -> str:
    ends = []
    for arm in dict.fromkeys(one.arm for one in points):
        mine = sorted((one for one in points if one.arm == arm), key=lambda one: one.running)
        first, last = mine[0], mine[-1]
        ends.append(
            f"{clean(arm)} {first.ratio.value:.2f} at {first.running:.0f}, {last.ratio.value:.2f} at {last.running:.0f}"
        )
    return ", ".join(ends)


def _paint(figure: Figure, places: Sequence[_Place], arms: Mapping[str, Look], grid: tuple[int, int]) -> None:
    every = [one for place in places for one in place.points]
    for at, place in enumerate(places):
        axes = figure.add_subplot(*grid, at + 1)
        speedup(axes, place.points, arms, every)
        axes.set_title(place.title, loc="left", fontsize=10, fontweight="bold", color=TEXT.light, wrap=True)
        axes.set_xlabel(f"measured running requests\n{place.below}", color=MUTED.light)
    lines = [
        Line2D([0], [0], color=look.ink.light, marker=look.marker, linestyle=look.dash)
        for look in arms.values()
    ]
    names = [clean(arm) for arm in arms]
    figure.legend(
        lines, names, loc="outside lower left", ncols=max(min(len(names), 6), 1), frameon=False, fontsize=9.5
    )


def read_summary(path: Path) -> RunDocument:
    """A run's document from its file.

    Raises MeasurementError where it cannot be read or is of another version.
    """
    try:
        return RunDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise MeasurementError(
            f"cannot read {path.name}: {error.strerror}", hint="name a run.json"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MeasurementError(
            f"{path.name} is not a bench run: {where}: {first['msg']}",
            hint="name the run.json of a bench run made by this version of Outrider",
        ) from error


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The SVG to write.")
def main(runs: tuple[Path, ...], out: Path) -> None:
    """Draw the speed-ups of RUNS (run.json files) into one SVG."""
    try:
        write_chart([read_summary(run) for run in runs], out)
    except OutriderError as error:
        click.echo(f"error: {error}\n  → {error.hint}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

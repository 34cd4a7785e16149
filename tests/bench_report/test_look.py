"""Colours and markers of the arms."""

from __future__ import annotations

import re

import pytest
from matplotlib.axes import Axes

from outrider.bench.document import Interval, Quantiles, Speedup, StepCost
from outrider.bench.report import look, pictures
from outrider.bench.report.svg import draw, inline


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ink", [*look.ARMS, look.BASE], ids=lambda ink: ink.name)
def test_arms_stand_out_from_the_page(ink: look.Ink) -> None:
    """Lines keep 3 : 1 with the page in light and dark (WCAG 1.4.11)."""
    assert contrast(ink.light, "#ffffff") >= 3
    assert contrast(ink.dark, "#15181c") >= 3


@pytest.mark.parametrize(
    "ink", [look.TEXT, look.MUTED, look.GOOD, look.BAD, look.WARN], ids=lambda ink: ink.name
)
def test_text_is_readable(ink: look.Ink) -> None:
    """Words keep 4.5 : 1 with the page in light and dark (WCAG 1.4.3)."""
    assert contrast(ink.light, "#ffffff") >= 4.5
    assert contrast(ink.dark, "#15181c") >= 4.5


def test_arms_differ_without_colour_and_do_not_depend_on_others() -> None:
    """The first seven drafts have seven markers; an arm's look is that of its place; the fifteenth has another dash."""
    names = ["baseline", *(f"arm-{place}" for place in range(15))]
    found = look.looks(names)
    assert len({found[name].marker for name in names[1:8]}) == 7
    assert len({(one.ink.name, one.marker, one.dash) for one in found.values()}) == len(names)
    assert look.looks(names[:4])["arm-1"] == found["arm-1"]
    assert found["baseline"].ink is look.BASE


def test_a_picture_follows_the_page_and_holds_no_code() -> None:
    """Colours are CSS variables, ids its own, text stays text, and a hostile label changes no tag."""
    words = 'style="fill: #0068a8" id="x" <script>$a$</script>'
    svg = inline(draw((200, 120), lambda axes: axes.set(xlabel=words)), "p7", "a <title>", "told")
    assert "var(--muted)" in svg
    assert look.MUTED.light not in svg
    assert 'style="fill: #0068a8" id="x" &lt;script&gt;$a$&lt;/script&gt;' in svg
    assert "<script" not in svg
    assert '<title id="p7-t">a &lt;title&gt;</title>' in svg
    assert "font-family" not in svg
    assert "date" not in svg.lower()


def test_wide_spans_keep_plain_labels() -> None:
    """Latencies over more than a factor of six stand on a logarithmic axis whose labels are numbers, not formulas."""
    values = [0.1 * 1.06**place for place in range(99)]
    curve = Quantiles(n=500, p50=values[49], p95=values[94], p99=values[98], curve=values)
    found = look.looks(["baseline"])
    svg = draw((250, 172), lambda axes: pictures.latency(axes, {"baseline": curve}, found, None))
    assert "mathdefault" not in svg
    assert {">0.1<", ">1<", ">10<"} <= set(re.findall(r">[^<>]+<", svg))


def test_an_interval_without_end_does_not_hide_the_ratios() -> None:
    """Two trials may give an interval up to a thousand: the axis still shows the ratio against 1.0."""
    point = Speedup(
        arm="a",
        prompt_set="s",
        concurrency=1,
        running=1.0,
        ratio=Interval(value=1.2, low=0.001, high=1035.8, n=2),
        steady=True,
    )
    svg = draw((312, 216), lambda axes: pictures.speedup(axes, [point], look.looks(["a"]), [point]))
    labels = [float(one) for one in re.findall(r">([\d.]+)<", svg)]
    assert max(labels) <= 4


def test_the_filling_meets_where_the_lines_do() -> None:
    """On a log axis two straight lines from (1: 3 made, 1 needed) to (16: 1, 3) meet half way, at 4, not at 8.5."""
    found = pictures.with_crossings([(1.0, 3.0, 1.0), (16.0, 1.0, 3.0)])
    assert found[1] == pytest.approx((4.0, 2.0, 2.0))
    assert len(found) == 3
    assert pictures.with_crossings([(1.0, 3.0, 1.0), (16.0, 3.0, 2.0)]) == [(1.0, 3.0, 1.0), (16.0, 3.0, 2.0)]


def test_break_even_panels_share_their_axes() -> None:
    """A panel of small figures is drawn on the scale of the largest: heights can be compared between arms."""
    small, large = (
        StepCost(
            arm=arm,
            method="eagle3",
            draft_length=3,
            running=load,
            concurrency=load,
            step_ms=10.0 * need,
            baseline_step_ms=10.0,
            break_even_length=need,
            acceptance_length=2.0,
            predicted_speedup=2.0 / need,
        )
        for arm, load, need in (("a", 1, 1.2), ("b", 64, 8.0))
    )
    found = look.looks(["a", "b"])
    limits = []

    def paint(axes: Axes) -> None:
        pictures.step_map(axes, [small], found, [small, large])
        limits.append((*axes.get_xlim(), *axes.get_ylim()))

    draw((312, 216), paint)
    assert limits[0][1] > 64
    assert limits[0][3] > 8

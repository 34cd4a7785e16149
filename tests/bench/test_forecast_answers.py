"""What a forecast says in words: what is known of how many arms, and no more."""

import re

import pytest

from outrider.bench.analysis import analyse
from outrider.bench.document import ForecastInfo, RunDocument, StatedRates, StepCost
from outrider.bench.forecast_answers import finished, forecast_answers
from tests.bench.simulated import Draft, Run, baseline, eagle, p_eagle, simulate

SETS = ("code",)


def step(arm: str, concurrency: int, speedup: float | None, break_even: float = 1.5) -> StepCost:
    """A step cost with this speed-up, of a draft with AL 3."""
    return StepCost(
        arm=arm,
        method="eagle3",
        draft_length=3,
        running=concurrency,
        concurrency=concurrency,
        step_ms=10 * break_even,
        baseline_step_ms=10.0,
        break_even_length=break_even,
        acceptance_length=3.0,
        predicted_speedup=speedup,
    )


def test_a_single_arm_pays_or_does_not_and_is_not_the_best_of_one() -> None:
    """No "is best" and no "even" where nothing else was asked for."""
    pays, loses = forecast_answers([step("a", 1, 2.0), step("a", 64, 0.7, 4.3)])
    assert pays.text == (
        "With the acceptance stated, a pays at 1 at once: 2.00× reckoned from its step time and the AL of 3.00 stated; "
        "it pays from an AL of 1.50."
    )
    assert (
        loses.text == "With the acceptance stated, a does not pay at 64 at once: it would need an AL of 4.30."
    )
    assert (pays.good, loses.good) == (True, False)


def test_of_several_the_best_is_named() -> None:
    """Two arms with a speed-up: the larger one, or none."""
    texts = [
        one.text
        for one in forecast_answers(
            [step("a", 1, 2.0), step("b", 1, 2.5), step("a", 8, 0.7, 4.3), step("b", 8, 0.9, 3.3)]
        )
    ]
    assert texts[0].startswith("With the acceptance stated, b is best at 1 at once: 2.50×")
    assert texts[1].startswith(
        "With the acceptance stated, no draft pays at 8 at once: even b would need an AL of 3.30"
    )


@pytest.mark.parametrize(
    ("known", "words", "good"),
    [
        ([step("a", 1, 2.0)], "a pays at 1 at once: 2.00× .* c is not known there.", True),
        (
            [step("a", 1, 2.0), step("b", 1, 1.5)],
            "a is best of what is known at 1 at once.* c is not known",
            True,
        ),
        ([step("a", 1, 0.7)], "a does not pay at 1 at once: .* c is not known there.", None),
        (
            [step("a", 1, 0.7), step("b", 1, 0.8)],
            "no draft that is known pays at 1 at once.* c is not known",
            None,
        ),
        (
            [step("c", 1, None)],
            "whether a draft pays at 1 at once is not known: no figures stand of c.",
            None,
        ),
    ],
)
def test_an_arm_without_a_speed_up_is_not_known(known: list[StepCost], words: str, good: bool | None) -> None:
    """An arm whose cell failed makes no verdict over all drafts."""
    asked = {1: dict.fromkeys([*(one.arm for one in known), "c"], "")}
    (said,) = forecast_answers(known, asked=asked)
    assert re.search(words, said.text), said.text
    assert said.good is good


def forecast(*drafts: Draft, synthetic: bool, failed: dict[tuple[str, str, int], str]) -> RunDocument:
    """A forecast of these drafts in which these cells failed."""
    made = simulate(Run(drafts=(baseline(SETS), *drafts), waves=4, failed=failed))
    rates = [0.82, 0.68, 0.56, 0.4, 0.3, 0.2, 0.1]
    stated = {draft.method: StatedRates(rates=rates) for draft in drafts}
    return finished(analyse(made.document, made.records_of), ForecastInfo(stated=stated, synthetic=synthetic))


@pytest.mark.parametrize("synthetic", [True, False])
def test_failed_cells_of_a_forecast_are_not_known(synthetic: bool) -> None:
    """One arm's cell failed at 4, the baseline's at 16: one arm's verdict there, none here; the other loads compare both."""
    failed = {("eagle3-k3", "code", 4): "out of memory", ("baseline", "code", 16): "out of memory"}
    found = forecast(eagle(SETS), p_eagle(SETS), synthetic=synthetic, failed=failed)
    texts = {one.id: one.text for one in found.answers if one.id.startswith("forecast/")}
    assert " is best at 1 at once" in texts["forecast/1"]
    assert "p-eagle-k7 pays at 4 at once" in texts["forecast/4"]
    assert "eagle3-k3 is not known there (failed)" in texts["forecast/4"]
    assert "whether a draft pays at 16 at once is not known" in texts["forecast/16"]
    assert texts["forecast/16"].endswith("no figures stand of eagle3-k3 and p-eagle-k7 (baseline failed).")


@pytest.mark.parametrize("synthetic", [True, False])
@pytest.mark.parametrize("late", [("baseline",), ("eagle3-k3",), ("baseline", "eagle3-k3")])
def test_a_cell_without_a_step_time_says_whose_and_what_to_do(synthetic: bool, late: tuple[str, ...]) -> None:
    """Its chunks came after the window: which arm lacks the step time, the baseline included, and the options that mend it."""
    made = simulate(Run(drafts=(baseline(SETS), eagle(SETS)), waves=4)).document
    cells = [
        one.model_copy(update={"pooled": one.pooled.model_copy(update={"step_ms": None})})
        if one.arm in late and one.concurrency == 4 and one.pooled
        else one
        for one in made.cells
    ]
    info = ForecastInfo(stated={"eagle3": StatedRates(rates=[0.8, 0.6, 0.5])}, synthetic=synthetic)
    found = finished(analyse(made.model_copy(update={"cells": cells})), info)
    text = next(one.text for one in found.answers if one.id == "forecast/4")
    assert (
        f"no step time of {' and '.join(late)}: the chunks of the answers came too late or were too few"
        in text
    )
    assert "--requests" in text
    assert "--output-tokens" in text


def test_the_al_of_a_drawn_forecast_is_the_one_stated() -> None:
    """AL 3.06 is stated; what the engine drew stands beside it, not in its place."""
    found = forecast(eagle(SETS), synthetic=True, failed={})
    said = next(one for one in found.answers if one.id == "forecast/1")
    assert said.values["length"] == pytest.approx(1 + 0.82 + 0.68 + 0.56)
    drawn = next(one.acceptance_length for one in found.steps if one.concurrency == 1)
    assert said.values["drawn"] == drawn
    assert f"measured with the AL of 3.06 stated ({drawn:.2f} drawn)" in said.text

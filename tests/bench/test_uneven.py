"""What no interval shows: curves over the load that bend the wrong way, long gaps of runs stored without their silences."""

import re
from collections.abc import Callable

import pytest

from outrider.bench.analysis import analyse
from outrider.bench.answers import answers
from outrider.bench.document import Answer, Figures, ForecastInfo, RunDocument, StatedRates
from outrider.bench.forecast_answers import finished
from tests.bench.simulated import Run, baseline, eagle, p_eagle, simulate

SETS = ("code",)


@pytest.fixture(scope="module")
def plain() -> RunDocument:
    """Three arms on one set, all well."""
    made = simulate(Run([baseline(SETS), eagle(SETS), p_eagle(SETS)], trials=1, waves=4))
    return analyse(made.document, made.records_of)


def changed(
    document: RunDocument, arm: str, concurrency: int, change: Callable[[Figures], dict[str, object]]
) -> dict[str, Answer]:
    """The answers by id once one cell's figures, pooled and of each trial, are changed."""
    cells = []
    for cell in document.cells:
        if (cell.arm, cell.concurrency) == (arm, concurrency) and cell.pooled:
            trials = [
                trial.model_copy(
                    update={
                        "figures": trial.figures.model_copy(update=change(trial.figures)),
                        "length_s": None,  # as an older version stored it
                        "silences": [],
                    }
                )
                for trial in cell.trials
                if trial.figures
            ]
            pooled = cell.pooled.model_copy(update=change(cell.pooled))
            cell = cell.model_copy(update={"trials": trials, "pooled": pooled})  # noqa: PLW2901
        cells.append(cell)
    return {one.id: one for one in answers(document.model_copy(update={"cells": cells}))}


def test_a_plain_run_has_none_of_these(plain: RunDocument) -> None:
    """Steps grow with the batch, tok/s with the load, and each trial's silences were looked for."""
    ids = {one.id for one in plain.answers}
    assert not ids & {"caveat/step-falls", "caveat/fewer-tok-s", "caveat/long-gaps"}


def test_a_step_that_is_longer_in_an_emptier_batch_is_told(plain: RunDocument) -> None:
    """The baseline's step at 16 takes more than at 64: what is measured over it is too large."""
    said = changed(plain, "baseline", 16, lambda figures: {"step_ms": 1e3})["caveat/step-falls"]
    assert "baseline on code at 16 against 64 at once by " in said.text
    assert "A speed-up over a slow baseline is too large there" in said.text
    assert said.values.keys() == {"baseline on code at 16 against 64 at once"}


def test_fewer_tokens_at_more_load_are_told(plain: RunDocument) -> None:
    """An arm may be ahead of the baseline at 64 and still make less than itself at 16."""
    said = changed(plain, "p-eagle-k7", 64, lambda figures: {"output_tok_s": 1.0})["caveat/fewer-tok-s"]
    assert "p-eagle-k7 on code at 64 against 16 at once by 100%" in said.text


def test_a_long_gap_of_a_trial_stored_without_silences_is_told(plain: RunDocument) -> None:
    """Half of the window in one gap; in milliseconds only where those may be quoted; a gap of a hundredth is nothing."""

    def gap(share: float) -> Callable[[Figures], dict[str, object]]:
        return lambda figures: {
            "step_gap_ms": figures.step_gap_ms.model_copy(update={"worst": share * figures.window_s * 1e3})
        }

    said = changed(plain, "eagle3-k3", 16, gap(0.5))["caveat/long-gaps"]
    assert re.search(
        r"in 1 trial \(eagle3-k3 on code at 16 at once in trial 1: \d+ ms, 50% of its window\)", said.text
    )
    labels = plain.labels.model_copy(update={"absolute_times": False})
    cpu = plain.model_copy(update={"labels": labels})
    assert " ms" not in changed(cpu, "eagle3-k3", 16, gap(0.5))["caveat/long-gaps"].text
    assert "caveat/long-gaps" not in changed(plain, "eagle3-k3", 16, gap(0.01))


def test_a_modelled_forecast_says_nothing_of_tokens_that_nobody_accepted() -> None:
    """Random drafts made fewer tok/s at 64 than at 16: no figure of the document, so no sentence; the baseline has one."""
    made = simulate(Run([baseline(SETS), eagle(SETS)], trials=1, waves=4)).document
    cells = [
        cell.model_copy(update={"pooled": cell.pooled.model_copy(update={"output_tok_s": 1.0})})
        if cell.concurrency == 64 and cell.pooled
        else cell
        for cell in made.cells
    ]
    info = ForecastInfo(stated={"eagle3": StatedRates(rates=[0.8, 0.6, 0.5])}, synthetic=False)
    found = finished(analyse(made.model_copy(update={"cells": cells})), info)
    (said,) = [one for one in found.answers if one.id == "caveat/fewer-tok-s"]
    assert said.values.keys() == {"baseline on code at 64 against 16 at once"}
    assert found.speedups

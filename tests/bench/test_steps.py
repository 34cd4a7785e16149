"""The model of step times: break-even AL, AL of a shorter draft, the best length at a batch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.bench.assemble import CellName, TrialData, cell
from outrider.bench.document import Arm, ForecastInfo, StepCost
from outrider.bench.steps import best_length, earned, length_at, reckoned, speedup, step_costs
from tests.bench.records import cell_data, counters, record, trace
from tests.bench.simulated import Run, baseline, eagle, simulate

RATES = (0.82, 0.68, 0.56)


def test_an_arm_that_drafts_in_half_its_steps_is_not_credited_with_its_al() -> None:
    """AL 4.59, tokens per step 2.96 (vllm#24344): the predicted speed-up is made of 2.96."""
    records = tuple(record(n, started_s=n * 1.0, chunks=30, gap_s=0.02, tokens=3) for n in range(5))
    plain = tuple(record(n, started_s=n * 1.0, chunks=30, gap_s=0.016) for n in range(5))
    after = counters(drafts=993, proposed=4960, accepted=3562, steps=1814, generation=5426, first=50)
    seen = trace(counters(steps=0.0, generation=0.0, first=0.0), after)
    cells = [
        cell(CellName("baseline", "s", 1), [TrialData(1, 1, "", cell_data(plain))]),
        cell(
            CellName("ngram-k5", "s", 1),
            [TrialData(1, 1, "", cell_data(records, counted=seen, draft_length=5))],
        ),
    ]
    arms = [
        Arm(name="baseline", method="none", draft_length=0),
        Arm(name="ngram-k5", method="ngram", draft_length=5),
    ]
    (found,) = step_costs(cells, arms)
    assert found.break_even_length == pytest.approx(20 / 16)
    assert found.acceptance_length == pytest.approx(4.59, abs=0.005)
    assert found.predicted_speedup == pytest.approx(2.96 * 16 / 20, abs=0.005)


def test_al_of_a_shorter_draft_is_a_prefix_sum() -> None:
    """From one measurement at K = 3: AL at 0, 1, 2, 3; a longer one is unknown."""
    assert [length_at(RATES, k) for k in range(4)] == pytest.approx([1, 1.82, 2.5, 3.06])
    with pytest.raises(ValueError, match="measure a longer draft"):
        length_at(RATES, 4)


def test_the_best_length_shrinks_as_the_batch_grows() -> None:
    """Cheap steps: the longest; dear steps: a short one; steps dearer than the tokens they bring: none."""
    assert best_length({0: 20, 1: 21, 2: 22, 3: 24}, RATES) == (3, pytest.approx(3.06 * 20 / 24))
    assert best_length({0: 20, 1: 24, 2: 40, 3: 60}, RATES)[0] == 1
    assert best_length({0: 20, 1: 50, 2: 70, 3: 90}, RATES) == (0, 1.0)
    assert best_length({0: 20, 1: 24}, RATES, coverage=0.1) == (0, 1.0)
    with pytest.raises(ValueError, match="run the baseline"):
        best_length({3: 20}, RATES)


@settings(deadline=None)
@given(st.floats(1, 8), st.floats(1, 100), st.floats(1, 100))
def test_at_the_break_even_length_nothing_is_won(length: float, step: float, base: float) -> None:
    """AL = T(b, K)/T(b, 0) gives a speed-up of exactly 1; more gives more."""
    assert speedup(step / base, step, base) == pytest.approx(1)
    assert (speedup(length, step, base) > 1) == (length * base > step)


def test_a_draft_s_step_that_looks_shorter_than_none_explains_no_gain() -> None:
    """1.12 tokens a step at T(b, K) = 0.75 T(b, 0), which is noise: the steps explain 1.12×, not 1.49×; a dearer step counts."""
    step = StepCost(
        arm="ngram-k5",
        method="ngram",
        draft_length=5,
        running=1.6,
        concurrency=2,
        step_ms=15.0,
        baseline_step_ms=20.0,
        break_even_length=0.75,
        acceptance_length=2.29,
        predicted_speedup=1.12 / 0.75,
    )
    dear = step.model_copy(update={"concurrency": 4, "break_even_length": 2.0, "predicted_speedup": 1.12 / 2})
    stated = ForecastInfo(stated={}, synthetic=False)  # its steps are taken as they are
    made = simulate(Run([baseline(("s",))], trials=1, waves=1)).document
    document = made.model_copy(update={"steps": [step, dear], "forecast": stated})
    assert earned(step) == pytest.approx(1.12)
    assert reckoned(document, "ngram-k5", "s", 2) == pytest.approx(1.12)
    assert reckoned(document, "ngram-k5", "s", 4) == pytest.approx(0.56)
    assert reckoned(document, "ngram-k5", "s", 8) is None


def test_steps_meet_in_the_trials_that_both_arms_have() -> None:
    """The machine was four times as slow in trial 3, which the arm finished alone: that is no cost of its draft."""
    made = simulate(Run([baseline(("s",)), eagle(("s",))], trials=3, waves=4)).document
    moved = []
    for one in made.cells:
        drafted = one.arm != "baseline"
        trials = [
            trial.model_copy(
                update={
                    "failed": "" if drafted or trial.trial < 3 else "the engine ended",
                    "figures": trial.figures.model_copy(
                        update={"step_ms": (trial.figures.step_ms or 0) * (4 if trial.trial == 3 else 1)}
                    ),
                }
            )
            for trial in one.trials
            if trial.figures
        ]
        pooled = one.pooled
        if drafted and pooled:  # as a pool over all three trials would have it
            pooled = pooled.model_copy(update={"step_ms": (pooled.step_ms or 0) * 2})
        moved.append(one.model_copy(update={"trials": trials, "pooled": pooled}))
    told, whole = (step_costs(cells, made.arms) for cells in (moved, made.cells))
    assert told
    for mine, all_three in zip(told, whole, strict=True):
        assert mine.break_even_length == pytest.approx(all_three.break_even_length, rel=0.1)
        assert mine.acceptance_length == pytest.approx(all_three.acceptance_length or 0, rel=0.1)


def test_without_a_trial_in_common_there_is_no_step_cost() -> None:
    """The baseline finished trial 1, the arm trial 2: their step times are of different moments."""
    made = simulate(Run([baseline(("s",)), eagle(("s",))], trials=2, waves=4)).document
    cells = [
        one.model_copy(
            update={
                "trials": [
                    trial.model_copy(
                        update={"failed": "" if (trial.trial == 1) == (one.arm == "baseline") else "gone"}
                    )
                    for trial in one.trials
                ]
            }
        )
        for one in made.cells
    ]
    assert step_costs(made.cells, made.arms)
    assert step_costs(cells, made.arms) == []

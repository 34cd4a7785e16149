"""From cells to answers: a simulated run with known truth says what it should, and a broken one says why it cannot."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from outrider.bench.analysis import analyse
from outrider.bench.answers import TARGET, answers
from outrider.bench.document import (
    Acceptance,
    Answer,
    Crossover,
    ForecastInfo,
    Interval,
    NaturalEnd,
    RunDocument,
    Speedup,
    StatedRates,
    TextDifference,
)
from outrider.bench.figures import CellPrice
from outrider.bench.standing import standing
from outrider.cost.prices import read_prices
from outrider.measure.records import RequestRecord
from tests.bench.simulated import BASE_S, GRID, Run, baseline, eagle, p_eagle, simulate

SETS = ("code", "chat")


@cache
def analysed() -> RunDocument:
    """Three arms on two sets, three trials with 2 % noise; made once for all tests."""
    made = simulate(Run([baseline(), eagle(), p_eagle()], price=CellPrice(3.5, 1)))
    return analyse(made.document, made.records_of)


def answer(document: RunDocument, name: str) -> Answer:
    """The answer of that id."""
    return next(one for one in document.answers if one.id == name)


def test_the_derived_parts_are_all_there_and_survive_the_file() -> None:
    """Nothing else of the document changes; written and read, it is the same."""
    found = analysed()
    assert len(found.speedups) == 2 * 2 * len(GRID)
    assert len(found.steps) == 2 * len(GRID)
    assert len(found.crossovers) == 3 * 2
    assert found.latency_differences
    assert found.costs
    assert RunDocument.model_validate_json(found.model_dump_json(by_alias=True)) == found


def expected_steps(rates: Sequence[float], tokens: int) -> float:
    """Mean steps until `tokens` are made, position i being accepted with probability rates[i]."""
    chances = [1 - rates[0], *(a - b for a, b in pairwise(rates)), rates[-1]]
    steps = [0.0]
    for left in range(1, tokens + 1):
        steps.append(1 + sum(p * steps[max(left - made, 0)] for made, p in enumerate(chances, 1)))
    return steps[tokens]


@pytest.mark.parametrize("prompts", SETS)
@pytest.mark.parametrize("draft", [eagle(), p_eagle()])
def test_speed_ups_are_near_the_model(draft, prompts: str) -> None:  # type: ignore[no-untyped-def]
    """The time of a request by the model (first token after two steps, the last draft cut at the end), within 10 %."""
    for one in analysed().speedups:
        if (one.arm, one.prompt_set) != (draft.name, prompts):
            continue
        mine = (2 + expected_steps(draft.rates[prompts], 47)) * draft.step_s[one.concurrency]
        truth = (2 + 47) * BASE_S[one.concurrency] / mine
        assert one.ratio.value == pytest.approx(truth, rel=0.1)
        assert one.running == pytest.approx(one.concurrency, rel=0.05)
        assert one.ratio.n == 3
        assert one.steady


def test_step_costs_find_the_factors() -> None:
    """T(b, K)/T(b, 0) is what the simulation was given, and the predicted speed-up follows from tokens per step."""
    for cost, factor in zip(
        [s for s in analysed().steps if s.arm == "eagle3-k3"], (1.2, 1.25, 1.4, 2.0), strict=True
    ):
        assert cost.break_even_length == pytest.approx(factor, rel=0.03)
        assert cost.acceptance_length is not None
        assert cost.predicted_speedup is not None
        assert cost.predicted_speedup == pytest.approx(
            cost.acceptance_length / cost.break_even_length, rel=0.15
        )


def test_crossovers_lie_where_the_speed_up_passes_one() -> None:
    """P-EAGLE stops paying between 16 and 64; EAGLE-3 on code pays throughout; P-EAGLE falls behind EAGLE-3 on code."""
    found = {(one.arm, one.against, one.prompt_set): one for one in analysed().crossovers}
    stops = found["p-eagle-k7", "baseline", "code"]
    assert stops.kind == "at"
    assert stops.running is not None
    assert stops.running.low is not None
    assert stops.running.high is not None
    assert 16 < stops.running.low < stops.running.value < stops.running.high < 64
    assert found["eagle3-k3", "baseline", "code"].kind == "none"
    behind = found["p-eagle-k7", "eagle3-k3", "code"]
    assert behind.kind == "at"
    assert behind.running is not None
    assert 4 < behind.running.value < 64


def test_answers_say_what_the_cells_hold() -> None:
    """Each speed-up in an answer is recomputed from the trials' throughputs, and stands in the sentence as it is rounded."""
    document = analysed()
    for arm in ("eagle3-k3", "p-eagle-k7"):
        for prompts in SETS:
            said = answer(document, f"speedup/{arm}/{prompts}")
            for concurrency in GRID:
                mine, base = (standing(document, name, prompts, concurrency) for name in (arm, "baseline"))
                assert mine is not None
                assert base is not None
                logs = [
                    math.log(a.figures.output_tok_s / b.figures.output_tok_s)  # type: ignore[union-attr, operator]
                    for a, b in zip(mine.trials, base.trials, strict=True)
                ]
                ratio = math.exp(sum(logs) / len(logs))
                assert said.values[f"ratio@{concurrency}"] == pytest.approx(ratio)
                assert f"{ratio:.2f}×" in said.text


def test_the_recommendation_names_traffic_load_and_draft() -> None:
    """Overall and per set: which arm at which load, and no draft where none is surely quicker."""
    document = analysed()
    overall = document.answers[0]
    assert overall.id == "recommendation"
    assert overall.text.startswith("Switch the draft on for code")
    chat = answer(document, "recommendation/chat")
    assert "p-eagle-k7 at 1 to 16 at once" in chat.text
    assert "no draft at 64 at once" in chat.text
    assert overall.values == {"up_to code": 64.0, "up_to chat": 16.0}


def test_target_tail_and_degradation_are_answered() -> None:
    """Where 2.5× is passed and where the arm ends; the tail of a slow arm is bad; the set on which AL collapses is named."""
    document = analysed()
    passing = answer(document, "target/p-eagle-k7/code")
    assert f"passes {TARGET}×" in passing.text
    assert passing.good is True
    assert "at the largest load, 64 at once" in passing.text
    short = answer(document, "target/eagle3-k3/chat")
    assert "passes 2.5× at no load measured" in short.text
    assert short.good is None
    tail = answer(document, "tail/p-eagle-k7/code")
    assert tail.good is False
    assert (tail.values["e2e_ms.p99@64"] or 0) > 0
    assert "draft tokens rejected" in tail.text
    largest = max(one.concurrency for one in document.latency_differences if one.figure == "step_gap_ms.p99")
    assert f"at {largest} at once" in tail.text.partition("; ")[0]
    assert "eagle3-k3 costs on chat (AL 1.5" in answer(document, "degrades/eagle3-k3").text


def test_a_draft_for_a_few_steps_is_judged_by_all_of_them() -> None:
    """N-grams that hit in a tenth of the steps earn little there, however many tokens of each hit are accepted."""
    few = Acceptance(rate=0.9, length=3.7, tokens_per_step=1.27, draft_coverage=0.1)
    every = Acceptance(rate=0.5, length=2.5, tokens_per_step=2.5, draft_coverage=1.0)
    rows = [
        NaturalEnd(arm="eagle3-k3", prompt_set=name, state="ok", acceptance=one)
        for name, one in (("chat", few), ("code", every))
    ]
    document = analysed().model_copy(update={"natural_end": rows})
    found = {one.id: one for one in answers(document)}["degrades/eagle3-k3"]
    assert "chat (tokens per step 1.27 against 2.50 on code" in found.text
    assert found.values["tokens per step chat"] == 1.27


def test_costs_are_of_the_same_mix() -> None:
    """100 tokens in for 48 out: the list price of the output plus 100/48 of the input's; ours from tok/s and the price."""
    document = analysed()
    gpt = next(one for one in document.costs if one.commercial and one.name == "GPT-5.4")
    assert gpt.usd_per_million_output_tokens == pytest.approx(15 + 2.5 * 100 / 48)
    assert "2026-04" in gpt.source
    mine = next(one for one in document.costs if (one.name, one.concurrency) == ("eagle3-k3", 64))
    cell = standing(document, "eagle3-k3", "code", 64)
    assert cell is not None
    assert cell.pooled is not None
    assert cell.pooled.output_tok_s is not None
    assert mine.usd_per_million_output_tokens == pytest.approx(3.5 / (cell.pooled.output_tok_s * 3600) * 1e6)
    assert mine.within_slo_ratio == 1.0
    said = answer(document, "cost/code")
    assert "GPT-5.4 asks 20.21 USD" in said.text
    assert (said.good, said.leans) == (None, True)  # a price is no interval; the cheapest has a draft


def test_a_failed_baseline_gives_no_speed_up_and_says_why() -> None:
    """Its reason stands in the answer; the other cells keep their figures; nothing is recommended."""
    dead = {("baseline", prompts, c): "the engine ended: out of memory" for prompts in SETS for c in GRID}
    made = simulate(Run([baseline(), eagle()], trials=1, waves=4, failed=dead))
    found = analyse(made.document, made.records_of)
    assert not found.speedups
    said = found.answers[0]
    assert said.id == "no-baseline"
    assert "out of memory" in said.text
    assert "Other cells stand" in said.text
    assert standing(found, "eagle3-k3", "code", 1) is not None


def test_one_failed_baseline_cell_costs_that_cell_alone() -> None:
    """The others keep their speed-ups."""
    made = simulate(
        Run(
            [baseline(("code",)), eagle(("code",))],
            trials=2,
            waves=4,
            failed={("baseline", "code", 4): "killed"},
        )
    )
    found = analyse(made.document, made.records_of)
    assert sorted(one.concurrency for one in found.speedups) == [1, 16, 64]
    assert "code at 4 at once" in answer(found, "no-baseline").text
    few = answer(found, "caveat/few-trials").text
    assert "very wide interval" in few
    assert "of each cell" in few


def test_invalid_cells_take_part_in_nothing() -> None:
    """A cell above the error limit has no speed-up and is named in a caveat."""
    document = simulate(Run([baseline(("code",)), eagle(("code",))], trials=1, waves=4)).document
    spoilt = [
        cell.model_copy(update={"state": "invalid", "reason": "9 of 10 requests failed"})
        if (cell.arm, cell.concurrency) == ("eagle3-k3", 16)
        else cell
        for cell in document.cells
    ]
    found = analyse(document.model_copy(update={"cells": spoilt}))
    assert sorted(one.concurrency for one in found.speedups) == [1, 4, 64]
    assert "eagle3-k3 on code at 16 at once (9 of 10 requests failed)" in answer(found, "caveat/invalid").text
    assert not found.latency_differences


def test_latencies_meet_in_the_trials_that_both_arms_have() -> None:
    """A third trial that the arm has alone changes no difference: its moment of the machine was not the baseline's."""
    made = simulate(Run([baseline(("code",)), eagle(("code",))]))

    def without(dropped: tuple[str, ...]) -> Callable[[str, str, int, int], Sequence[RequestRecord]]:
        return lambda arm, prompts, at, trial: (
            () if trial == 3 and arm in dropped else made.records_of(arm, prompts, at, trial)
        )

    alone, neither = (
        analyse(made.document, without(dropped)).latency_differences
        for dropped in (("baseline",), ("baseline", "eagle3-k3"))
    )
    assert alone
    assert alone == neither
    assert alone != analyse(made.document, made.records_of).latency_differences


def test_labels_become_caveats() -> None:
    """Dummy weights, assumed acceptance, arms not in turns, a CPU: each is said, and advice is marked as assuming."""
    document = simulate(Run([baseline(("code",)), eagle(("code",))], trials=1, waves=4)).document
    labels = document.labels.model_copy(
        update={
            "weights": "dummy",
            "acceptance": "synthetic",
            "acceptance_source": "a model card",
            "interleaved": False,
            "absolute_times": False,
        }
    )
    found = analyse(document.model_copy(update={"labels": labels}))
    ids = {one.id for one in found.answers}
    assert {
        "caveat/dummy-weights",
        "caveat/synthetic-acceptance",
        "caveat/not-interleaved",
        "caveat/cpu",
    } <= ids
    assert found.answers[0].text.startswith("With the acceptance assumed here: ")
    assert "Undecided: 1 trial is too few" in found.answers[0].text
    assert "source: at the top" in answer(found, "caveat/synthetic-acceptance").text


def test_milliseconds_of_a_cpu_are_not_quoted() -> None:
    """Where absolute times mean nothing, tails are said in percent."""
    made = simulate(Run([baseline(("code",)), p_eagle(("code",))], trials=2, waves=6))
    labels = made.document.labels.model_copy(update={"absolute_times": False})
    found = analyse(made.document.model_copy(update={"labels": labels}), made.records_of)
    texts = [
        one.text for one in found.answers if one.id.split("/")[0] in ("tail", "target", "recommendation")
    ]
    assert texts
    assert not [text for text in texts if re.search(r"\d ms\b", text)]


def test_a_draft_that_never_pays_is_left_off() -> None:
    """Every step three times as long at AL 1.6: below everywhere, leave it off, and the best it did is told."""
    bad = eagle(("chat", "x"))
    bad = replace(bad, rates={"chat": (0.4, 0.15, 0.05)}, step_s={c: 3 * s for c, s in BASE_S.items()})
    made = simulate(Run([baseline(("chat",)), bad], waves=4))
    found = analyse(made.document, made.records_of)
    assert found.crossovers[0].kind == "below"
    assert found.answers[0].text == (
        "Leave it off for all traffic measured: no arm was surely quicker than no draft there."
    )
    assert found.answers[0].good is False
    assert "leave the draft off; the best was eagle3-k3" in answer(found, "recommendation/chat").text


def test_the_user_s_own_prices_replace_ours(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Another file, other names and other costs."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'schema = "outrider/prices/v1"\n[[price]]\nname = "Ours"\nusd_per_million_input_tokens = 0\n'
        'usd_per_million_output_tokens = 7.5\nsource = "contract"\ndated = "2026-11"\n'
    )
    made = simulate(Run([baseline(("code",)), eagle(("code",))], trials=1, waves=3))
    found = analyse(made.document, made.records_of, read_prices(path))
    assert [one.usd_per_million_output_tokens for one in found.costs if one.commercial] == [7.5]


def test_the_same_records_give_the_same_file() -> None:
    """All randomness is seeded: analysing twice gives the same bytes."""
    made = simulate(Run([baseline(("code",)), eagle(("code",))], trials=2, waves=4))
    once, again = (analyse(made.document, made.records_of).model_dump(mode="json") for _ in range(2))
    assert json.dumps(once) == json.dumps(again)


def with_speedups(*found: Speedup, steps_explain: bool = True) -> RunDocument:
    """A run on `code` whose ratios are exactly these; its cells are the simulated ones, or have no step times to argue with."""
    document = analysed()
    cells = [
        cell.model_copy(update={"pooled": cell.pooled.model_copy(update={"step_ms": None})})
        if cell.pooled and not steps_explain
        else cell
        for cell in document.cells
    ]
    loads = {one.concurrency for one in found}
    cells = [cell for cell in cells if cell.concurrency in loads]
    drafts = {one.arm for one in found}
    kept = [arm for arm in document.arms if arm.name in {"baseline", *drafts}]
    made = document.model_copy(
        update={
            "speedups": list(found),
            "cells": cells,
            "arms": kept,
            "prompt_sets": document.prompt_sets[:1],
        }
    )
    made = made.model_copy(update={"crossovers": []})
    return made.model_copy(update={"answers": answers(made)})


def speedup(arm: str, concurrency: int, ratio: Interval, steady: bool = True) -> Speedup:
    """One cell's ratio."""
    return Speedup(
        arm=arm, prompt_set="code", concurrency=concurrency, running=concurrency, ratio=ratio, steady=steady
    )


def test_two_trials_decide_nothing_and_say_what_they_point_to() -> None:
    """1.14× and 1.49× of two trials each, as wide as 0.13 to 17.58: undecided, a caveat, never "Switch the draft on"."""
    found = with_speedups(
        speedup("eagle3-k3", 1, Interval(value=1.14, low=0.97, high=1.34, n=2)),
        speedup("eagle3-k3", 4, Interval(value=1.49, low=0.13, high=17.58, n=2)),
        steps_explain=False,
    )
    overall, of_set = found.answers[:2]
    assert overall.good is None
    assert of_set.good is None
    assert overall.text.startswith("Undecided: 2 trials are too few (run at least 3).")
    assert "points to eagle3-k3 for code at 1 to 4 at once" in overall.text
    assert "Switch" not in overall.text
    assert answer(found, "speedup/eagle3-k3/code").good is None
    assert "1.49× (0.13 to 17.58, 2 trials) at 4 at once" in answer(found, "speedup/eagle3-k3/code").text


def test_a_surer_arm_goes_before_a_larger_ratio() -> None:
    """1.90 (0.11 to 33, not steady) loses to 1.36 (1.22 to 1.51), of two trials and of three."""
    for n in (2, 3):
        found = with_speedups(
            speedup("p-eagle-k7", 4, Interval(value=1.9, low=0.11, high=33.0, n=n), steady=False),
            speedup("eagle3-k3", 4, Interval(value=1.36, low=1.22, high=1.51, n=n)),
        )
        assert "eagle3-k3 at 4 at once (1.36×)" in answer(found, "recommendation/code").text
        assert found.answers[0].good is (True if n == 3 else None)


def test_of_two_trials_a_narrow_interval_is_chance() -> None:
    """1.73 (0.79 to 3.79) goes before 1.35 (1.26 to 1.44): neither decides, and the larger is what the trials point to."""
    found = with_speedups(
        speedup("p-eagle-k7", 4, Interval(value=1.35, low=1.26, high=1.44, n=2)),
        speedup("eagle3-k3", 4, Interval(value=1.73, low=0.79, high=3.79, n=2)),
    )
    assert "points to eagle3-k3 at 4 at once (1.73×)" in answer(found, "recommendation/code").text


def test_a_cell_that_is_not_steady_is_never_good() -> None:
    """Three trials above 1 in a window too short: shown with its interval, undecided, no sentence Good."""
    found = with_speedups(speedup("eagle3-k3", 1, Interval(value=1.5, low=1.4, high=1.6, n=3), steady=False))
    assert "Undecided: not every cell is steady" in found.answers[0].text
    kinds = ("recommendation", "speedup", "stops-paying", "target", "degrades")
    assert not [one.id for one in found.answers if one.good and one.id.split("/")[0] in kinds]


def test_an_interval_that_holds_one_is_neither_good_nor_bad() -> None:
    """1.19 (0.12 to 12.03) is no gain and 0.94 (0.38 to 2.31) no loss: both are caveats; ahead everywhere is not paying."""
    found = with_speedups(
        speedup("eagle3-k3", 1, Interval(value=1.19, low=0.12, high=12.03, n=3)),
        speedup("p-eagle-k7", 1, Interval(value=0.94, low=0.38, high=2.31, n=3)),
        speedup("p-eagle-k7", 4, Interval(value=1.2, low=1.1, high=1.3, n=3)),
    )
    assert answer(found, "speedup/eagle3-k3/code").good is None
    assert answer(found, "speedup/p-eagle-k7/code").good is None
    assert "perhaps slower than no draft at 1 at once (0.94×)" in answer(found, "degrades/p-eagle-k7").text
    assert answer(found, "degrades/p-eagle-k7").good is None
    ahead = Crossover(arm="eagle3-k3", prompt_set="code", kind="none", up_to=1.0)
    two = answers(found.model_copy(update={"crossovers": [ahead]}))
    said = next(one for one in two if one.id == "stops-paying/eagle3-k3/code")
    assert said.good is None
    assert "not surely at 1 at once" in said.text


def test_a_gain_that_the_steps_cannot_hold_is_told_and_points_nowhere() -> None:
    """9× of two trials where tokens per step and step times make 2.5×: a caveat names both figures."""
    found = with_speedups(speedup("eagle3-k3", 1, Interval(value=9.0, low=0.5, high=160.0, n=2)))
    said = answer(found, "caveat/unexplained")
    assert "eagle3-k3 on code at 1 at once measured 9.00×, its steps explain 2." in said.text
    assert "caveat/unexplained" not in {one.id for one in analysed().answers}


def test_a_baseline_that_moves_is_told() -> None:
    """16.6 and 9.3 tok/s are 78 % apart: a caveat; trials that agree within 15 % give none."""
    document = analysed()
    assert "caveat/baseline-drift" not in {one.id for one in document.answers}
    cell = next(one for one in document.cells if one.arm == "baseline")
    rates = dict(zip((1, 2, 3), (16.6, 9.3, 12.0), strict=True))
    trials = [
        trial.model_copy(
            update={"figures": trial.figures.model_copy(update={"output_tok_s": rates[trial.trial]})}
        )
        for trial in cell.trials
        if trial.figures
    ]
    moved = cell.model_copy(update={"trials": trials})
    cells = [moved if one is cell else one for one in document.cells]
    said = next(
        one
        for one in answers(document.model_copy(update={"cells": cells}))
        if one.id == "caveat/baseline-drift"
    )
    assert "code at 1 at once by 78%" in said.text


def test_differing_greedy_texts_have_a_cause_and_a_check() -> None:
    """Four arms' differences are one sentence, in tokens where known, with what causes them and how to check."""
    rows = [
        NaturalEnd(
            arm=arm,
            prompt_set="code",
            state="ok",
            compared_texts=4,
            different=[TextDifference(prompt_id="a", at_character=125, at_token=token)],
        )
        for arm, token in (("eagle3-k3", 29), ("p-eagle-k7", None))
    ]
    told = [one for one in answers(analysed().model_copy(update={"natural_end": rows})) if "texts" in one.id]
    assert len(told) == 1
    assert "eagle3-k3 on code in 1 of 4, from token 29 on" in told[0].text
    assert "p-eagle-k7 on code in 1 of 4, from character 125 on" in told[0].text
    assert "target.dtype: float32" in told[0].text


def test_an_unfinished_run_blames_nobody() -> None:
    """Only the baseline's first cell ran: nothing to compare yet, go on; cells and natural ends that are left are counted."""
    document = analysed()
    kept = document.cells[0]
    cells = [
        one if one is kept else one.model_copy(update={"state": "missing", "trials": [], "pooled": None})
        for one in document.cells
    ]
    rows = [NaturalEnd(arm="eagle3-k3", prompt_set=name, state="missing") for name in SETS]
    empty = {"cells": cells, "natural_end": rows, "speedups": [], "crossovers": [], "steps": [], "costs": []}
    found = answers(document.model_copy(update={**empty, "latency_differences": []}))
    assert found[0].text.startswith(
        "Nothing can be compared yet: no cell of eagle3-k3 and p-eagle-k7 was run"
    )
    assert "Other cells stand" not in found[0].text
    assert found[0].good is None
    left = next(one for one in found if one.id == "caveat/missing-natural-end")
    assert left.text.startswith("2 of 2 runs to the natural end were not run yet")


def test_a_ratio_that_goes_up_and_down_is_said_to() -> None:
    """A fit that pools a loss at one load away does not make the draft ahead at every load."""
    wavy = eagle(["code"])
    steps = dict(wavy.step_s)
    steps[4] *= 2.4
    made = simulate(Run([baseline(["code"]), replace(wavy, step_s=steps)]))
    found = analyse(made.document, made.records_of)
    ratios = {one.concurrency: one.ratio.value for one in found.speedups}
    assert ratios[4] < 1 < min(ratios[1], ratios[16])
    text = next(one.text for one in found.answers if one.id.startswith("stops-paying/"))
    assert "every load" not in text
    assert "4 at once" in text or "undecided" in text or "stops paying at" in text


def with_other_rates(document: RunDocument, rates: dict[tuple[str, int], dict[int, float]]) -> RunDocument:
    """The document with these output tok/s by arm and concurrency on `code`; trials that are not named have failed."""
    cells = []
    for cell in document.cells:
        wanted = rates.get((cell.arm, cell.concurrency)) if cell.prompt_set == "code" else None
        if wanted is not None:
            trials = [
                trial.model_copy(
                    update={
                        "failed": "" if trial.trial in wanted else "the engine ended",
                        "figures": trial.figures.model_copy(
                            update={"output_tok_s": wanted.get(trial.trial, 1.0)}
                        ),
                    }
                )
                for trial in cell.trials
                if trial.figures
            ]
            cell = cell.model_copy(update={"trials": trials})  # noqa: PLW2901 - the cell as it is kept
        cells.append(cell)
    return document.model_copy(update={"cells": cells})


def test_two_drafts_are_compared_in_the_trials_they_share() -> None:
    """The machine halves its speed after trial 1, in which only one of them ran: in trials 2 and 3 P-EAGLE makes 1.2 times."""
    made = with_other_rates(
        analysed(),
        {
            ("eagle3-k3", 1): {1: 200.0, 2: 100.0, 3: 101.0},
            ("p-eagle-k7", 1): {2: 120.0, 3: 121.0},
            ("baseline", 1): {1: 50.0, 2: 50.0, 3: 50.0},
        },
    )
    said = answer(analyse(made), "rival/p-eagle-k7/eagle3-k3/code")
    assert said.values["ratio@1"] == pytest.approx(math.sqrt(1.2 * 121 / 101))
    assert re.search(r"is ahead of eagle3-k3 at .*\b1 .*\(1\.20×\)", said.text)
    low, high = said.values["low@1"], said.values["high@1"]
    assert low is not None
    assert high is not None
    assert 1 < low < 1.2 < high


def test_two_drafts_are_compared_where_the_baseline_failed_too() -> None:
    """Both stand at 4, the baseline does not: their own ratio needs none."""
    failed = {("baseline", "code", 4): "out of memory"}
    made = simulate(Run([baseline(["code"]), eagle(["code"]), p_eagle(["code"])], failed=failed))
    found = analyse(made.document, made.records_of)
    said = answer(found, "rival/p-eagle-k7/eagle3-k3/code")
    assert sorted(name for name in said.values if name.startswith("ratio@")) == [
        f"ratio@{load}" for load in (1, 16, 4, 64)
    ]


def test_a_draft_ahead_within_the_noise_is_not_surely_ahead() -> None:
    """1.3, 0.9 and 1.1 times the other's tok/s: ahead, and not surely; as even at 16, and sure at the other loads."""
    even = dict.fromkeys((1, 2, 3), 100.0)
    made = with_other_rates(
        analysed(), {("eagle3-k3", 4): even, ("p-eagle-k7", 4): {1: 130.0, 2: 90.0, 3: 110.0}}
    )
    text = answer(analyse(made), "rival/p-eagle-k7/eagle3-k3/code").text
    assert "4 at once (1.09×)" in text
    assert "; not surely at 4 and 16 at once" in text


@pytest.mark.parametrize("state", ["failed", "invalid", "missing"])
def test_an_arm_whose_cells_do_not_stand_is_not_known_rather_than_no_draft(state: str) -> None:
    """EAGLE-3 would pay at 64 and its cell does not stand, P-EAGLE does not pay: nobody knows, and nothing is switched off."""
    words = {"failed": "failed", "invalid": "must not be believed", "missing": "never ran"}[state]
    document = simulate(Run([baseline(["code"]), eagle(["code"]), p_eagle(["code"])])).document
    cells = [
        cell.model_copy(update={"state": state, "reason": "out of memory"})
        if (cell.arm, cell.concurrency) == ("eagle3-k3", 64)
        else cell
        for cell in document.cells
    ]
    found = analyse(document.model_copy(update={"cells": cells}))
    overall, of_set = found.answers[:2]
    assert f"Not known for code at 64 at once (eagle3-k3 {words})." in overall.text
    assert "Leave it off" not in overall.text
    assert "every load measured" not in overall.text
    assert of_set.text.endswith(f"not known at 64 at once (eagle3-k3 {words}).")
    assert "no draft" not in of_set.text
    assert overall.good is None
    whole = analyse(document)
    assert "64" in whole.answers[1].text
    assert "ot known" not in whole.answers[0].text


def test_a_set_without_any_speed_up_is_not_known() -> None:
    """All drafts failed on chat: the advice for code stands, chat is not left off in silence."""
    failed = {("eagle3-k3", "chat", load): "out of memory" for load in GRID}
    made = simulate(Run([baseline(), eagle()], failed=failed))
    found = analyse(made.document, made.records_of)
    assert "Switch the draft on for code" in found.answers[0].text
    assert "Not known for chat at 1 to 64 at once (eagle3-k3 failed)." in found.answers[0].text
    assert (
        answer(found, "recommendation/chat").text
        == "For chat: not known at 1 to 64 at once (eagle3-k3 failed)."
    )


def test_a_load_without_its_baseline_is_not_known() -> None:
    """The baseline failed at 4: the draft may pay there or not."""
    made = simulate(Run([baseline(["code"]), eagle(["code"])], failed={("baseline", "code", 4): "killed"}))
    found = analyse(made.document, made.records_of)
    assert "Not known for code at 4 at once (baseline failed)." in found.answers[0].text
    assert "at every load measured" not in found.answers[0].text


def test_an_arm_that_surely_pays_is_advised_though_another_failed() -> None:
    """EAGLE-3 failed at 1, P-EAGLE pays there: that is known."""
    failed = {("eagle3-k3", "code", 1): "killed"}
    made = simulate(Run([baseline(["code"]), eagle(["code"]), p_eagle(["code"])], failed=failed))
    found = analyse(made.document, made.records_of)
    assert "ot known" not in found.answers[0].text
    assert "p-eagle-k7 at 1" in found.answers[1].text


def test_a_loss_at_two_loads_that_the_curve_hides_is_named() -> None:
    """Ahead on the whole, behind at 4 and at 16: both loads stand in the sentence."""
    found = with_speedups(
        *(
            speedup("eagle3-k3", load, Interval(value=value, low=value - 0.02, high=value + 0.02, n=3))
            for load, value in ((1, 1.6), (4, 0.9), (16, 0.95), (64, 1.4))
        )
    )
    ahead = Crossover(arm="eagle3-k3", prompt_set="code", kind="none", up_to=64.0)
    told = answers(found.model_copy(update={"crossovers": [ahead]}))
    said = next(one for one in told if one.id == "stops-paying/eagle3-k3/code")
    assert "goes up and down with the load: not ahead at 4 and 16 at once" in said.text


def test_two_trials_make_no_sentence_good_or_bad() -> None:
    """Both ratios surely above 1 by their interval, of two trials: the same rule as the advice at the top, leaning on."""
    found = with_speedups(
        *(speedup("eagle3-k3", load, Interval(value=1.5, low=1.4, high=1.6, n=2)) for load in (1, 4))
    )
    told = {one.id.split("/")[0]: one for one in found.answers if "eagle3-k3" in one.id}
    assert {kind for kind, one in told.items() if one.good is not None} <= {"caveat", "tail"}
    assert told["speedup"].leans is True
    assert found.answers[0].good is None
    assert found.answers[0].leans is True


def test_a_tail_of_two_trials_is_neither_good_nor_bad() -> None:
    """The bootstrap of two starts of a server says little of a third: it leans off, and only three decide."""
    goods = []
    for n in (2, 3):
        made = simulate(Run([baseline(("code",)), p_eagle(("code",))], trials=n))
        said = answer(analyse(made.document, made.records_of), "tail/p-eagle-k7/code")
        goods.append(said.good)
    assert goods == [None, False]


def test_no_draft_though_a_ratio_is_above_one_has_its_reason() -> None:
    """What the steps explain, an interval that holds 1, or trials too small to point anywhere."""
    nowhere = with_speedups(speedup("eagle3-k3", 1, Interval(value=1.03, n=1)), steps_explain=False)
    assert "1.03× at 1 at once, below the 1.05× asked of it where there are so few" in nowhere.answers[1].text
    holds = with_speedups(speedup("eagle3-k3", 1, Interval(value=1.19, low=0.9, high=1.5, n=3)))
    assert "1.19× at 1 at once, whose interval holds 1" in holds.answers[1].text
    flat = with_speedups(speedup("eagle3-k3", 1, Interval(value=1.19, n=1)))
    dear = [
        cell.model_copy(update={"pooled": cell.pooled.model_copy(update={"step_ms": 1e3})})
        if cell.arm == "eagle3-k3" and cell.pooled
        else cell
        for cell in flat.cells
    ]
    told = answers(flat.model_copy(update={"cells": dear}))
    said = next(one for one in told if one.id == "recommendation/code")
    assert re.search(
        r"1\.19× at 1 at once, but its steps explain 0\.\d\d× only: the rest is noise", said.text
    )


def test_drafts_of_a_forecast_are_compared_by_what_they_need_too() -> None:
    """Each acceptance was stated by itself: break-even ALs stand beside the ratio, and nothing is sure."""
    made = simulate(Run([baseline(("code",)), eagle(("code",)), p_eagle(("code",))]))
    info = ForecastInfo(
        stated={
            name: StatedRates(rates=[0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]) for name in ("eagle3", "p-eagle")
        },
        synthetic=True,
    )
    found = analyse(made.document.model_copy(update={"forecast": info}), made.records_of)
    said = answer(found, "rival/p-eagle-k7/eagle3-k3/code")
    assert said.good is None
    needs = {(one.arm, one.concurrency): one.break_even_length for one in found.steps}
    for load in GRID:
        mine, theirs = needs["p-eagle-k7", load], needs["eagle3-k3", load]
        assert (said.values[f"needs@{load}"], said.values[f"rival_needs@{load}"]) == (mine, theirs)
        assert f"{mine:.2f} against {theirs:.2f} at {load}" in said.text
    labels = found.labels.model_copy(update={"acceptance": "synthetic"})
    told = {one.id: one for one in answers(found.model_copy(update={"labels": labels}))}
    assert "stated of eagle3 and p-eagle one by one" in told["caveat/synthetic-acceptance"].text
    assert "need" not in answer(analysed(), "rival/p-eagle-k7/eagle3-k3/code").text

"""From cells to answers: a simulated run with known truth says what it should, and a broken one says why it cannot."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from outrider.bench.analysis import analyse, standing
from outrider.bench.answers import TARGET
from outrider.bench.document import Answer, RunDocument
from outrider.bench.figures import CellPrice
from outrider.cost.prices import read_prices
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
    assert "it ends with 0.7" in passing.text
    assert "falls short of 2.5× everywhere" in answer(document, "target/eagle3-k3/chat").text
    tail = answer(document, "tail/p-eagle-k7/code")
    assert tail.good is False
    assert (tail.values["e2e_ms.p99@64"] or 0) > 0
    assert "draft tokens rejected" in tail.text
    assert "eagle3-k3 degrades on chat (AL 1.5" in answer(document, "degrades/eagle3-k3").text


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
    assert "GPT-5.4 asks 20.21 USD" in answer(document, "cost/code").text


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
    assert "very wide interval" in answer(found, "caveat/few-trials").text


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
    assert "Only 1 trial: no usable intervals" in found.answers[0].text
    assert "a model card" in answer(found, "caveat/synthetic-acceptance").text


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

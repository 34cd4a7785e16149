"""The gate load by load and figure by figure: what one of many hides is found and named, what is not watched is told."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.bench.compare import Tolerances, compare
from outrider.bench.comparison import Comparison
from outrider.cli.compare import as_text, compare_command
from tests.bench.gate_runs import DRAFT, Model, run_of

EIGHT = Model(1, concurrency=(1, 4, 16, 64), trial_noise=0.01, cell_noise=0.01)
QUIET = Model(1, trial_noise=0.005, cell_noise=0.005)


def against(model: Model, tolerances: Tolerances | None = None, **change: object) -> Comparison:
    """The model's run against another of it that differs by noise and by this change."""
    return compare(run_of(model), run_of(replace(model, seed=2, **change)), tolerances)  # type: ignore[arg-type]


def run_command(tmp_path: Path, reference: Model, candidate: Model, *more: str) -> tuple[int, str]:
    """Exit code and output of the command on two written runs."""
    for name, model in (("a.json", reference), ("b.json", candidate)):
        (tmp_path / name).write_text(run_of(model).model_dump_json(by_alias=True))
    done = CliRunner().invoke(compare_command, [str(tmp_path / "a.json"), str(tmp_path / "b.json"), *more])
    return done.exit_code, done.output


def test_one_load_of_eight_that_doubles_its_tpot_is_found_and_named() -> None:
    """The mean over eight loads rises by 9 % only; the sentence names the load first, with its own change."""
    found = against(EIGHT, planted={("TPOT", DRAFT, "chat", 16): 2.0})
    assert found.regressed
    words = rf"Regression: TPOT of {DRAFT} on chat at 16 at once rose by (9|10)\d\.\d% \(surely [89]\d\.\d%\), more than 3\.0%"
    assert re.match(words, found.sentence()), found.sentence()
    assert {(one.prompt_set, one.concurrency) for one in found.worse if one.concurrency} == {("chat", 16)}
    assert any("chat at 16" in line and line.endswith("BAD") for line in as_text(found).splitlines())


def test_what_one_load_loses_others_may_gain() -> None:
    """One load at 1.5 times, the seven others 6 % quicker: the mean does not move, and the gate trips all the same."""
    cells = [(prompts, running) for prompts in EIGHT.sets for running in EIGHT.concurrency]
    planted = {("TPOT", DRAFT, *cell): 0.944 for cell in cells} | {("TPOT", DRAFT, "code", 64): 1.5}
    found = against(EIGHT, planted=planted)
    assert [one.where for one in found.worse if one.figure == "TPOT"] == [f"{DRAFT} on code at 64 at once"]


def test_an_arm_that_is_slower_everywhere_is_named_as_a_whole() -> None:
    """30 % at every load: all of it is told, not the load that noise made the worst."""
    found = against(EIGHT, tpot={DRAFT: 1.3})
    assert found.sentence().startswith(f"Regression: TPOT of {DRAFT} rose by ")
    assert len([one for one in found.worse if one.figure == "TPOT" and one.concurrency]) == 8


def test_an_engine_that_is_slower_for_all_is_named_so() -> None:
    """Every arm at 1.3 times: all arms, not the first of them."""
    found = against(EIGHT, tpot={DRAFT: 1.3, "baseline": 1.3})
    assert found.sentence().startswith("Regression: TPOT of all arms rose by ")


@pytest.mark.parametrize(
    ("planted", "figure", "switch"),
    [
        ("output tok/s", "output tok/s", "tok-s"),
        ("TTFT", "TTFT p50", "ttft"),
        ("TTFT tail", "TTFT p95", "ttft-tail"),
        ("E2E tail", "E2E p95", "e2e-tail"),
        ("step gap", "step gap p99", "step-gap"),
    ],
)
def test_each_figure_is_a_gate_that_can_be_switched_off(
    tmp_path: Path, planted: str, figure: str, switch: str
) -> None:
    """Worse by a tenth in this figure alone: exit 1 and its name; let through or switched off: exit 0."""
    worse = replace(QUIET, seed=2, planted={(planted, DRAFT, "", 0): 1.12})
    code, text = run_command(tmp_path, QUIET, worse)
    assert code == 1, text
    sentence = text.strip().splitlines()[-1]
    assert sentence.startswith(
        f"Regression: {figure} of {DRAFT} {'fell' if switch == 'tok-s' else 'rose'} by 1"
    )
    assert run_command(tmp_path, QUIET, worse, "--tolerance", f"{switch}=0.2")[0] == 0
    code, text = run_command(tmp_path, QUIET, worse, "--tolerance", f"{switch}=off")
    assert code == 0
    assert figure not in text
    single = replace(QUIET, seed=2, planted={(planted, DRAFT, "chat", 4): 1.4})
    _, text = run_command(tmp_path, QUIET, single)
    assert text.strip().splitlines()[-1].startswith(f"Regression: {figure} of {DRAFT} on chat at 4 at once ")


@pytest.mark.parametrize(
    ("requests", "gated"),
    [(40, set()), (123, {"E2E p95", "TTFT p95"}), (400, {"E2E p99", "TTFT p99"})],
)
def test_a_percentile_is_gated_as_far_as_a_trial_bears_it(requests: int, gated: set[str]) -> None:
    """p99 from 368 values a trial, p95 from 72; below that the figure is told as not gated, with where and why."""
    found = against(replace(QUIET, requests=requests))
    figures = {one.figure for one in found.checks}
    assert {name for name in figures if name.startswith(("E2E", "TTFT p9"))} == gated
    assert "step gap p99" in figures
    told = [
        one for one in found.not_gated if one.startswith("E2E p99: baseline on code at 1 at once and 7 more")
    ]
    assert bool(told) == (not gated)
    if told:
        assert "fewer than two trials have the 72 values of a p95" in told[0]
        assert f"not gated: {told[0]}" in " ".join(as_text(found).split())


def test_where_one_load_has_few_requests_the_others_are_gated() -> None:
    """A p99 where the count bears it, a p95 where it does not, and the load with neither by its name."""
    runs = []
    for seed in (1, 2):
        plenty, some, few = (run_of(replace(QUIET, seed=seed, requests=n)) for n in (400, 123, 40))
        cells = [
            small
            if one.concurrency == 1 and one.prompt_set == "code"
            else middle
            if one.concurrency == 1
            else one
            for one, middle, small in zip(plenty.cells, some.cells, few.cells, strict=True)
        ]
        runs.append(plenty.model_copy(update={"cells": cells}))
    found = compare(*runs)
    loads = {
        (one.figure, one.prompt_set, one.concurrency)
        for one in found.checks
        if one.figure.startswith("E2E") and one.concurrency
    }
    assert loads == {("E2E p99", "code", 4), ("E2E p99", "chat", 4)}
    assert {one.arm for one in found.checks if one.figure == "E2E p95"} == {"baseline", DRAFT, "all"}
    assert [one.split(" (")[0] for one in found.not_gated if one.startswith("E2E")] == [
        "E2E p99: baseline on code at 1 at once and 1 more of 8 cells"
    ]


def test_acceptance_that_halves_at_one_load_is_found_and_named() -> None:
    """A draft broken at 64 at once alone: AL - 1 of that load."""
    reference, after = run_of(EIGHT), run_of(replace(EIGHT, seed=2))
    broken = run_of(replace(EIGHT, seed=3, rates={DRAFT: 0.5}))
    cells = [
        bad if (one.arm, one.prompt_set, one.concurrency) == (DRAFT, "code", 64) else one
        for one, bad in zip(after.cells, broken.cells, strict=True)
    ]
    found = compare(reference, after.model_copy(update={"cells": cells}))
    assert found.sentence().startswith(f"Regression: AL - 1 of {DRAFT} on code at 64 at once fell by ")


def test_a_draft_that_falls_silent_at_one_load_is_a_regression_there() -> None:
    """It drafts at seven loads and no more at the eighth: the others hide nothing, and stay gated."""
    found = against(EIGHT, off=((DRAFT, "code", 64),))
    assert found.sentence().startswith(f"Regression: AL - 1 of {DRAFT} on code at 64 at once fell by 100.0%")
    assert f"{DRAFT} drafted nothing in the candidate on code at 64 at once" in found.notes
    assert {one.prompt_set for one in found.checks if one.figure == "AL - 1" and one.concurrency is None} == {
        "code",
        "chat",
    }


def test_a_draft_that_is_off_at_a_load_by_its_schedule_is_gated_at_the_others() -> None:
    """Silent at 64 in both runs: that load has no acceptance to lose, the rest has."""
    off = replace(EIGHT, off=((DRAFT, "code", 64), (DRAFT, "chat", 64)))
    assert not against(off).regressed
    found = against(off, rates={DRAFT: 0.9})
    assert "AL - 1" in {one.figure for one in found.worse}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("0.05x", "'0.05x' is no share"),
        ("1", "'1' is no share"),
        ("off", "'off' is no share"),
        ("speed=0.1", "'speed' is none of al, tpot, tok-s"),
        ("ttft=-0.1", "'-0.1' is no share from 0 to below 1 and not off"),
    ],
)
def test_a_tolerance_that_is_none_is_refused(tmp_path: Path, given: str, words: str) -> None:
    """Exit 2 with what is allowed."""
    code, text = run_command(tmp_path, QUIET, QUIET, "--tolerance", given)
    assert code == 2
    assert words in " ".join(text.split())


def test_a_named_tolerance_goes_before_a_bare_one(tmp_path: Path) -> None:
    """Wherever it stands: 0.3 for all, 0.03 for TPOT, so a TPOT worse by a tenth trips."""
    worse = replace(QUIET, seed=2, tpot={DRAFT: 1.1})
    assert run_command(tmp_path, QUIET, worse, "--tolerance", "0.3")[0] == 0
    for order in (("tpot=0.03", "0.3"), ("0.3", "tpot=0.03")):
        more = [word for share in order for word in ("--tolerance", share)]
        assert run_command(tmp_path, QUIET, worse, *more)[0] == 1


def test_core_figures_that_are_off_are_not_asked_for() -> None:
    """Without acceptance a draft with a dozen drafts can be gated on its times."""
    few = replace(QUIET, drafts=12)
    assert not against(few, Tolerances(acceptance=None)).regressed

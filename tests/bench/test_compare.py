"""The gate: trips on a planted regression, not on noise, and refuses what cannot be compared."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.bench.compare import Tolerances, compare, read_run
from outrider.bench.document import RunDocument
from outrider.cli.compare import as_text, compare_command
from outrider.core.errors import MeasurementError
from tests.bench.gate_runs import DRAFT, Model, run_of


def regressed(reference: Model, candidate: Model) -> bool:
    """What the gate says of two runs."""
    return compare(run_of(reference), run_of(candidate)).regressed


def exit_code(tmp_path: Path, reference: RunDocument, candidate: RunDocument, *more: str) -> tuple[int, str]:
    """The command on two written runs: one as a folder, one as a file."""
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "a" / "run.json").write_text(reference.model_dump_json(by_alias=True))
    (tmp_path / "b.json").write_text(candidate.model_dump_json(by_alias=True))
    done = CliRunner().invoke(compare_command, [str(tmp_path / "a"), str(tmp_path / "b.json"), *more])
    if isinstance(done.exception, MeasurementError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    "worse", [{"tpot": {DRAFT: 1.1}}, {"tpot": {DRAFT: 1.1, "baseline": 1.1}}, {"rates": {DRAFT: 0.9}}]
)
def test_a_planted_regression_of_ten_percent_exits_1(
    tmp_path: Path, worse: dict[str, dict[str, float]]
) -> None:
    """The draft's TPOT, everybody's TPOT, or acceptance: exit 1, and the sentence names what regressed."""
    code, text = exit_code(tmp_path, run_of(Model(1)), run_of(Model(2, **worse)))  # type: ignore[arg-type]
    assert code == 1
    sentence = text.strip().splitlines()[-1]
    assert sentence.startswith("Regression: ")
    assert ("AL - 1" in sentence or "position" in sentence) == ("rates" in worse)


def test_ten_runs_of_noise_exit_0(tmp_path: Path) -> None:
    """Ten candidates that differ from the reference by noise alone (2 % a start, 3 % a cell)."""
    reference = run_of(Model(0))
    for seed in range(100, 110):
        code, text = exit_code(tmp_path, reference, run_of(Model(seed)))
        assert code == 0, text
        assert "No regression in" in text


def test_a_better_candidate_is_no_regression() -> None:
    """One-sided: 10 % quicker and more accepted passes."""
    assert not regressed(Model(1), Model(2, tpot={DRAFT: 0.9}, rates={DRAFT: 1.1}))


def test_the_same_run_twice_is_no_regression() -> None:
    """A run against itself: every change is exactly zero."""
    found = compare(run_of(Model(3)), run_of(Model(3)))
    assert not found.regressed
    assert {check.change for check in found.checks} == {0.0}


def test_one_dead_position_is_found_where_the_sum_hides_it() -> None:
    """Position 3 loses 30 % alone: its own check trips."""
    before = run_of(Model(1, drafts=5000))
    after = run_of(Model(2, drafts=5000))
    cells = []
    for cell in after.cells:
        trials = []
        for trial in cell.trials:
            assert trial.figures is not None
            counts = trial.figures.acceptance.counts
            if counts.per_position:
                lost = 0.3 * counts.per_position[2]
                per_position = [*counts.per_position[:2], counts.per_position[2] - lost]
                counts = counts.model_copy(
                    update={"per_position": per_position, "accepted": counts.accepted - lost}
                )
            drafts = trial.figures.acceptance.model_copy(update={"counts": counts})
            trials.append(
                trial.model_copy(update={"figures": trial.figures.model_copy(update={"acceptance": drafts})})
            )
        cells.append(cell.model_copy(update={"trials": trials}))
    found = compare(before, after.model_copy(update={"cells": cells}), Tolerances(acceptance=0.15))
    assert [check.figure for check in found.checks if check.regressed] == ["position 3"]


def test_a_cell_that_fell_is_a_regression(tmp_path: Path) -> None:
    """A cell that stood in the reference and fails in the candidate: exit 1 with its reason."""
    after = run_of(Model(2))
    dead = after.cells[-1].model_copy(update={"state": "failed", "reason": "the engine ended"})
    code, text = exit_code(
        tmp_path, run_of(Model(1)), after.model_copy(update={"cells": [*after.cells[:-1], dead]})
    )
    assert code == 1
    assert "failed now (the engine ended)" in text


def test_a_draft_that_stops_drafting_is_a_regression() -> None:
    """No drafts at all in the candidate, though its counters are whole: AL - 1 is lost."""
    after = run_of(Model(2))
    silent = {cell.concurrency: cell for cell in after.cells if cell.arm == "baseline"}
    cells = [
        silent[cell.concurrency].model_copy(update={"arm": cell.arm, "prompt_set": cell.prompt_set})
        if cell.arm == DRAFT
        else cell
        for cell in after.cells
    ]
    found = compare(run_of(Model(1)), after.model_copy(update={"cells": cells}))
    assert "AL - 1" in {check.figure for check in found.checks if check.regressed}
    assert any("drafted nothing" in note for note in found.notes)


def test_a_useless_reference_is_refused() -> None:
    """AL under 1.05 in the reference: nothing to lose, exit 12."""
    with pytest.raises(MeasurementError, match=r"AL 1\.0\d+, under 1\.05"):
        compare(run_of(Model(1, rates={DRAFT: 0.02})), run_of(Model(2)))


@pytest.mark.parametrize("trials", [1])
def test_one_trial_is_too_few(tmp_path: Path, trials: int) -> None:
    """Without two trials there is no noise to compare with: exit 12, not 0."""
    code, text = exit_code(tmp_path, run_of(Model(1, trials=trials)), run_of(Model(2, trials=trials)))
    assert code == 12
    assert "too few samples" in text


def test_a_gate_that_sees_nothing_says_so() -> None:
    """Trials that differ by 25 %: not a pass but an error."""
    with pytest.raises(MeasurementError, match="too noisy to be a gate: TPOT"):
        compare(run_of(Model(1, trial_noise=0.25)), run_of(Model(4, trial_noise=0.25)))


def test_a_draft_whose_acceptance_is_not_watched_is_no_pass(tmp_path: Path) -> None:
    """Quiet times, but a handful of drafts: no check of AL - 1, so exit 12 and the arm's name, not 0."""
    few = {"drafts": 12, "trial_noise": 0.001, "cell_noise": 0.001}
    code, text = exit_code(tmp_path, run_of(Model(1, **few)), run_of(Model(2, **few)))  # type: ignore[arg-type]
    assert code == 12
    assert f"AL - 1 of {DRAFT} has no check" in text


def test_sets_too_small_alone_are_a_gate_together() -> None:
    """Each set has 180 drafts, both have 360: AL - 1 is checked over both, and a loss of 60 % is found there."""
    small = Model(1, drafts=30, trial_noise=0.001, cell_noise=0.001, temperature=0.0)
    worse = Model(1, drafts=30, trial_noise=0.001, cell_noise=0.001, temperature=0.0, rates={DRAFT: 0.4})
    lost = compare(run_of(small), run_of(worse))
    assert [(check.figure, check.prompt_set) for check in lost.checks if check.figure == "AL - 1"] == [
        ("AL - 1", "all")
    ]
    assert any(check.regressed for check in lost.checks if check.figure == "AL - 1")


def test_one_good_arm_does_not_excuse_another() -> None:
    """A second draft with too few drafts is named, though the first is watched closely."""
    runs = [run_of(Model(seed)) for seed in (1, 2)]
    both = []
    for run, thin in zip(runs, (run_of(Model(3, drafts=12)), run_of(Model(4, drafts=12))), strict=True):
        arm = next(one for one in run.arms if one.name == DRAFT).model_copy(update={"name": "other"})
        cells = [cell.model_copy(update={"arm": "other"}) for cell in thin.cells if cell.arm == DRAFT]
        both.append(run.model_copy(update={"arms": [*run.arms, arm], "cells": [*run.cells, *cells]}))
    compare(*runs)
    with pytest.raises(MeasurementError, match="AL - 1 of other has no check"):
        compare(*both)


@pytest.mark.parametrize("tolerance", [0.15, 0.2, 0.5])
def test_a_large_tolerance_is_not_taken_for_noise(tmp_path: Path, tolerance: float) -> None:
    """Quiet runs pass with any tolerance; what is judged blind is the interval, not what was let through."""
    code, text = exit_code(tmp_path, run_of(Model(1)), run_of(Model(2)), "--tolerance", str(tolerance))
    assert code == 0, text


def test_positions_that_cannot_be_seen_are_named() -> None:
    """A position watched less closely than 20 % is a note, since a pass says nothing of it."""
    few = Model(1, drafts=90, temperature=0.0)
    found = compare(run_of(few), run_of(few))
    assert any(check.blind for check in found.checks if check.figure == "position 3")
    said = (
        r"position rates: \d of 3 checks would not see 20% beyond the tolerance; "
        rf"position 3 of {DRAFT} would have to change by \d+%"
    )
    assert any(re.fullmatch(said, note) for note in found.notes), found.notes


def test_what_the_candidate_did_not_run_is_no_pass() -> None:
    """An arm or a cell that stood and is not there cannot be called no worse."""
    reference = run_of(Model(1))
    kept = [cell for cell in run_of(Model(2)).cells if (cell.arm, cell.concurrency) != ("eagle3-k3", 4)]
    with pytest.raises(MeasurementError, match="not all there"):
        compare(reference, run_of(Model(2)).model_copy(update={"cells": kept}))


def test_an_arm_of_another_length_is_not_the_same_arm() -> None:
    """The name alone makes no arm: method and draft length must be the same."""
    other = run_of(Model(2))
    arms = [arm.model_copy(update={"draft_length": 5}) if arm.draft_length else arm for arm in other.arms]
    with pytest.raises(MeasurementError, match="K = 3, then eagle3 K = 5"):
        compare(run_of(Model(1)), other.model_copy(update={"arms": arms}))


def test_an_unfinished_run_is_to_be_gone_on_with() -> None:
    """Not "more trials": the hint says that it is unfinished; where enough is there, a note does."""
    half = run_of(Model(2)).model_copy(update={"complete": False})
    assert "the candidate is unfinished" in " ".join(compare(run_of(Model(1)), half).notes)
    one = run_of(Model(2, trials=1)).model_copy(update={"complete": False})
    with pytest.raises(MeasurementError, match="too few samples") as caught:
        compare(one, one)
    assert "Both runs are unfinished: repeat" in caught.value.hint
    missing = [cell.model_copy(update={"state": "missing"}) for cell in half.cells]
    with pytest.raises(MeasurementError, match="no cell in common") as caught:
        compare(run_of(Model(1)), half.model_copy(update={"cells": missing}))
    assert "The candidate is unfinished: repeat its command" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {"output_tokens": 50}}, "settings: output_tokens"),
        ({"labels": {"weights": "dummy"}}, "labels: weights"),
        ({"labels": {"acceptance": "synthetic"}}, "labels: acceptance"),
    ],
)
def test_runs_of_two_kinds_are_refused_unless_forced(
    change: dict[str, dict[str, object]], words: str
) -> None:
    """Settings and labels must be the same; forced, the difference is a note."""
    other = run_of(Model(2))
    for field, update in change.items():
        other = other.model_copy(update={field: getattr(other, field).model_copy(update=update)})
    with pytest.raises(MeasurementError, match=f"not comparable: .*{words}"):
        compare(run_of(Model(1)), other)
    assert any(words in note for note in compare(run_of(Model(1)), other, force=True).notes)


def test_other_prompts_or_hardware_are_refused() -> None:
    """The prompts' digest and the machine are part of the kind; memory that varies by a megabyte is not."""
    reference, other = run_of(Model(1)), run_of(Model(2))
    prompts = [one.model_copy(update={"sha256": "other"}) for one in other.prompt_sets]
    with pytest.raises(MeasurementError, match="holds other prompts"):
        compare(reference, other.model_copy(update={"prompt_sets": prompts}))
    for hardware, fails in (({"cores": 64}, True), ({"memory_gib": 23.9}, False)):
        changed = other.model_copy(
            update={"provenance": {"hardware": {**other.provenance["hardware"], **hardware}}}  # type: ignore[dict-item]
        )
        if fails:
            with pytest.raises(MeasurementError, match="hardware: cores is 2 and 64"):
                compare(reference, changed)
        else:
            compare(reference, changed)


def test_runs_with_nothing_in_common_are_refused() -> None:
    """No cell that stands in both: exit 12."""
    missing = run_of(Model(2))
    cells = [cell.model_copy(update={"state": "missing"}) for cell in missing.cells]
    with pytest.raises(MeasurementError, match="no cell in common"):
        compare(run_of(Model(1)), missing.model_copy(update={"cells": cells}))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": "other"}', "\x00"])
def test_what_is_no_run_is_refused_with_a_hint(tmp_path: Path, text: str) -> None:
    """Broken or foreign files: MeasurementError that says what to do."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(MeasurementError, match="is not a run") as caught:
        read_run(tmp_path)
    assert caught.value.hint
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_run(tmp_path / "nothing")


def test_the_table_fits_80_columns() -> None:
    """Also with long names; every row keeps its columns."""
    lines = as_text(compare(run_of(Model(1)), run_of(Model(2, tpot={DRAFT: 1.2})))).splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert any(line.endswith("BAD") for line in lines)


def test_json_holds_every_check(tmp_path: Path) -> None:
    """Unrounded figures and the verdict, for machines."""
    code, text = exit_code(tmp_path, run_of(Model(1)), run_of(Model(2, rates={DRAFT: 0.8})), "--json")
    found = json.loads(text)
    assert code == 1
    assert found["regressed"] is True
    assert {"figure", "change", "surely", "tolerance", "regressed", "seen", "chance"} <= found["checks"][
        0
    ].keys()
    assert any(check["concurrency"] == 4 for check in found["checks"])
    assert {"not_gated", "notes", "fallen", "sentence"} <= found.keys()


def test_times_in_other_units_give_the_same_checks() -> None:
    """Seconds or milliseconds: every relative change and bound of a time is the same."""
    small, large = (
        compare(*(run_of(Model(seed, tpot=dict.fromkeys(("baseline", DRAFT), factor))) for seed in (1, 2)))
        for factor in (1.0, 1000.0)
    )
    assert len(small.checks) == len(large.checks) > 50
    for one, other in zip(small.checks, large.checks, strict=True):
        assert (one.change, one.surely, one.seen, one.chance) == pytest.approx(
            (other.change, other.surely, other.seen, other.chance), abs=1e-9
        )
        assert one.surely <= one.change

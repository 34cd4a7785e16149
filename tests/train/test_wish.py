"""What is wanted of a training: held against the folder's beginning, told to the trainer, and judged by what is served."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from outrider.core.errors import TrainingError
from outrider.measure.prompts import Prompt, PromptSet
from outrider.stack.load import load_stack
from outrider.stack.models import Stack
from outrider.train.events import Finished, Planned
from outrider.train.pair import training_facts, write_stack
from outrider.train.process import JOB, TrainSummary
from outrider.train.prompts import PromptSettings
from outrider.train.rows import DropCounts
from outrider.train.run import FLOOR, Data, drafted, job_for, refuse_broken
from outrider.train.selfplay import SelfPlay
from outrider.train.wish import Wish, keep_record

TARGET = {"wheel": "ab" * 32}
CODE = PromptSet("code", (Prompt("code/1", ("Write a function.",)),), "code", "0" * 64)


def wish(out: Path) -> Wish:
    """Small, with one held-out set."""
    return Wish("eagle3", out, 100, sets=(CODE,))


def stack(model: str = "org/target") -> Stack:
    """A stack of a hub's target."""
    return Stack.model_validate({"apiVersion": "outrider/v1alpha1", "target": {"model": model}})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"conversations": 200}, "conversations"),
        ({"prompts": PromptSettings(play=SelfPlay(openings=("Say",)))}, "openings"),
        ({"prompts": PromptSettings(sources=("mine.jsonl",))}, "sources"),
        ({"sets": ()}, "held_out"),
    ],
)
def test_a_folder_goes_on_with_the_data_it_was_begun_with(
    tmp_path: Path, change: dict[str, object], named: str
) -> None:
    """The same wish passes twice; another one is refused, and what differs is named, and only that."""
    keep_record(wish(tmp_path), TARGET)
    keep_record(wish(tmp_path), TARGET)
    with pytest.raises(TrainingError, match=f"begun with other data: {named} differ"):
        keep_record(replace(wish(tmp_path), **change), TARGET)  # type: ignore[arg-type]


def test_another_target_is_another_run(tmp_path: Path) -> None:
    """Answers of one target are not those of the next."""
    keep_record(wish(tmp_path), TARGET)
    with pytest.raises(TrainingError, match="target differ"):
        keep_record(wish(tmp_path), {"wheel": "cd" * 32})


def test_method_and_training_may_differ(tmp_path: Path) -> None:
    """They do not decide the data."""
    keep_record(wish(tmp_path), TARGET)
    keep_record(replace(wish(tmp_path), method="p-eagle", settings={"epochs": 9}), TARGET)


def test_rows_of_another_head_must_be_this_target_s_and_keep_the_sets_out(tmp_path: Path) -> None:
    """Sharing them is refused where a set would be measured that was not held out, or another target wrote them."""
    begun = tmp_path / "first"
    keep_record(wish(begun), TARGET)
    shared = replace(wish(tmp_path / "second"), rows_of=begun, conversations=7)
    keep_record(shared, TARGET)
    with pytest.raises(TrainingError, match="target differ"):
        keep_record(shared, {"wheel": "cd" * 32})
    with pytest.raises(TrainingError, match="held_out differ"):
        keep_record(replace(shared, sets=(replace(CODE, prompts=(Prompt("x", ("y",)),)),)), TARGET)
    with pytest.raises(TrainingError, match="holds no conversations"):
        keep_record(replace(shared, rows_of=tmp_path / "nowhere"), TARGET)


@pytest.mark.parametrize("length", [None, 1.0, FLOOR - 0.01])
def test_a_head_under_the_floor_is_broken(length: float | None) -> None:
    """The sentence has the figure; a head at the floor passes."""
    with pytest.raises(TrainingError, match="the head is broken"):
        refuse_broken(length)
    refuse_broken(FLOOR)


def test_the_trainer_is_told_a_name_and_no_path(tmp_path: Path) -> None:
    """A hub's id, or the served name of weights on this machine: what the head's config says is true elsewhere too."""
    assert job_for(stack(), tmp_path, tmp_path / "rows", wish(tmp_path)).target_name == "org/target"
    assert job_for(stack("/models/mine"), tmp_path, tmp_path / "rows", wish(tmp_path)).target_name == "mine"


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    """Its name is in the sentence."""
    with pytest.raises(TrainingError, match="epoch_count"):
        job_for(stack(), tmp_path, tmp_path / "rows", replace(wish(tmp_path), settings={"epoch_count": 3}))


def test_the_stack_that_is_left_is_the_one_that_was_measured(tmp_path: Path) -> None:
    """Read back from the folder, wherever it was moved, it names the head beside it."""
    write_stack(stack(), wish(tmp_path))
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    found = load_stack(moved / "stack.yaml")
    assert found.draft == drafted(stack(), wish(moved)).draft
    assert found.target == stack().target


def test_drops_of_both_data_steps_are_added_up(tmp_path: Path) -> None:
    """One reason in both steps is one sum, not the last of the two."""
    prompts, answers = DropCounts(5, {"too long": 2, "duplicate": 1}), DropCounts(4, {"too long": 3})
    data = Data(tmp_path / "rows", prompts, answers, tmp_path)
    done = Finished(1, 1, 9, 1.0, 9.0, 0.5, None, None, 0, 3.0, (0.1,), 1.1, 7, {})
    plan = Planned(**{one.name: None for one in fields(Planned)})  # type: ignore[arg-type]
    asked = replace(wish(tmp_path), settings={"muon_learning_rate": 0.004})
    asked.work.mkdir(parents=True)
    job = job_for(stack(), tmp_path, data.rows, asked)
    (asked.work / JOB).write_text(job.model_dump_json())
    facts = training_facts(asked, data, TrainSummary(plan, (), done), ["outrider", "train"], "2026-11-30")
    assert facts["data"]["dropped"] == {"too long": 5, "duplicate": 1}  # type: ignore[index,call-overload]
    assert facts["training"]["done"]["accuracy"] == [0.1]  # type: ignore[index,call-overload]
    assert facts["settings"]["muon_learning_rate"] == 0.004  # type: ignore[index,call-overload]
    assert str(tmp_path) not in str(facts["settings"])

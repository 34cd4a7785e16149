"""What is given to the load generator: every request laid out beforehand, and no secret."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.aiperf_input import configuration, conversations, write_input
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt

Plan = Callable[..., LoadPlan]
TWO_TURNS = (Prompt("mt/1", ("one", "two"), system="be brief"), Prompt("mt/2", ("three", "four")))


def turns(line: dict[str, Any]) -> list[str]:
    """The texts of a conversation."""
    return [turn["text"] for turn in line["turns"]]


def test_turns_add_up_to_the_requests(plan: Plan) -> None:
    """Five requests of two-turn prompts: two whole conversations and the first turn of the first again."""
    made = conversations(plan(1, prompts=TWO_TURNS, requests=5, warmup_requests=0))
    assert [turns(line) for line in made.lines] == [
        ["be brief", "one", "two"],
        ["three", "four"],
        ["be brief", "one"],
    ]
    assert list(made.prompt_ids.values()) == ["mt/1", "mt/2", "mt/1"]
    assert (made.warmups, made.counted) == (0, 3)


def test_warm_up_is_greedy_and_sampled_and_not_counted(plan: Plan) -> None:
    """Warm-up conversations are of one turn, alternately greedy and sampled; the counted ones begin at the first prompt."""
    made = conversations(plan(1, requests=1, warmup_requests=3))
    lines: list[Any] = list(made.lines)
    assert [line["turns"][0]["extra"]["temperature"] for line in lines] == [0.0, 1.0, 0.0, 0.0]
    assert lines[3]["turns"][0]["text"] == "question 0"
    assert list(made.prompt_ids) == [lines[3]["session_id"]]


def test_an_answers_length(plan: Plan) -> None:
    """A fixed length is asked for with `ignore_eos`; a natural end has the length as its limit only."""
    fixed: Any = conversations(plan(1)).lines[-1]
    free: Any = conversations(plan(1, fixed_length=False)).lines[-1]
    assert (fixed["turns"][0]["output_length"], fixed["turns"][0]["extra"]["ignore_eos"]) == (11, True)
    assert (free["turns"][0]["output_length"], "ignore_eos" in free["turns"][0]["extra"]) == (11, False)


def test_the_key_is_in_no_file(plan: Plan, folder: Path) -> None:
    """The configuration names the variable that holds the key; no file holds the key itself."""
    asked = plan(1, api_key="sk-very-secret")
    made = write_input(asked, folder)
    assert "sk-very-secret" not in json.dumps(configuration(asked, made))
    for path in folder.rglob("*"):
        assert path.is_dir() or b"sk-very-secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": ()}, "the prompt set is empty"),
        ({"prompts": (Prompt("a/1", ("fine", " ")),)}, "prompt a/1 has an empty turn"),
        ({"prompts": (Prompt("a/2", ("half \ud83d",)),)}, "prompt a/2 has half a character"),
        ({"concurrency": 0}, "nothing to send"),
        ({"requests": 0}, "nothing to send"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(
    plan: Plan, folder: Path, change: dict[str, object], words: str
) -> None:
    """Nothing to send, or an empty text: said before anything starts, with a hint."""
    with pytest.raises(MeasurementError, match=words) as refused:
        write_input(plan(1, **change), folder)
    assert refused.value.hint

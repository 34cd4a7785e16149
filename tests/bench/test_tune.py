"""Tuning: the map's words and the edit of the stack's text."""

import pytest
import yaml

from outrider.bench.analysis import analyse
from outrider.bench.schedule import worths
from outrider.bench.tune import Proposal, draft_block, proposal, with_draft
from outrider.core.errors import MeasurementError
from outrider.stack.load import load_stack_text
from tests.bench.simulated import Run, baseline, eagle, simulate

HEAD = "apiVersion: outrider/v1alpha1\ntarget:\n  model: org/target  # the one we serve\n"
FOUND = Proposal("ngram", ((1, 4, 5), (5, 8, 3), (9, 16, 0)), 5, ("1 to 4 running: K = 5",))
STACKS = {
    "in the middle": HEAD
    + "\ndraft:\n  method: ngram   # so far\n  draft_length: 3\n\n# the engine\nengine:\n  device: cpu\n",
    "at the end": HEAD + "engine: {device: cpu}\ndraft:\n  method: ngram\n  ngram: {min_tokens: 3}\n",
    "on one line": HEAD + "draft: {method: ngram, draft_length: 2}\nengine:\n  device: cpu\n",
    "over lines in braces": HEAD + "draft: {method: ngram,\n  draft_length: 2}\nengine:\n  device: cpu\n",
    "absent": HEAD + "engine:\n  device: cpu\n",
    "no line end": HEAD + "draft:\n  method: ngram",
}


@pytest.mark.parametrize("text", STACKS.values(), ids=STACKS.keys())
def test_only_the_draft_changes(text: str) -> None:
    """The tuned file loads, says the schedule, and is otherwise the file it was, comments included."""
    own = yaml.safe_load(text).get("draft") or {"method": "ngram"}
    new = with_draft(text, draft_block(own, FOUND), ["tuned: 1 to 4 running: K = 5"])
    before, after = load_stack_text(text, "a.yaml"), load_stack_text(new, "a.yaml")
    assert after.draft.draft_length_by_batch == [[1, 4, 5], [5, 8, 3], [9, 16, 0]]
    assert after.draft.length == 5
    assert after.draft.ngram == before.draft.ngram
    assert after.model_copy(update={"draft": before.draft}) == before
    assert "# the one we serve" in new
    assert ("# the engine" in new) == ("# the engine" in text)
    assert "# tuned: 1 to 4 running: K = 5\ndraft:" in new


@pytest.mark.parametrize("text", STACKS.values(), ids=STACKS.keys())
def test_tuning_twice_leaves_one_set_of_reasons(text: str) -> None:
    """A second tuning replaces the first one's block and comments."""
    own = yaml.safe_load(text).get("draft") or {"method": "ngram"}
    once = with_draft(text, draft_block(own, FOUND), ["tuned: first"])
    twice = with_draft(once, draft_block(yaml.safe_load(once)["draft"], FOUND), ["tuned: second"])
    assert "first" not in twice
    assert twice == with_draft(text, draft_block(own, FOUND), ["tuned: second"])


COMMENTED = (
    HEAD
    + """\
draft:
  # chosen in May
  method: ngram   # so far
  draft_length: 3 # was 2
  ngram: {min_tokens: 3}  # seen in the logs
  # until here
engine: {device: cpu}
"""
)


def test_comments_inside_the_draft_stay() -> None:
    """Only keys that change are touched; a second tuning changes them in place and keeps the comments too."""
    own = yaml.safe_load(COMMENTED)["draft"]
    new = with_draft(COMMENTED, draft_block(own, FOUND), ["tuned: first"])
    for comment in (
        "# chosen in May",
        "# so far",
        "# was 2",
        "# seen in the logs",
        "# until here",
        "# the one we serve",
    ):
        assert new.count(comment) == 1
    assert "draft_length: 5 # was 2" in new
    assert yaml.safe_load(new)["draft"] == draft_block(own, FOUND)
    other = Proposal("ngram", ((1, 8, 2), (9, 16, 0)), 2, ())
    again = with_draft(new, draft_block(yaml.safe_load(new)["draft"], other), ["tuned: second"])
    assert yaml.safe_load(again)["draft"]["draft_length_by_batch"] == [[1, 8, 2], [9, 16, 0]]
    assert "draft_length: 2 # was 2" in again
    assert "# seen in the logs" in again


def test_comments_outlive_a_draft_that_is_switched_off() -> None:
    """Keys that go take only the comment behind them along."""
    new = with_draft(COMMENTED, {"method": "none"}, [])
    assert yaml.safe_load(new)["draft"] == {"method": "none"}
    assert "method: none   # so far" in new
    assert "# chosen in May" in new
    assert "# was 2" not in new


def test_the_reasons_say_how_sure_they_are() -> None:
    """Each row names its ratio with its interval at each load that was measured, and where measuring ended."""
    made = simulate(Run((baseline(), eagle()), waves=4))
    document = analyse(made.document, made.records_of)
    reasons = proposal(document, 256).reasons
    rows = [line for line in reasons if "running: K = 3" in line]
    assert rows
    for one in (one for one in worths(document, "eagle3") if f"at {one.running}," in rows[0]):
        assert (
            f"{one.ratio.value:.2f}x (95 % interval {one.ratio.low:.2f} to {one.ratio.high:.2f})" in rows[0]
        )
    assert reasons[-1] == "17 to 256 running: off, no length surely pays; above 64 nothing was measured"
    assert "interval" in rows[0]


def test_one_length_for_every_batch_needs_no_schedule() -> None:
    """Rows that are one length are written as that length."""
    block = draft_block({"method": "ngram"}, Proposal("ngram", ((1, 16, 3),), 3, ()))
    assert block == {"method": "ngram", "draft_length": 3}


def test_where_nothing_pays_the_draft_is_off() -> None:
    """No schedule of zeros: no draft."""
    assert draft_block({"method": "ngram"}, Proposal("none", (), 0, ())) == {"method": "none"}


def test_weights_the_stack_does_not_name() -> None:
    """A better head that stands in no stack is not written by guesswork."""
    with pytest.raises(MeasurementError, match="does not name"):
        draft_block({"method": "ngram"}, Proposal("eagle3", ((1, 16, 3),), 3, ()))

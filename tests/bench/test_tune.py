"""Tuning: the map's words and the edit of the stack's text."""

import pytest
import yaml

from outrider.bench.tune import Proposal, draft_block, with_draft
from outrider.core.errors import MeasurementError
from outrider.stack.load import load_stack_text

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

"""The command that `outrider serve` prints: one that works, and that asks for what the draft is good at."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from outrider.cli.serve import CODE, REPEATS, curl_command
from outrider.stack.load import load_stack
from outrider.stack.models import Draft
from tests.stacks import NGRAM


@pytest.mark.parametrize(
    ("draft", "asked"),
    [
        (NGRAM, REPEATS),
        ({"method": "suffix"}, REPEATS),
        ({"method": "eagle3", "model": "org/head"}, CODE),
        ({"method": "p-eagle", "model": "org/head"}, CODE),
        ({"method": "none"}, CODE),
    ],
)
def test_what_is_asked_suits_the_draft(draft: dict[str, Any], asked: str) -> None:
    """A lookup finds what repeats, a head says what its target would."""
    stack = load_stack(None).model_copy(update={"draft": Draft.model_validate(draft)})
    words = shlex.split(curl_command("http://127.0.0.1:1", stack))
    body = json.loads(words[-1])
    assert (body["model"], body["stream"]) == (stack.served_name, True)
    assert body["messages"] == [{"role": "user", "content": asked}]

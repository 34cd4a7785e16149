"""The command that `outrider serve` prints: one that works, and that asks for what the draft is good at."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from outrider.cli.serve import CODE, REPEATS, curl_command, governed_words
from outrider.stack.load import load_stack
from outrider.stack.models import Draft, Policy
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


def test_one_line_says_whether_the_server_chooses_the_draft() -> None:
    """Among which, or why not; an engine without a note of it leaves the reason out."""
    stack = load_stack(None)
    said = governed_words(stack, ("eagle3", "ngram", "off"), "")
    assert said == "governed: new requests get eagle3, ngram or no draft, by what is measured"
    assert governed_words(stack, ("ngram", "off"), "").startswith(
        "governed: new requests get ngram or no draft"
    )
    why = "the stack says `policy: off`"
    off = stack.model_copy(update={"policy": Policy(enabled=False)})
    assert governed_words(off, (), why) == f"not governed: every request gets eagle3; {why}"
    assert governed_words(stack, (), "").endswith(
        "eagle3; two engines can be: policy.plain_engine, docs/govern.md"
    )

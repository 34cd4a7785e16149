"""Stacks of tests that are about a draft, whatever the built-in stack drafts with."""

from __future__ import annotations

from typing import Any

from outrider.stack.load import load_stack
from outrider.stack.models import Draft, Stack

NGRAM: dict[str, Any] = {"method": "ngram", "draft_length": 3}


def ngram_stack() -> Stack:
    """The built-in target, drafted by n-grams."""
    return load_stack(None).model_copy(update={"draft": Draft.model_validate(NGRAM)})

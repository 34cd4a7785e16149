"""`benchmarks.switch.mix`: what it says of measured batches."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.switch.mix import DRAFTS, answered, rate, told


def batch(seconds_a_token: float, tokens: int = 17) -> dict[str, Any]:
    """An engine's answer."""
    return {"seconds": 9.0, "decode_s": seconds_a_token * (tokens - 1), "tokens": list(range(tokens))}


def test_a_rate_leaves_the_first_token_out() -> None:
    """It comes with the reading of the prompt."""
    assert rate(batch(0.1)) == pytest.approx(0.1)


def test_each_prompt_goes_through_every_draft_in_an_order_that_turns() -> None:
    """Two prompts, two orders."""

    class Told:
        def __init__(self) -> None:
            self.drafts: list[str] = []

        def batch(self, draft: str, **_: object) -> dict[str, Any]:
            self.drafts.append(draft)
            return batch(0.1)

    engine = Told()
    for number in range(2):
        assert set(answered(engine, "p", 16, number)) == set(DRAFTS)  # type: ignore[arg-type]
    assert engine.drafts[4:] == [*engine.drafts[1:4], engine.drafts[0]]


def test_ratios_are_of_one_prompt_and_short_answers_make_none() -> None:
    """Four prompts of known ratios, one answer of three tokens, one text that differs."""
    found = [
        {
            "eagle3": batch(0.2 * slow),
            "ngram": batch(0.1 * slow),
            "mix": batch(0.05 * slow),
            "off": batch(0.2 * slow),
        }
        for slow in (1, 2, 3, 4)
    ]
    found.append({draft: batch(9.0, tokens=3) for draft in DRAFTS})
    found[0]["mix"]["tokens"][-1] = 99
    lines = told("rag", found)
    assert lines[0] == "rag: 5 prompts, 4 with an answer long enough, 4 with one text by all drafts"
    assert lines[1] == "  mix / eagle3: 0.250 [0.250, 0.250] n=4"
    assert lines[2] == "  mix / ngram: 0.500 [0.500, 0.500] n=4"

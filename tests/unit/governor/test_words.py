"""The sentences say what was decided by, not something beside it."""

from __future__ import annotations

import pytest

from outrider.governor.costs import BreakEven
from outrider.governor.estimator import Evidence, Measured
from outrider.governor.judge import Assessment, Verdict
from outrider.governor.ladder import Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from outrider.governor.words import of_fall


@pytest.mark.parametrize(
    ("even", "words"),
    [
        (
            BreakEven(at_least=1.31),
            "1.13 tokens a step over 16 requests, at least 1.31 are needed with 0 running",
        ),
        (BreakEven(known=Measured(1.25, 0.01)), "1.13 tokens a step over 16 requests, 1.25 just pay"),
        (BreakEven(), "1.13 tokens a step over 16 requests, 1.15 just pay"),
        (BreakEven(at_least=1.05), "1.13 tokens a step over 16 requests, 1.15 just pay"),
    ],
)
def test_what_just_pays_is_what_was_judged_by(even: BreakEven, words: str) -> None:
    """Known, or bounded by other batches, or the floor that is set."""
    ladder = ladder_of(Rung("ngram"))
    state = Policy(ladder, PolicySettings()).start(0.0)
    seen = Evidence(16, 40, 120, 5, Measured(0.13, 0.02), Measured(1.13, 0.02))
    assessed = Assessment("ngram", Verdict.LOW, seen, seen, even, needed_gain=0.15)
    assert of_fall(assessed, state, ladder, PolicySettings()) == words

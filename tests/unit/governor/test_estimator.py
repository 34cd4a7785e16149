"""What a window says: definitions shared with the rest, errors that hold, undefined that stays undefined."""

from __future__ import annotations

import math
import random

import pytest

from outrider.governor.estimator import evidence, judgeable, newest
from outrider.governor.snapshot import Credit
from tests.unit.governor.driver import credit
from tests.unit.governor.traffic import HEAD


def test_figures_are_those_of_core_acceptance() -> None:
    """AL includes the bonus token; tokens per step counts steps without a draft; counts are summed, rates not averaged."""
    long = Credit("ngram", 0.0, 1.0, drafts=30, proposed=90, accepted=45, steps=60)
    short = Credit("ngram", 0.0, 1.0, drafts=10, proposed=30, accepted=5, steps=20)
    seen = evidence([long, short])
    assert seen.length == 1 + 50 / 40 == seen.window.acceptance_length
    assert seen.gain is not None
    assert seen.gain.value == 50 / 40
    assert seen.per_step is not None
    assert seen.per_step.value == 1 + 50 / 80
    assert seen.requests == 2


def test_without_steps_al_stands_for_tokens_per_step() -> None:
    """As in a bench."""
    seen = evidence([Credit(HEAD, 0.0, 1.0, drafts=30, proposed=90, accepted=45)] * 2)
    assert seen.per_step is not None
    assert seen.per_step.value == seen.length


def test_nothing_drafted_is_undefined() -> None:
    """No credits, or none that was drafted: None everywhere, never 0."""
    for nothing in ([], [Credit(HEAD, 0.0, 1.0, steps=40)] * 9):
        seen = evidence(nothing)
        assert (seen.gain, seen.per_step, seen.length, seen.requests) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("draft", "drafts", "draftable", "counts"),
    [
        (HEAD, 40, None, True),
        (HEAD, 40, False, False),
        (HEAD, 0, True, False),
        (HEAD, 0, None, False),
        ("ngram", 0, None, False),
        ("ngram", 0, True, True),
        ("ngram", 0, False, False),
    ],
)
def test_who_is_judged(draft: str, drafts: int, draftable: bool | None, counts: bool) -> None:
    """A head drafts in every step, so none means that it could not; a lookup that found nothing where it could is judged."""
    one = Credit(draft, 0.0, 1.0, drafts, 3 * drafts, 0, steps=40, draftable=draftable)
    assert judgeable(one) is counts


def test_one_request_alone_proves_nothing() -> None:
    """Its error is infinite: nothing is sure of it."""
    seen = evidence([credit(HEAD, 1.0, 1.0)])
    assert seen.gain is not None
    assert seen.gain.error == math.inf


def test_the_error_is_that_of_requests_not_of_steps() -> None:
    """Over many draws the estimate lies within 1.645 errors above the truth as often as that promises, about 95 in 100."""
    chance = random.Random(7)  # noqa: S311  (draws for a test)
    held = 0
    for _ in range(1000):
        lengths = [1 + min(max(chance.gauss(1.0, 0.5), 0.0), 3.0) for _ in range(16)]
        seen = evidence([credit(HEAD, length, 1.0) for length in lengths])
        assert seen.gain is not None
        held += seen.gain.value + 1.645 * seen.gain.error >= 1.0
    assert 915 <= held <= 970


def test_the_newest_are_taken_until_there_are_enough() -> None:
    """By number and by age; counts of many requests are still a few, so that there is an error to know them by."""
    ten = [credit(HEAD, 2.0, float(second)) for second in range(10)]
    assert [one.ended_s for one in newest(ten, 4, -math.inf)] == [6.0, 7.0, 8.0, 9.0]
    assert [one.ended_s for one in newest(ten, 9, 7.5)] == [8.0, 9.0]
    counts = [credit(HEAD, 2.0, float(second), requests=50) for second in range(10)]
    assert len(newest(counts, 16, -math.inf)) == 4

"""Stated acceptance: what is read, what is refused, and the arithmetic from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.bench.document import StepCost
from outrider.bench.forecast import Stated, rates_from_length, read_rates, read_stated
from outrider.bench.forecast_answers import best_lengths, forecast_answers, predicted
from outrider.core.acceptance import acceptance_length_of
from outrider.core.errors import MeasurementError


def test_rates_become_an_acceptance_length() -> None:
    """AL(K) is one token of the target's own plus the sum of the first K unconditional rates."""
    stated = Stated(read_rates("0.82,0.68,0.56"))
    assert [round(stated.length(k), 2) for k in (1, 2, 3)] == [1.82, 2.5, 3.06]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.8,0.9", "cannot be accepted more often"),
        ("1.2", "not within 0 and 1"),
        ("-0.1", "not within 0 and 1"),
        ("nan", "not within 0 and 1"),
        ("0.8;0.7", "no list of rates"),
        ("", "no list of rates"),
    ],
)
def test_impossible_rates_are_refused(text: str, said: str) -> None:
    """Rates are shares of all drafts: within 0 and 1 and never rising; the message says which is wrong, the hint how it looks."""
    with pytest.raises(MeasurementError, match=said) as caught:
        read_rates(text)
    assert caught.value.hint


def test_more_positions_than_stated_are_refused() -> None:
    """Nobody knows the fourth position's rate from three."""
    with pytest.raises(MeasurementError, match="needs 4 rates, 3 are given"):
        Stated((0.8, 0.6, 0.5)).for_length(4)


@given(st.integers(1, 16), st.floats(0, 1))
def test_rates_from_an_acceptance_length_give_it_back(draft_length: int, share: float) -> None:
    """For every AL that is possible at K: rates within 0 and 1, never rising, whose AL it is."""
    length = 1 + share * draft_length
    rates = rates_from_length(length, draft_length)
    assert all(0 <= rate <= 1 for rate in rates)
    assert sorted(rates, reverse=True) == list(rates)
    assert acceptance_length_of(rates) == pytest.approx(length, abs=1e-9)


@pytest.mark.parametrize(("length", "draft_length"), [(0.9, 3), (4.1, 3), (2.0, 0)])
def test_an_impossible_acceptance_length_is_refused(length: float, draft_length: int) -> None:
    """AL lies between 1 and K + 1, the bonus token included."""
    with pytest.raises(MeasurementError, match="impossible"):
        rates_from_length(length, draft_length)


def test_a_derived_rate_goes_on_beyond_its_draft_length() -> None:
    """Derived from one AL, each position has the same chance, so a longer draft follows; the source says it was derived."""
    stated = read_stated(["p-eagle=4.37@7"], "eagle3", "a card")["p-eagle"]
    assert stated.length(7) == pytest.approx(4.37)
    chance = stated.rates[0]
    assert stated.for_length(9)[8] == pytest.approx(chance**9)
    assert stated.source == "a card; derived from AL 4.37 at K = 7, the same chance at each position"


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["0.8,0.6"], "not of ngram"),
        (["eagle3=0.8", "eagle3=0.7"], "stated twice"),
        (["eagle3=3.0@x"], "no AL@K"),
        (["medusa=0.8"], "not of medusa"),
    ],
)
def test_what_is_stated_names_a_draft_that_always_drafts(specs: list[str], said: str) -> None:
    """Rates per step mean something only where every step drafts; without a method the stack's own is meant, here n-gram."""
    with pytest.raises(MeasurementError, match=said):
        read_stated(specs, "ngram", "")


def _step(arm: str, draft_length: int, concurrency: int, step_ms: float) -> StepCost:
    return StepCost(
        arm=arm,
        method="eagle3",
        draft_length=draft_length,
        running=concurrency,
        concurrency=concurrency,
        step_ms=step_ms,
        baseline_step_ms=10.0,
        break_even_length=step_ms / 10.0,
    )


def test_speed_up_is_the_acceptance_length_over_the_cost_of_a_step() -> None:
    """AL(K) · T(b, 0)/T(b, K), and the best arm at each batch is the one where it is largest; none where it stays below 1."""
    stated = {"eagle3": Stated((0.8, 0.6, 0.5, 0.1, 0.1))}
    steps = [
        _step("eagle3-k3", 3, 1, 11.0),
        _step("eagle3-k5", 5, 1, 14.0),
        _step("eagle3-k3", 3, 64, 40.0),
        _step("eagle3-k5", 5, 64, 60.0),
    ]
    assert [round(step.predicted_speedup or 0, 3) for step in predicted(steps, stated)] == [
        2.636,
        2.214,
        0.725,
        0.517,
    ]
    best = best_lengths(predicted(steps, stated))
    assert best[1] is not None
    assert (best[1].arm, best[64]) == ("eagle3-k3", None)
    texts = [answer.text for answer in forecast_answers(predicted(steps, stated))]
    assert texts[0].startswith("With the acceptance stated, eagle3-k3 is best at 1 at once: 2.64×")
    assert "the AL of 2.90 stated; it pays from an AL of 1.10." in texts[0]
    assert texts[1].startswith(
        "With the acceptance stated, no draft pays at 64 at once: even eagle3-k3 would need an AL of 4.00"
    )


def test_the_published_table_is_reckoned() -> None:
    """Each r of docs/forecast.md is what its AL and K give, and the sentence on the one-chance model quotes its rates."""
    page = (Path(__file__).parents[2] / "docs" / "forecast.md").read_text(encoding="utf-8")
    rows = 0
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 8 and re.fullmatch(r"[\d. /]+", cells[5]):
            lengths, ks = cells[4].split("/"), cells[3].split("/")
            ks = ks if len(ks) > 1 else ks * len(lengths)
            found = [
                f"{rates_from_length(float(al), int(k))[0]:.2f}" for al, k in zip(lengths, ks, strict=True)
            ]
            assert cells[5] == " / ".join(found), line
            rows += 1
    assert rows == 6
    quoted = " ".join(f"{rate:.3f}"[1:] for rate in rates_from_length(2.60, 3))
    assert f"AL 2.60 at K = 3 gives {quoted} where" in page

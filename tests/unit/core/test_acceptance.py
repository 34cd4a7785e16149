"""Acceptance figures against public reports and their own algebra."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.acceptance import AcceptanceWindow, SpecCounters, acceptance_length_of, difference, merge

counts = st.integers(min_value=0, max_value=10**9)


def test_position_rates_to_al() -> None:
    """AL 4.496 by both routes, acceptance rate 0.437, as the report's own log says."""
    positions = (76.17, 61.58, 51.25, 42.43, 36.40, 30.94, 27.22, 23.65)
    window = AcceptanceWindow(SpecCounters(drafts=11043, proposed=88344, accepted=38611))
    assert window.acceptance_length == pytest.approx(4.496, abs=5e-4)
    assert acceptance_length_of(p / 100 for p in positions) == pytest.approx(4.496, abs=5e-4)
    assert window.acceptance_rate == pytest.approx(0.437, abs=5e-4)
    assert window.effective_k == 8


def test_nothing_drafted_is_undefined() -> None:
    """With no draft in the window every figure is None, never 0."""
    window = difference(SpecCounters(5, 15, 7, (4, 3)), SpecCounters(5, 15, 7, (4, 3)))
    assert not window.defined
    assert (
        window.acceptance_rate
        is window.acceptance_length
        is window.position_rates
        is window.effective_k
        is None
    )


def test_a_fallen_counter_voids_the_window() -> None:
    """Any count that falls, a position's included, voids the whole window with its reason."""
    assert difference(SpecCounters(5, 15, 7, (4, 3)), SpecCounters(6, 18, 8, (5, 2))).void == "counter reset"


@given(counts, counts, counts, counts, counts, counts)
def test_difference_undoes_addition(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    """difference(x, x + y) is y for any counts."""
    x, y = SpecCounters(a, b, c, (a, b)), SpecCounters(d, e, f, (d, e, f))
    assert difference(x, merge([x, y])).delta == y

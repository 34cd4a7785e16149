"""Request times and the percentile rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.latency import RequestTiming, percentile


def test_stream_one_token() -> None:
    """With a single output token there is no time per output token: None, not 0."""
    timing = RequestTiming(0.0, 0.01, first_token_s=0.05, last_token_s=0.05, output_tokens=1)
    assert timing.tpot_s is None
    assert timing.ttft_s == 0.05


def test_percentile_rule() -> None:
    """Nearest rank: of 1537 once and 58 forty-nine times, p99 is the 1537 that was seen, p50 is 58."""
    values = [1537.0, *[58.0] * 49]
    assert percentile(values, 99) == 1537
    assert percentile(values, 50) == 58


def test_times_are_differences_from_arrival() -> None:
    """TTFT, E2E and queue wait count from arrival; TPOT leaves the first event's tokens out."""
    timing = RequestTiming(10.0, 10.5, first_token_s=11.0, last_token_s=13.0, output_tokens=9, first_tokens=1)
    assert (timing.queue_wait_s, timing.ttft_s, timing.e2e_s, timing.tpot_s) == (0.5, 1.0, 3.0, 0.25)


def test_what_did_not_happen_is_none() -> None:
    """A request that was never dispatched has no times, rather than zeros."""
    timing = RequestTiming(1.0)
    assert (timing.queue_wait_s, timing.ttft_s, timing.e2e_s, timing.tpot_s) == (None, None, None, None)


def test_no_tokens_make_no_tpot() -> None:
    """A stream that ended without a token has no negative or infinite time per token."""
    assert RequestTiming(0.0, 0.0, 1.0, 2.0, output_tokens=0).tpot_s is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.floats(0.001, 100))
def test_percentile_is_a_value_that_was_seen(values: list[float], percent: float) -> None:
    """A percentile is one of the values, and at least that share of them is not above it."""
    answer = percentile(values, percent)
    assert answer in values
    assert sum(value <= answer for value in values) * 100 >= percent * len(values) - 1e-9 * len(values)


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_percentile_refuses_nonsense(percent: float) -> None:
    """Percentages outside (0, 100] and empty samples are errors, not numbers."""
    with pytest.raises(ValueError, match="percentile"):
        percentile([1.0], percent)
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 50)

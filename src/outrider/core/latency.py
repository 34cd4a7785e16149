"""The times of one request, and the percentile rule.

Source: definitions shared with the measurements: t_0 arrival, (t_i, n_i) token events, N tokens in all.
TTFT = t_1 - t_0, E2E = t_last - t_0, TPOT = (t_last - t_1)/(N - n_1), null for N <= n_1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class RequestTiming(NamedTuple):
    """Moments of one request on one monotonic clock, in seconds; None is 'did not happen'.

    `arrived_s` at the front, `dispatched_s` to the engine, `first_token_s` and `last_token_s` as they came back.
    `output_tokens` is N as the engine counted it, `first_tokens` n_1, the tokens of the first event.
    """

    arrived_s: float
    dispatched_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    output_tokens: int | None = None
    first_tokens: int = 1

    @property
    def queue_wait_s(self) -> float | None:
        """From arrival to dispatch."""
        return None if self.dispatched_s is None else self.dispatched_s - self.arrived_s

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the first output token (reasoning counts)."""
        return None if self.first_token_s is None else self.first_token_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first event; None where no token followed it."""
        if self.first_token_s is None or self.last_token_s is None or self.output_tokens is None:
            return None
        after_first = self.output_tokens - self.first_tokens
        return (self.last_token_s - self.first_token_s) / after_first if after_first > 0 else None

    @property
    def e2e_s(self) -> float | None:
        """From arrival to the last output token."""
        return None if self.last_token_s is None else self.last_token_s - self.arrived_s


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value with at least `percent` % of the values at or below it.

    Never interpolates, so the answer is a value that was seen. Raises ValueError without values or outside (0, 100].
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile lies in (0, 100], not at {percent}")
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]

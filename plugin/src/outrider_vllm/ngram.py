"""Tokens that followed the same n-gram earlier in a request: an n-gram draft, on the host.

Longer n-grams first, of equal ones the latest. vLLM's own proposer takes the earliest, and gives up where the match reaches
the end; here a match that runs into the end goes on with its period.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def continuation(tokens: NDArray[np.int32], length: int, shortest: int, longest: int) -> list[int]:
    """`length` tokens that may follow `tokens` [n]; none if its last `shortest` tokens stand nowhere before."""
    size = len(tokens)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # where an n-gram like the last one ends
    start = 0
    for n in range(1, longest + 1):
        if n > 1:
            ends = ends[ends >= n - 1]
            ends = ends[tokens[ends - (n - 1)] == tokens[-n]] if size >= n else ends[:0]
        if not len(ends):
            break
        if n >= shortest:
            start = int(ends[-1]) + 1
    return [int(tokens[start + i % (size - start)]) for i in range(length)] if start else []

"""Tests that measure real times on a machine which others use too.

A neighbour makes a measurement late now and then; code that is slow is slow every time. So a missed time is `Late`, and
`@measures_time` runs a test that was late again, twice at most: the summary lists every rerun. Only `Late` is run again. What is
counted, answered or left behind must be right the first time, and a race is mended, not tried again. The mark is not for waiting
either: a longer patience costs nothing where nothing is late.
"""

from collections.abc import Mapping
from typing import Any

import pytest


class Late(AssertionError):
    """A measured time that is not what it should be."""


measures_time = pytest.mark.flaky(reruns=2, only_rerun=Late)


def in_time(times: Mapping[str, tuple[float | None, Any]]) -> None:
    """Measured times by name, each with what it must equal (`pytest.approx`, or a `Between`). Raises Late."""
    missed = {name: got for name, (got, truth) in times.items() if got != truth}
    if missed:
        raise Late(f"{missed} of {dict(times)}")


class Between:
    """Equals every number between two."""

    def __init__(self, low: float, high: float) -> None:
        self._bounds = (low, high)

    def __eq__(self, other: object) -> bool:
        """Whether it lies between."""
        low, high = self._bounds
        return isinstance(other, int | float) and low <= other <= high

    def __repr__(self) -> str:
        return f"{self._bounds[0]:g} to {self._bounds[1]:g}"

    __hash__ = None  # type: ignore[assignment]  # compares with numbers, is none

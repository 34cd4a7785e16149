"""What the trials behind a ratio bear: a decision, a direction, or nothing. One rule for advice, marks and sentences.

A ratio *decides* where its 95 % interval leaves 1 out, over three trials or more, in a steady cell. Everything else only points
somewhere: two trials may lie close together by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench.document import BASELINE, Interval, LatencyDifference, RunDocument, Speedup
from outrider.bench.standing import shared_trials
from outrider.bench.steps import reckoned

EACH_TRIAL_AT_LEAST = 1.05
ENOUGH_TRIALS = 3
_T_OF_TWO = 12.7062  # Student t, 97.5 %, one degree of freedom


def proven(found: Interval, than: float) -> bool:
    """Whether the interval leaves `than` out; False without one."""
    return found.low is not None and found.high is not None and not found.low <= than <= found.high


def decides(ratio: Interval, steady: bool, than: float = 1.0) -> bool:
    """Whether a ratio is surely above or surely below `than`."""
    return steady and ratio.n >= ENOUGH_TRIALS and proven(ratio, than)


def pays(ratio: Interval) -> bool:
    """Whether a speed-up's 95 % interval lies above 1. A single trial has none and is never sure."""
    return ratio.low is not None and ratio.low > 1


def leans(ratio: Interval) -> bool:
    """Whether one or two trials point to a gain: each reached 1.05. Of more trials the interval decides."""
    if ratio.n >= ENOUGH_TRIALS or pays(ratio):
        return pays(ratio)
    if ratio.low is None:
        return ratio.value >= EACH_TRIAL_AT_LEAST
    # The two trials lie half an interval apart, without Student's t: the smaller one follows.
    smaller: float = ratio.value * (ratio.low / ratio.value) ** (1 / _T_OF_TWO)
    return smaller >= EACH_TRIAL_AT_LEAST


def explained(document: RunDocument, one: Speedup) -> bool:
    """Whether a gain that is not sure agrees with tokens per step × T(b, 0)/T(b, K): noise alone points nowhere."""
    expected = reckoned(document, one.arm, one.prompt_set, one.concurrency)
    return pays(one.ratio) or expected is None or expected >= EACH_TRIAL_AT_LEAST


def surely(found: Sequence[Speedup]) -> bool | None:
    """True: each ratio decides above 1; False: each below 1; None: anything else, or no ratio."""
    ways = {one.ratio.value > 1 if decides(one.ratio, one.steady) else None for one in found}
    return ways.pop() if len(ways) == 1 else None


def pointing(document: RunDocument, found: Sequence[Speedup]) -> bool | None:
    """Where nothing is sure: True, each ratio points to the draft; False, none does; None, some do, or there is none."""
    ways = {leans(one.ratio) and explained(document, one) for one in found}
    return ways.pop() if len(ways) == 1 else None


def sure_difference(document: RunDocument, one: LatencyDifference) -> bool:
    """Whether a latency surely differs from the baseline's: an interval that leaves 0 out, over three trials of both or more."""
    shared = shared_trials(document, one.arm, BASELINE, one.prompt_set, one.concurrency)
    return shared >= ENOUGH_TRIALS and proven(one.difference_ms, 0.0)

"""How numbers are said in an answer."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench.document import BASELINE, Interval, LatencyDifference, RunDocument, Speedup


def times(value: float) -> str:
    """``2.53×``, also of 0.07: two decimals."""
    return f"{value:.2f}×"


def with_interval(ratio: Interval) -> str:
    """``2.53× (2.40 to 2.67)``; ``2.53× (one trial)``: without an interval it says why."""
    if ratio.low is None or ratio.high is None:
        return f"{times(ratio.value)} (one trial)"
    return f"{times(ratio.value)} ({ratio.low:.2f} to {ratio.high:.2f})"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def at_once(concurrency: float) -> str:
    """``8 at once``; measured means with one decimal."""
    return f"{concurrency:.0f} at once" if float(concurrency).is_integer() else f"{concurrency:.1f} at once"


def difference(one: LatencyDifference, absolute: bool) -> str:
    """``14.0 ms longer (34.0 against 20.0)``; in percent where the milliseconds are not to be quoted."""
    gap = one.difference_ms
    way = "longer" if gap.value >= 0 else "shorter"
    if not absolute:
        share = abs(gap.value) / one.baseline_ms if one.baseline_ms else 0.0
        text = f"{share:.0%} {way}"
    else:
        text = f"{abs(gap.value):.1f} ms {way} ({one.arm_ms:.1f} against {one.baseline_ms:.1f})"
    return text if proven(gap, 0.0) else f"{text}, within the noise"


def proven(found: Interval, than: float) -> bool:
    """Whether the interval leaves `than` out; False without one."""
    return found.low is not None and found.high is not None and not found.low <= than <= found.high


def speedups(document: RunDocument, arm: str, prompt_set: str) -> list[Speedup]:
    """An arm's speed-ups on a set, by concurrency."""
    found = [one for one in document.speedups if (one.arm, one.prompt_set) == (arm, prompt_set)]
    return sorted(found, key=lambda one: one.concurrency)


def tails(document: RunDocument, arm: str, prompt_set: str, figure: str) -> list[LatencyDifference]:
    """An arm's differences of one figure on a set, by concurrency."""
    found = [
        one
        for one in document.latency_differences
        if (one.arm, one.prompt_set, one.figure) == (arm, prompt_set, figure)
    ]
    return sorted(found, key=lambda one: one.concurrency)


def arms(document: RunDocument) -> list[str]:
    """Names of the arms with a draft, in order."""
    return [arm.name for arm in document.arms if arm.name != BASELINE]


def sets(document: RunDocument) -> list[str]:
    """Names of the prompt sets, in order."""
    return [one.name for one in document.prompt_sets]

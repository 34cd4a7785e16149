"""How numbers are said in an answer."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench.document import (
    BASELINE,
    Interval,
    LatencyDifference,
    RunDocument,
    Speedup,
    TextDifference,
)
from outrider.bench.evidence import proven

STATES = {"failed": "failed", "invalid": "must not be believed", "missing": "never ran"}  # of a cell


def times(value: float) -> str:
    """``2.53×``, also of 0.07: two decimals."""
    return f"{value:.2f}×"


def with_interval(ratio: Interval, steady: bool = True) -> str:
    """``2.53× (2.40 to 2.67)``; fewer than three trials are counted: ``2.53× (1 trial)``, ``2.53× (1.1 to 5.8, 2 trials)``."""
    known = ratio.low is not None and ratio.high is not None
    said = [f"{ratio.low:.2f} to {ratio.high:.2f}"] if known else []
    if ratio.n < 3:
        said.append(trials(ratio.n))
    said += [] if steady else ["not steady"]
    return f"{times(ratio.value)} ({', '.join(said)})" if said else times(ratio.value)


def trials(n: int) -> str:
    """``1 trial``, ``3 trials``; ``reckoned`` of none: a forecast's ratio that nobody timed."""
    return "reckoned" if n < 1 else f"{n} trial{'s' if n > 1 else ''}"


def place(one: TextDifference) -> str:
    """Where two texts part: ``token 29``; the character where the token is not known."""
    return f"token {one.at_token}" if one.at_token is not None else f"character {one.at_character}"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def more(count: int) -> str:
    """``, and 3 more``; nothing of none."""
    return f", and {count} more" if count > 0 else ""


def at_once(concurrency: float) -> str:
    """``8 at once``; measured means with one decimal."""
    return f"{concurrency:.0f} at once" if float(concurrency).is_integer() else f"{concurrency:.1f} at once"


def all_at_once(concurrencies: Sequence[int]) -> str:
    """``1, 4 and 8 at once``."""
    return f"{listed([str(one) for one in concurrencies])} at once"


def ratios_at(pairs: Sequence[tuple[int, float]]) -> str:
    """``1 (3.57×) and 4 at once (3.05×)``."""
    last = len(pairs) - 1
    return listed(
        [
            f"{load}{' at once' if place == last else ''} ({times(ratio)})"
            for place, (load, ratio) in enumerate(pairs)
        ]
    )


NO_INTERVAL = "too few trials for an interval"


def difference(one: LatencyDifference, absolute: bool, *, known: bool = False) -> str:
    """``14.0 ms longer (34.0 against 20.0)``; in percent where the milliseconds are not to be quoted.

    `known`: that there is no interval is said elsewhere.
    """
    gap = one.difference_ms
    way = "longer" if gap.value >= 0 else "shorter"
    if not absolute:
        share = abs(gap.value) / one.baseline_ms if one.baseline_ms else 0.0
        text = f"{share:.0%} {way}"
    else:
        text = f"{abs(gap.value):.1f} ms {way} ({one.arm_ms:.1f} against {one.baseline_ms:.1f})"
    if proven(gap, 0.0) or (known and gap.low is None):
        return text
    doubt = NO_INTERVAL if gap.low is None else "within the noise"
    return f"{text} ({doubt})".replace(") (", "; ")


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

"""Every threshold of the governor, in one frozen record: name, default, bounds and what it does.

The defaults are made to meet: a draft that broke is out of force within 30 s and 50 requests, one that is good again is back
within 60 s, at one request a second and more.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


def _setting(default: float | bool, low: float, high: float, about: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "about": about})


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """All of it. Shares are 0 to 1, times in seconds. Raises ValueError for a value outside its bounds."""

    dwell_s: float = _setting(
        15.0, 1, 3600, "Between two switches at least; an operator's pin and an engine's start do not wait."
    )
    window_s: float = _setting(20.0, 1, 3600, "Acceptance is judged on requests that ended within this …")
    window_requests: int = _setting(16, 1, 256, "… and on so many of them at most, the newest.")
    min_requests: int = _setting(
        6, 1, 256, "Fewer drafted requests than this say nothing: undefined is not low."
    )
    sustained_s: float = _setting(3.0, 0, 3600, "A draft must have been judged bad for this long …")
    sustained_requests: int = _setting(3, 0, 10_000, "… and over so many more requests, before it is left.")
    baseline_share: float = _setting(
        0.5,
        0,
        1,
        "AL - 1 under this share of the pair manifest's is low, unless measured steps say that it pays.",
    )
    floor_gain: float = _setting(
        0.1,
        0,
        10,
        "Without a manifest and without measured steps: accepted tokens a step that a head must bring.",
    )
    lookup_floor_gain: float = _setting(0.05, 0, 10, "The same for n-gram, suffix and mix: they cost less.")
    hysteresis: float = _setting(
        0.2, 0, 10, "To come back, a draft must exceed what it was left for by this share."
    )
    confidence_z: float = _setting(
        1.645, 0, 6, "Standard errors to be sure of a difference: 1.645 is 95 %, one-sided."
    )
    margin: float = _setting(0.03, 0, 1, "A difference in goodput below this share moves nothing.")
    cost_window_s: float = _setting(
        120.0, 1, 3600, "Tokens a step, for the question of cost: over this time …"
    )
    cost_window_requests: int = _setting(256, 1, 4096, "… and over so many requests at most.")
    steps_age_s: float = _setting(1800.0, 10, 86_400, "Step times older than this are unknown again.")
    step_readings: int = _setting(6, 2, 60, "Readings of step times at a batch until T counts as known.")
    alike_ratio: float = _setting(
        0.98, 0.5, 1, "Step times count for a draft only where this share of the batch ran with it."
    )
    trial_every_s: float = _setting(
        300.0, 1, 86_400, "Between two trials at least, and from a fallback to its first."
    )
    trials: bool = _setting(
        True,
        0,
        1,
        "Without a draft for a while, where it may be quicker and nobody knows how long such a step takes.",
    )
    trial_s: float = _setting(30.0, 2, 3600, "A trial that has not told by then is given up.")
    assumed_break_even: float = _setting(
        2.0,
        1,
        10,
        "Tokens a step that surely pay alone, where nothing was measured: fewer are doubted, and tried.",
    )
    probe_requests: int = _setting(5, 1, 256, "Finished requests of a draft out of force until it is judged.")
    probe_round_s: float = _setting(
        15.0,
        1,
        600,
        "The share of probes is such that a round brings them; the first round after a switch has none.",
    )
    probe_share_min: float = _setting(0.01, 0, 1, "Share of new requests that are probes, at least …")
    probe_share_max: float = _setting(0.33, 0, 1, "… and at most (where a request a second comes, or fewer).")
    shun_s: float = _setting(
        300.0, 0, 86_400, "A rung that was left as bad is passed over, on the way down, for this long."
    )
    broken_after_tokens: int = _setting(40, 1, 10_000, "Tokens proposed at the start, none accepted: broken.")
    exact_s: float = _setting(60.0, 1, 86_400, "Acceptance of exactly 0 or 1 for this long …")
    exact_requests: int = _setting(8, 1, 10_000, "… over so many requests is numerical trouble.")
    exact_drafts: int = _setting(200, 1, 100_000, "Exactly 0 or 1 over so many drafts is worth a warning.")
    drift_fast_s: float = _setting(
        60.0, 1, 86_400, "Memory of the quick mean of AL - 1: it follows a collapse."
    )
    drift_slow_s: float = _setting(1800.0, 10, 604_800, "Memory of the slow mean: it follows a drift.")
    collapse_share: float = _setting(
        0.6, 0, 1, "Collapse: the quick mean is under this share of the slow one."
    )
    drift_share: float = _setting(
        0.8, 0, 1, "Drift: the slow mean is under this share of the best it has been."
    )

    def __post_init__(self) -> None:
        if wrong := [
            message for _, message in problems_of({one.name: getattr(self, one.name) for one in fields(self)})
        ]:
            raise ValueError("; ".join(wrong))


def settings_from(given: Mapping[str, object]) -> PolicySettings:
    """The defaults with these changed. Raises ValueError with everything wrong: unknown keys, types, bounds, contradictions."""
    if wrong := [message for _, message in problems_of(given)]:
        raise ValueError("; ".join(wrong))
    kinds: dict[str, Any] = {one.name: type(one.default) for one in fields(PolicySettings)}
    return PolicySettings(**{name: kinds[name](value) for name, value in given.items()})


def problems_of(given: Mapping[str, object]) -> list[tuple[str, str]]:
    """What is wrong with settings before they are made: (key, sentence), in their order; for whoever knows the key's line."""
    known = {one.name: one for one in fields(PolicySettings)}
    found = []
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            found.append((str(name), f"{name} is no setting{f'; did you mean {near[0]}?' if near else ''}"))
            continue
        kind, about = type(known[name].default), known[name].metadata
        if words := _wrong(value, kind, about["low"], about["high"]):
            found.append((name, f"{name} {words}"))
    return found or _contradictions(
        {one.name: given.get(one.name, one.default) for one in fields(PolicySettings)}
    )


def _wrong(value: object, kind: type, low: float, high: float) -> str:
    if kind is bool:
        return "" if isinstance(value, bool) else "is true or false"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "is a number"
    if kind is int and value != int(value):
        return "is a whole number"
    return "" if low <= value <= high else f"lies between {low:g} and {high:g}, not at {value:g}"


def _contradictions(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = (
        ("probe_share_min", "probe_share_max"),
        ("min_requests", "window_requests"),
        ("probe_requests", "window_requests"),
        ("window_requests", "cost_window_requests"),
        ("window_s", "cost_window_s"),
        ("drift_fast_s", "drift_slow_s"),
    )
    return [
        (small, f"{small} ({value[small]:g}) is more than {large} ({value[large]:g})")
        for small, large in pairs
        if value[small] > value[large]
    ]

"""Which of the new requests are probes, and how many: a few with a draft that is not in force, so that it can come back.

Source: Weyl sequence with the golden ratio (three-distance theorem): any run of numbers holds its share of them, within about
one, and they keep no step with traffic that repeats itself every n-th request.
"""

from __future__ import annotations

from outrider.governor.settings import PolicySettings

_BITS = 64
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd


def is_probe(number: int, share: float) -> bool:
    """Whether the new request of this number (0, 1, 2 …) is a probe, at this share (0 to 1).

    The caller counts the requests that can be drafted; the number goes on when the share changes. Number 0 is one for any share
    above 0.
    """
    return (number * _STEP) % (1 << _BITS) < share * (1 << _BITS)


def probe_share(requests_per_s: float, settings: PolicySettings) -> float:
    """The share of new requests that makes a round bring the probes it needs; within the bounds set."""
    wanted_per_s = settings.probe_requests / settings.probe_round_s
    share = wanted_per_s / requests_per_s if requests_per_s > 0 else settings.probe_share_max
    return min(max(share, settings.probe_share_min), settings.probe_share_max)


def turn_of(seconds: float, drafts: int, settings: PolicySettings) -> int:
    """Which of several drafts (0-based) is probed, this long after the last switch.

    A round is cut in three: two parts are the first one's, the draft that is wanted most; the others share the third, by turns.
    """
    part = int(seconds // (settings.probe_round_s / 3))
    return 0 if part % 3 < 2 or drafts < 2 else 1 + part // 3 % (drafts - 1)

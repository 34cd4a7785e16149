"""Drift and collapse: the two means, alone and as alerts of a governor that is told of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.governor.drift import IDLE_S, Drift, Mean
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from tests.unit.governor.driver import Driver, credit
from tests.unit.governor.traffic import HEAD, head_ladder, quiet

SETTINGS = PolicySettings()
HOUR_S = 3600


def course(*legs: tuple[int, float, float], every_s: float = 5.0) -> list[tuple[float, Drift]]:
    """(moment, drift) along legs of (seconds, from AL - 1, to AL - 1)."""
    drift, at_s, found = Drift(), 0.0, []
    for length_s, begins, ends in legs:
        for step in range(int(length_s / every_s)):
            at_s += every_s
            drift = drift.after(begins + (ends - begins) * step * every_s / length_s, at_s, SETTINGS)
            found.append((at_s, drift))
    return found


def test_the_first_values_of_a_mean_count_in_full() -> None:
    """After one value the mean is that value, not a fraction of it; None before."""
    assert Mean().value is None
    assert Mean().after(2.0, 1.0, 1800.0).value == pytest.approx(2.0)


@pytest.mark.parametrize("hours", [2, 4, 8])
def test_a_slow_fall_is_a_drift_and_never_a_collapse(hours: int) -> None:
    """AL 3.0 to 2.2 over hours: a drift by the end, at no moment a collapse."""
    seen = course((HOUR_S, 2.0, 2.0), (hours * HOUR_S, 2.0, 1.2), (HOUR_S, 1.2, 1.2))
    assert all(one.collapsed_s is None for _, one in seen)
    assert seen[-1][1].drifting(SETTINGS)
    assert not any(one.drifting(SETTINGS) for at_s, one in seen if at_s <= HOUR_S)


def test_a_sudden_fall_is_a_collapse_and_never_a_drift() -> None:
    """AL 3.0 to 1.1 at once: a collapse within two minutes, over as soon as acceptance is back."""
    seen = course((HOUR_S, 2.0, 2.0), (1200, 0.1, 0.1), (600, 2.0, 2.0))
    began = next(at_s for at_s, one in seen if one.collapsed_s is not None)
    assert HOUR_S < began <= HOUR_S + 120
    assert all(one.collapsed_s is not None for at_s, one in seen if began <= at_s <= HOUR_S + 1200)
    assert seen[-1][1].collapsed_s is None
    assert not any(one.drifting(SETTINGS) for _, one in seen)


def test_a_drift_that_collapses_is_a_collapse() -> None:
    """Never both at once: a slow fall to 2.4 is a drift; when it breaks from there, that is what is told."""
    seen = course((HOUR_S, 2.0, 2.0), (6 * HOUR_S, 2.0, 1.4), (600, 0.05, 0.05))
    assert any(one.drifting(SETTINGS) for at_s, one in seen if at_s <= 7 * HOUR_S)
    assert seen[-1][1].collapsed_s is not None
    assert not seen[-1][1].drifting(SETTINGS)


def test_a_small_sudden_fall_is_no_collapse() -> None:
    """AL 3.0 to 2.4 at once is not one; the slow mean tells it as a drift once it has followed."""
    seen = course((HOUR_S, 2.0, 2.0), (3 * HOUR_S, 1.4, 1.4))
    assert all(one.collapsed_s is None for _, one in seen)
    assert seen[-1][1].drifting(SETTINGS)


def test_a_collapse_that_stays_becomes_how_things_are() -> None:
    """After as long as the slow mean remembers, the level is the new one: neither collapse nor drift."""
    seen = course((HOUR_S, 2.0, 2.0), (3 * HOUR_S, 0.2, 0.2))
    assert seen[-1][1].collapsed_s is None
    assert not seen[-1][1].drifting(SETTINGS)
    assert seen[-1][1].slow.value == pytest.approx(0.2, abs=0.02)


def test_time_without_traffic_ages_nothing() -> None:
    """Twelve hours of silence count as ten seconds: the slow mean is still there in the morning."""
    drift = course((HOUR_S, 2.0, 2.0))[-1][1]
    morning = drift.after(2.0, HOUR_S + 12 * HOUR_S, SETTINGS)
    assert morning.busy_s == drift.busy_s + IDLE_S
    assert morning.slow.value == pytest.approx(2.0)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 8.0), min_size=1, max_size=300))
def test_a_mean_stays_between_what_it_saw(values: list[float]) -> None:
    """Both means lie within the values; so does the best, once there is one."""
    drift = Drift()
    for second, value in enumerate(values):
        drift = drift.after(value, float(second * 30), SETTINGS)
    for seen in (drift.fast.value, drift.slow.value, drift.best):
        assert seen is None or min(values) - 1e-9 <= seen <= max(values) + 1e-9


def test_the_alerts_tell_them_apart() -> None:
    """Told by finished requests: a fall to 2.2 over hours is a drift, the sudden one a collapse."""
    slow = Driver(Policy(head_ladder(None), quiet()))
    kinds = set()
    for second in range(0, 4 * HOUR_S, 10):
        length = 3.0 - 0.8 * max(second - HOUR_S, 0) / (3 * HOUR_S)
        slow.look([credit(HEAD, length, slow.at_s + 10.0)], passed_s=10.0)
        kinds |= {alert.kind for alert in slow.decision.alerts}
    assert kinds == {"drift"}
    assert slow.switches == []
    sudden = Driver(Policy(head_ladder(), quiet()))
    sudden.serve(400, {HEAD: 3.0})
    sudden.serve(200, {HEAD: 1.1, "ngram": 1.3})
    assert {alert.kind for alert in sudden.decision.alerts if alert.draft == HEAD} == {
        "collapse",
        "under-baseline",
    }
    assert sudden.decision.draft == "ngram"

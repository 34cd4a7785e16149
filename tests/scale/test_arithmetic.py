"""The autoscaler's arithmetic against worked examples, each written from a rule of Kubernetes' documentation.

Source of the rules: kubernetes.io, "Horizontal Pod Autoscaling" (algorithm details; configurable scaling behavior).
"""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.deploy.scaling import (
    Autoscaler,
    External,
    Limit,
    Metric,
    PerPod,
    Pod,
    Policy,
    Reading,
    Rules,
    proposal,
)

FREE = Rules(0.0, (Limit("Percent", 1000, 15.0),))
VALUE, AVERAGE, CPU = External("wait", 500.0), External("running", 10.0, per_replica=True), PerPod("cpu", 0.5)


def policy(*metrics: Metric, up: Rules = FREE, down: Rules = FREE, least: int = 1, most: int = 100) -> Policy:
    """A policy that lets everything through but what the test sets."""
    return Policy(least, most, metrics or (VALUE,), up, down)


def pods(*values: float | None, starting: int = 0) -> list[Pod]:
    """Ready pods with these readings (None: missing), and some that are not ready."""
    return [Pod(value) for value in values] + [Pod(None, ready=False)] * starting


@pytest.mark.parametrize(
    ("metric", "reading", "current", "ready", "expected"),
    [
        # ceil(current × value / target): twice the target doubles, half of it halves
        (VALUE, 1000.0, 1, 1, 2),
        (VALUE, 1000.0, 3, 3, 6),
        (VALUE, 250.0, 4, 4, 2),
        (VALUE, 700.0, 5, 5, 7),
        (VALUE, 701.0, 5, 5, 8),  # rounded up, never down
        (VALUE, 0.0, 5, 5, 0),
        # inside ±10 % nothing moves; at the edge neither
        (VALUE, 549.0, 5, 5, 5),
        (VALUE, 550.0, 5, 5, 5),
        (VALUE, 451.0, 5, 5, 5),
        (VALUE, 551.0, 5, 5, 6),
        (VALUE, 449.0, 5, 5, 5),  # 4.49 rounds up to what is there
        (VALUE, 399.0, 5, 5, 4),
        # a ratio is multiplied by ready replicas: those that start do not multiply the call for more
        (VALUE, 1500.0, 4, 2, 6),
        (VALUE, 1000.0, 4, 2, 4),
        # from zero: the ratio itself
        (VALUE, 1200.0, 0, 0, 3),
        (VALUE, 0.0, 0, 0, 0),
        # AverageValue: the sum over the target per replica, whatever is ready
        (AVERAGE, 31.0, 2, 1, 4),
        (AVERAGE, 21.0, 2, 2, 2),  # 5 % over: within the tolerance
        (AVERAGE, 23.0, 2, 2, 3),
        (AVERAGE, 9.0, 3, 3, 1),
        (AVERAGE, 11.0, 0, 0, 2),
        # a metric that is not there, or no number, proposes nothing
        (VALUE, None, 3, 3, None),
        (VALUE, math.nan, 3, 3, None),
        # pods: the mean over ready pods with a reading
        (CPU, pods(0.9, 1.1), 2, 2, 4),
        (CPU, pods(0.5, 0.5), 2, 2, 2),
        (CPU, pods(0.2, 0.2, 0.2), 3, 3, 2),
        # not ready pods count as 0 % when it would scale up: 1.0/0.5 × 2 would be 4; with the third at 0: (2.0/3)/0.5 × 3 = 4
        (CPU, pods(1.0, 1.0, starting=1), 3, 2, 4),
        # … and damp it to nothing where the new ratio is within the tolerance: (1.1/2)/0.5 = 1.1
        (CPU, pods(1.1, starting=1), 2, 1, 2),
        # … or would turn the direction: 0.75/0.5 = 1.5, with the second at 0: 0.75
        (CPU, pods(0.75, starting=1), 2, 1, 2),
        # not ready pods are left out of a scale-down
        (CPU, pods(0.2, 0.2, starting=1), 3, 2, 1),
        # missing readings count as the target in a scale-down: (0.1 + 0.1 + 0.5)/3 /0.5 × 3 = 1.4 → 2
        (CPU, pods(0.1, 0.1, None), 3, 3, 2),
        # … and as 0 in a scale-up: (1.6 + 0)/2 /0.5 = 1.6 → 4
        (CPU, pods(1.6, None), 2, 2, 4),
        # … and never turn the direction: 0.9/0.5 = 1.8, with the second at 0: 0.9
        (CPU, pods(0.9, None), 2, 2, 2),
        # no reading of any pod, or no pods: nothing is proposed; a Pods metric cannot scale from zero
        (CPU, pods(None, None), 2, 2, None),
        (CPU, [], 0, 0, None),
    ],
)  # fmt: skip
def test_one_metric(metric: Metric, reading: Reading, current: int, ready: int, expected: int | None) -> None:
    """What a metric proposes is what the documentation's rule gives."""
    assert proposal(metric, reading, current, ready, policy(metric)) == expected


def test_the_largest_proposal_counts() -> None:
    """Several metrics: each is computed, the largest replica count is taken. So two triggers of KEDA's."""
    scaler = Autoscaler(policy(VALUE, AVERAGE))
    found = scaler.look(0.0, 2, 2, {"wait": 0.0, "running": 40.0})
    assert (found.replicas, found.proposed) == (4, {"wait": 0, "running": 4})


def test_a_missing_metric_forbids_a_scale_down_alone() -> None:
    """With one metric unreadable the others may still scale up, never down; with none readable nothing moves."""
    scaler = Autoscaler(policy(VALUE, AVERAGE))
    assert scaler.look(0.0, 4, 4, {"wait": None, "running": 10.0}).replicas == 4
    assert scaler.look(15.0, 4, 4, {"wait": 0.0}).replicas == 4
    assert scaler.look(30.0, 4, 4, {}).replicas == 4
    assert scaler.look(45.0, 4, 4, {"wait": None, "running": 80.0}).replicas == 8


def test_least_and_most() -> None:
    """Between min and max replicas; a count outside is brought back at once; 0 with a minimum means paused."""
    scaler = Autoscaler(policy(least=2, most=5))
    assert scaler.look(0.0, 4, 4, {"wait": 5000.0}).replicas == 5
    assert scaler.look(15.0, 4, 4, {"wait": 0.0}).replicas == 2
    assert scaler.look(30.0, 9, 9, {"wait": 5000.0}).replicas == 5
    assert scaler.look(45.0, 1, 1, {"wait": 0.0}).replicas == 2
    assert scaler.look(60.0, 0, 0, {"wait": 5000.0}).replicas == 0


def test_the_up_window_takes_the_least_proposed() -> None:
    """Up only to what was proposed throughout the window; what was there at the first look counts."""
    scaler = Autoscaler(policy(up=replace(FREE, window_s=30.0)))
    seen = [
        scaler.look(at, 1, 1, {"wait": wait}).replicas
        for at, wait in ((0, 2000), (15, 1500), (30, 2500), (45, 2500))
    ]
    assert seen == [1, 1, 3, 5]


def test_the_down_window_takes_the_most_proposed() -> None:
    """Down only to the most proposed within the window (the page's 300 s example, in looks of 60 s)."""
    scaler = Autoscaler(policy(down=replace(FREE, window_s=300.0)))
    current, seen = 10, []
    for at, wait in (
        (0, 500),
        (60, 100),
        (120, 250),
        (180, 0),
        (240, 0),
        (300, 0),
        (360, 0),
        (420, 0),
        (480, 0),
    ):
        current = scaler.look(at, current, current, {"wait": float(wait)}).replicas
        seen.append(current)
    # At 300 s the 10 of the start has left the window; 5 was proposed at 120 s.
    assert seen == [10, 10, 10, 10, 10, 5, 5, 1, 1]


def test_percent_of_the_page() -> None:
    """ "10 % a minute": 80 → 72 → 64, for a tenth of 72 is 7.2, rounded up to 8 pods."""
    scaler = Autoscaler(policy(down=Rules(0.0, (Limit("Percent", 10, 60.0),)), most=200))
    assert scaler.look(0.0, 80, 80, {"wait": 50.0}).replicas == 72
    assert scaler.look(60.0, 72, 72, {"wait": 50.0}).replicas == 64


def test_a_limit_holds_over_its_period() -> None:
    """ "4 pods a minute" counts what was already added in that minute, whatever the number of looks."""
    scaler = Autoscaler(policy(up=Rules(0.0, (Limit("Pods", 4, 60.0),))))
    current, seen = 10, []
    for look in range(6):
        current = scaler.look(15.0 * look, current, current, {"wait": 5000.0}).replicas
        seen.append(current)
    assert seen == [14, 14, 14, 14, 18, 18]


@pytest.mark.parametrize(
    ("select", "up", "down"), [("Max", 25, 70), ("Min", 84, 76)], ids=["Max", "Min"]
)  # fmt: skip
def test_select_between_limits(select: str, up: int, down: int) -> None:
    """Max takes the limit that lets most change, Min the one that lets least; up and down alike."""
    rules = Rules(0.0, (Limit("Percent", 5, 60.0), Limit("Pods", 10, 60.0)), select)  # type: ignore[arg-type]
    found = Autoscaler(policy(up=rules, down=rules, most=1000)).look(0.0, 80, 80, {"wait": 50.0})
    assert found.replicas == down
    start = 80 if select == "Min" else 15
    found = Autoscaler(policy(up=rules, down=rules, most=1000)).look(0.0, start, start, {"wait": 5000.0})
    assert found.replicas == up


def test_disabled_never_moves() -> None:
    """`selectPolicy: Disabled` turns a direction off."""
    scaler = Autoscaler(policy(down=replace(FREE, select="Disabled")))
    assert scaler.look(0.0, 5, 5, {"wait": 0.0}).replicas == 5


def test_up_doubles_by_default() -> None:
    """Without a behavior: up by 100 % or 4 pods in 15 s, the larger; down by 100 % after 300 s."""
    default = Policy(1, 100, (VALUE,))
    assert Autoscaler(default).look(0.0, 1, 1, {"wait": 50_000.0}).replicas == 5
    assert Autoscaler(default).look(0.0, 10, 10, {"wait": 50_000.0}).replicas == 20
    scaler = Autoscaler(default)
    assert [scaler.look(at, 10, 10, {"wait": 0.0}).replicas for at in (0.0, 299.0, 301.0)] == [10, 10, 1]


def test_zero_is_for_keda() -> None:
    """KEDA wakes a workload with one replica as soon as a trigger is active, and lets it sleep after the cool-down alone."""
    lane = replace(policy(VALUE, AVERAGE, least=0), keda=True, cooldown_s=600.0)
    scaler = Autoscaler(lane)
    assert scaler.look(0.0, 0, 0, {"wait": 0.0, "running": 0.0}).replicas == 0
    assert scaler.look(15.0, 0, 0, {"wait": 9000.0, "running": 0.0}).replicas == 1
    assert scaler.look(30.0, 1, 0, {"wait": 9000.0, "running": 0.0}).replicas == 1, (
        "nothing is ready to multiply by"
    )
    assert scaler.look(45.0, 1, 1, {"wait": 9000.0, "running": 5.0}).replicas == 11
    assert scaler.look(60.0, 11, 11, {"wait": 0.0, "running": 0.0}).replicas == 1, (
        "the autoscaler's own part ends at 1"
    )
    assert scaler.look(644.0, 1, 1, {"wait": 0.0, "running": 0.0}).replicas == 1
    assert scaler.look(646.0, 1, 1, {"wait": None, "running": 0.0}).replicas == 1, "not known to be idle"
    assert scaler.look(660.0, 1, 1, {"wait": 0.0, "running": 0.0}).replicas == 0


def test_an_external_metric_scales_from_zero_without_keda() -> None:
    """A HorizontalPodAutoscaler with `minReplicas: 0` (HPAScaleToZero): the ratio alone decides from zero on."""
    scaler = Autoscaler(policy(VALUE, up=Rules(0.0, (Limit("Pods", 10, 15.0),)), least=0))
    assert scaler.look(0.0, 0, 0, {"wait": 1200.0}).replicas == 3
    assert scaler.look(15.0, 3, 3, {"wait": 0.0}).replicas == 0


def test_percent_of_nothing_is_nothing() -> None:
    """From zero a limit in percent lets nothing through: a policy that scales from zero needs one in pods."""
    assert Autoscaler(policy(VALUE, least=0)).look(0.0, 0, 0, {"wait": 1200.0}).replicas == 0


@given(
    looks=st.lists(
        st.tuples(st.floats(0, 5e4), st.floats(0, 500), st.integers(0, 4)), min_size=1, max_size=60
    ),
    window_s=st.sampled_from([0.0, 30.0, 300.0]),
    step=st.integers(1, 3),
)
def test_never_outside_its_bounds(looks: list[tuple[float, float, int]], window_s: float, step: int) -> None:
    """Whatever the readings: within min and max, and no further from a period's start than the limit says."""
    rules = Rules(window_s, (Limit("Pods", step, 60.0),))
    scaler = Autoscaler(policy(VALUE, AVERAGE, up=rules, down=rules, least=2, most=9))
    history = [2]
    for number, (wait, running, starting) in enumerate(looks):
        current = history[-1]
        ready = max(current - starting, 0)
        history.append(
            scaler.look(15.0 * number, current, ready, {"wait": wait, "running": running}).replicas
        )
        assert 2 <= history[-1] <= 9
    for look, (current, after) in enumerate(itertools.pairwise(history)):
        start = history[max(look - 3, 0)]  # before the oldest of the four looks of this period
        assert after <= max(current, start + step)
        assert after >= min(current, start - step)

"""How many replicas: the arithmetic of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2), pure and on any clock.

One look goes through these steps; numbers of replicas are whole, times are seconds on the caller's clock:

1. each metric proposes: ceil(replicas × value / target), nothing where value / target is within the tolerance of 1
2. the largest proposal counts; a metric that cannot be read forbids a scale-down that the others propose
3. stabilisation: up only to the least proposed within the up window, down only to the most proposed within the down window
4. policies: no more pods, or percent, than allowed within a period; `select` says which policy of several
5. never under `min_replicas`, never over `max_replicas`

KEDA makes the autoscaler out of its ScaledObject and adds step 0: it alone switches between 0 and 1.

Source: kubernetes.io, "Horizontal Pod Autoscaling" (algorithm details, configurable scaling behavior); where the page is silent,
the controller, `pkg/controller/podautoscaler` (`replica_calculator.go`, `horizontal.go`); keda.sh, "Scaling Deployments".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SYNC_S = 15.0  # --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance


@dataclass(frozen=True, slots=True)
class Limit:
    """One scaling policy: at most `value` pods, or percent of the replicas at the period's start, within `period_s` seconds."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Rules:
    """One direction: how long a proposal must stand, how fast it is followed, which ratio is too small to follow."""

    window_s: float
    limits: tuple[Limit, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    tolerance: float = TOLERANCE


DEFAULT_UP = Rules(0.0, (Limit("Percent", 100, 15.0), Limit("Pods", 4, 15.0)))
DEFAULT_DOWN = Rules(300.0, (Limit("Percent", 100, 15.0),))


@dataclass(frozen=True, slots=True)
class External:
    """A metric of no pod: `per_replica` False compares its value (``type: Value``), True its value / replicas (``AverageValue``).

    `query` is what KEDA asks Prometheus for; above `activation` the metric wakes a workload that KEDA had put to zero.
    """

    name: str
    target: float
    per_replica: bool = False
    query: str = ""
    activation: float = 0.0


@dataclass(frozen=True, slots=True)
class PerPod:
    """A metric of each pod (``Pods``, ``Resource``): the mean over pods against `target`."""

    name: str
    target: float


Metric = External | PerPod


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod's reading: `value` None where it is missing; `ready` False where the pod has not become ready yet."""

    value: float | None
    ready: bool = True


Reading = float | Sequence[Pod] | None  # External: a value, None where there is none. PerPod: the pods.


@dataclass(frozen=True, slots=True)
class Policy:
    """What a HorizontalPodAutoscaler or ScaledObject declares. `keda`: scaling to and from zero is KEDA's, after `cooldown_s`."""

    min_replicas: int
    max_replicas: int
    metrics: tuple[Metric, ...]
    up: Rules = DEFAULT_UP
    down: Rules = DEFAULT_DOWN
    keda: bool = False
    cooldown_s: float = 300.0
    sync_s: float = SYNC_S


@dataclass(frozen=True, slots=True)
class Decision:
    """The replicas from now on, why, and what each metric proposed (None: it could not be read)."""

    replicas: int
    reason: str
    proposed: Mapping[str, int | None] = field(default_factory=dict)


def proposal(metric: Metric, reading: Reading, current: int, ready: int, policy: Policy) -> int | None:
    """What one metric proposes; None where it cannot be read, or cannot be of no pods.

    `current`: replicas declared, `ready`: of them ready, the ones that a value's ratio is multiplied by.
    """
    if isinstance(metric, PerPod):
        return None if not isinstance(reading, Sequence) else _per_pod(metric, reading, current, policy)
    if not isinstance(reading, (int, float)) or not math.isfinite(reading):
        return None
    if metric.per_replica:
        ratio = reading / (metric.target * current) if current else math.inf
        return current if _small(ratio, policy) else math.ceil(reading / metric.target)
    ratio = reading / metric.target
    if not current:
        return math.ceil(ratio)
    return current if _small(ratio, policy) else math.ceil(ratio * ready)


def _per_pod(metric: PerPod, pods: Sequence[Pod], current: int, policy: Policy) -> int | None:
    """Pods that are not ready, or have no reading, hold a change back and never turn it round."""
    known = [pod.value for pod in pods if pod.ready and pod.value is not None]
    if not known:
        return None
    starting = sum(not pod.ready for pod in pods)
    missing = sum(pod.ready and pod.value is None for pod in pods)
    ratio = sum(known) / len(known) / metric.target
    assumed = [0.0 if ratio > 1 else metric.target] * missing + [0.0] * (starting if ratio > 1 else 0)
    if not assumed:
        return current if _small(ratio, policy) else math.ceil(ratio * len(known))
    counted = known + assumed
    damped = sum(counted) / len(counted) / metric.target
    proposed = math.ceil(damped * len(counted))
    turned = (ratio > 1) != (damped > 1) or (proposed < current if damped > 1 else proposed > current)
    return current if _small(damped, policy) or turned else proposed


def _small(ratio: float, policy: Policy) -> bool:
    return 1 - policy.down.tolerance <= ratio <= 1 + policy.up.tolerance


class Autoscaler:
    """The controller's memory between looks: proposals for the stabilisation windows, changes for the policies' periods."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._proposals: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []  # (when, replicas added; negative: removed)
        self._active_s: float | None = None

    def look(self, now_s: float, current: int, ready: int, readings: Mapping[str, Reading]) -> Decision:
        """The decision at `now_s`. `readings` by the metrics' names; what is not in it is missing."""
        policy = self.policy
        if policy.keda and (switched := self._switch(now_s, current, readings)):
            decision = switched
        elif current == 0 and self._least > 0:
            decision = Decision(0, "paused: 0 replicas were set by hand")
        elif current > policy.max_replicas:
            decision = Decision(policy.max_replicas, "over max_replicas")
        elif current < self._least:
            decision = Decision(self._least, "under min_replicas")
        else:
            decision = self._decide(now_s, current, ready, readings)
        if decision.replicas != current:
            self._changes.append((now_s, decision.replicas - current))
        return decision

    @property
    def _least(self) -> int:
        """KEDA's autoscaler knows no zero: the switch does that."""
        return max(self.policy.min_replicas, 1) if self.policy.keda else self.policy.min_replicas

    def _switch(self, now_s: float, current: int, readings: Mapping[str, Reading]) -> Decision | None:
        """KEDA's own part: to 1 when a trigger is active, to 0 when none was for `cooldown_s`. Only with `min_replicas` 0."""
        if self.policy.min_replicas > 0:
            return None
        values = [
            (readings.get(metric.name), metric.activation)
            for metric in self.policy.metrics
            if isinstance(metric, External)
        ]
        active = any(isinstance(value, (int, float)) and value > least for value, least in values)
        if active:
            self._active_s = now_s
            return Decision(1, "a trigger is active") if current == 0 else None
        if current == 0:
            return Decision(0, "no trigger is active")
        if any(value is None for value, _ in values):
            return None  # not known to be idle
        if self._active_s is None:
            self._active_s = now_s
        if now_s - self._active_s < self.policy.cooldown_s:
            return None
        return Decision(0, f"no trigger was active for {self.policy.cooldown_s:g} s")

    def _decide(self, now_s: float, current: int, ready: int, readings: Mapping[str, Reading]) -> Decision:
        policy = self.policy
        proposed = {
            metric.name: proposal(metric, readings.get(metric.name), current, ready, policy)
            for metric in policy.metrics
        }
        known = {name: count for name, count in proposed.items() if count is not None}
        if not known:
            return Decision(current, "no metric could be read", proposed)
        leader = max(known, key=lambda name: known[name])
        wanted = known[leader]
        if wanted < current and len(known) < len(proposed):
            return Decision(current, "a metric could not be read: no scale-down", proposed)
        if not self._proposals:
            self._proposals.append((now_s, current))
        stable = self._stabilised(now_s, current, wanted)
        limited = self._limited(now_s, current, stable)
        reason = f"{leader} proposes {wanted}"
        if stable != wanted:
            reason += f", the stabilisation window makes it {stable}"
        if limited != stable:
            reason += f", limits make it {limited}"
        return Decision(limited, reason, proposed)

    def _stabilised(self, now_s: float, current: int, wanted: int) -> int:
        windows = (self.policy.up.window_s, self.policy.down.window_s)
        up, down = (
            [count for at_s, count in self._proposals if at_s > now_s - window_s] + [wanted]
            for window_s in windows
        )
        self._proposals = [row for row in self._proposals if row[0] > now_s - max(windows)]
        self._proposals.append((now_s, wanted))
        return min(max(current, min(up)), max(down))

    def _limited(self, now_s: float, current: int, wanted: int) -> int:
        policy = self.policy
        periods = [limit.period_s for rules in (policy.up, policy.down) for limit in rules.limits]
        self._changes = [row for row in self._changes if row[0] > now_s - max(periods, default=0.0)]
        if wanted > current:
            highest = max(self._furthest(now_s, current, policy.up, 1), current)
            return min(wanted, highest, policy.max_replicas)
        if wanted < current:
            lowest = min(self._furthest(now_s, current, policy.down, -1), current)
            return max(wanted, lowest, self._least)
        return current

    def _furthest(self, now_s: float, current: int, rules: Rules, sign: int) -> int:
        """How far the policies of one direction (1 up, -1 down) let it go; a percent's part of a pod is a whole one."""
        if rules.select == "Disabled" or not rules.limits:
            return current
        reach = []
        for limit in rules.limits:
            start = current - sum(change for at_s, change in self._changes if at_s > now_s - limit.period_s)
            step = limit.value if limit.kind == "Pods" else math.ceil(start * limit.value / 100)
            reach.append(start + sign * step)
        most = max if (rules.select == "Max") == (sign > 0) else min
        return most(reach)

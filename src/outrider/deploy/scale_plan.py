"""A load and a policy tried on the model: when replicas come and go, how long requests wait. Pure, on a virtual clock.

All of it is *modelled*: the autoscaler by its documented arithmetic, the engines by their measured times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.core.latency import percentile
from outrider.deploy.scale_model import Fleet, Phase, Site, arrivals, most_requests, share_used
from outrider.deploy.scaling import Autoscaler, External, Pod, Policy, Reading
from outrider.deploy.scaling_policy import quantity

TICK_S = 1.0
MAX_REQUESTS = 400_000
MAX_TIME_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Cpu:
    """What the pods' CPU is assumed to be, as share of what they request: without work, and with all places taken.

    An engine's own process waits for the GPU in a loop, so that a core is busy at any load; what grows with it is the text in
    and out. Nothing here is measured: state what yours does.
    """

    idle: float = 0.5
    full: float = 0.7


@dataclass(frozen=True, slots=True)
class Moment:
    """One second: the load offered (requests/s), the front's gauge, requests at engines and in the queue, replicas."""

    at_s: float
    load_s: float
    queue_wait_ms: float
    running: int
    waiting: int
    ready: int
    declared: int


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changed the number of replicas."""

    at_s: float
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. Waits are of dispatched requests; `over_target_s` counts seconds with the gauge over `target_ms`.

    `lost` are requests the front would have refused: queue full, or waited too long. `replica_hours` count start and drain too.
    """

    moments: tuple[Moment, ...]
    changes: tuple[Change, ...]
    target_ms: float
    arrived: int
    served: int
    queue_full: int
    queue_timeout: int
    under_way: int
    wait_p50_ms: float
    wait_p90_ms: float
    wait_p99_ms: float
    worst_ms: float
    over_target_s: float
    most_replicas: int
    replica_hours: float

    @property
    def lost(self) -> int:
        """Requests that were not served."""
        return self.queue_full + self.queue_timeout


def plan(
    phases: Sequence[Phase],
    site: Site,
    policy: Policy,
    target_ms: float,
    *,
    seed: int = 0,
    cpu: Cpu | None = None,
) -> Outcome:
    """Run the load over the fleet with the policy. Raises ValueError for a load too large to play through."""
    length_s = sum(phase.length_s for phase in phases)
    if most_requests(phases) > MAX_REQUESTS or length_s > MAX_TIME_S:
        raise ValueError(
            f"that is {most_requests(phases):,.0f} requests over {length_s / 3600:,.1f} h; played through are at most "
            f"{MAX_REQUESTS:,} requests and {MAX_TIME_S / 3600:,.0f} h"
        )
    fleet, scaler = Fleet(site, policy.min_replicas), Autoscaler(policy)
    coming = arrivals(phases, seed)
    moments: list[Moment] = []
    changes: list[Change] = []
    arrived, next_look_s = 0, policy.sync_s
    upcoming = next(coming, None)
    tick = 0
    while (now_s := tick * TICK_S) <= length_s:
        while upcoming is not None and upcoming <= now_s:
            fleet.arrive(upcoming)
            arrived, upcoming = arrived + 1, next(coming, None)
        fleet.advance(now_s)
        fleet.expire()
        if now_s >= next_look_s:
            next_look_s += policy.sync_s
            current = fleet.declared
            decision = scaler.look(now_s, current, fleet.ready, readings(fleet, policy, cpu or Cpu()))
            if decision.replicas != current:
                fleet.scale(decision.replicas)
                changes.append(Change(now_s, current, decision.replicas, decision.reason))
        moments.append(
            Moment(
                at_s=now_s,
                load_s=_load(phases, now_s),
                queue_wait_ms=fleet.queue_wait_ms(),
                running=fleet.running,
                waiting=fleet.waiting,
                ready=fleet.ready,
                declared=fleet.declared,
            )
        )
        tick += 1
    waits = fleet.waits_s or [0.0]
    return Outcome(
        moments=tuple(moments),
        changes=tuple(changes),
        target_ms=target_ms,
        arrived=arrived,
        served=fleet.served,
        queue_full=fleet.refused,
        queue_timeout=fleet.expired,
        under_way=fleet.running + fleet.waiting,
        wait_p50_ms=percentile(waits, 50) * 1e3,
        wait_p90_ms=percentile(waits, 90) * 1e3,
        wait_p99_ms=percentile(waits, 99) * 1e3,
        worst_ms=max(moment.queue_wait_ms for moment in moments),
        over_target_s=sum(TICK_S for moment in moments if moment.queue_wait_ms > target_ms),
        most_replicas=max(moment.declared for moment in moments),
        replica_hours=fleet.replica_s / 3600,
    )


def readings(fleet: Fleet, policy: Policy, cpu: Cpu) -> Mapping[str, Reading]:
    """What the policy's metrics read of the fleet now."""
    return {metric.name: _reading(fleet, metric, cpu) for metric in policy.metrics}


def _reading(fleet: Fleet, metric: object, cpu: Cpu) -> Reading:
    if isinstance(metric, External):
        return fleet.queue_wait_ms() if quantity(metric) == "queue_wait_ms" else float(fleet.running)
    return [
        Pod(share_used(replica, fleet.site, cpu.idle, cpu.full), ready=replica.state == "ready")
        for replica in fleet.replicas
        if replica.state != "draining"
    ]


def _load(phases: Sequence[Phase], at_s: float) -> float:
    for phase in phases:
        if at_s < phase.length_s:
            return phase.rate_s
        at_s -= phase.length_s
    return phases[-1].rate_s


def settled_s(outcome: Outcome, from_s: float, until_s: float) -> float | None:
    """When, within a phase, the gauge came under the target to stay there; None where it never did."""
    under: float | None = None
    for moment in outcome.moments:
        if from_s <= moment.at_s < until_s:
            over = moment.queue_wait_ms > outcome.target_ms
            under = None if over else moment.at_s if under is None else under
    return under

"""A front and its engines on a virtual clock: the real queue and choice of upstream, engines by their measured times.

Real are `front.admission.Admission` (order, bounds, timeouts, `queue_wait_ms`) and `control.upstreams.UpstreamSet` (the ready
engine with the fewest requests). Modelled is an engine. All of its requests go on together; with b of them under way, the
first token takes TTFT(b) and each token after it TPOT(b), both measured. Same seed, same arrivals, same result.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from outrider.control.upstreams import Upstream, UpstreamSet
from outrider.deploy.service_times import ServiceTimes
from outrider.front.admission import Admission
from outrider.front.settings import LaneRule

LANE = "interactive"


@dataclass(frozen=True, slots=True)
class Phase:
    """`rate_s` requests a second, arriving at random (Poisson), for `length_s` seconds."""

    rate_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Site:
    """What stays the same over a run: how an engine serves, how long one takes to be ready, what the front's queue holds."""

    times: ServiceTimes
    concurrency: int
    output_tokens: int
    start_s: float
    queue: LaneRule


def arrivals(phases: Sequence[Phase], seed: int) -> Iterator[float]:
    """The moments at which requests come, in seconds from the start."""
    draw = random.Random(seed)  # noqa: S311  (traffic, not a secret)
    begin_s = 0.0
    for phase in phases:
        at_s, end_s = begin_s, begin_s + phase.length_s
        while phase.rate_s > 0 and (at_s := at_s + draw.expovariate(phase.rate_s)) < end_s:
            yield at_s
        begin_s = end_s


@dataclass(eq=False, slots=True)
class Request:
    """A ticket of the front's queue."""

    arrived_s: float
    key: str = "load"
    lane: str = LANE
    limit: int | None = None


@dataclass(eq=False, slots=True)
class Replica:
    """One engine: `work` is how many tokens a request that was there all the time would have made."""

    upstream: Upstream
    ready_s: float
    state: Literal["starting", "ready", "draining"] = "starting"
    work: float = 0.0
    at_s: float = 0.0
    decoding: list[tuple[float, int]] = field(default_factory=list)  # (work at its end, number)


class Fleet:
    """The front's queue and all replicas. `advance` moves the clock; everything in between happens in order of time."""

    def __init__(self, site: Site, replicas: int) -> None:
        self.site = site
        self.admission: Admission[Request] = Admission({LANE: site.queue})
        self.upstreams = UpstreamSet()
        self.replicas: list[Replica] = []
        self.now_s = 0.0
        self.served = self.refused = self.expired = 0
        self.waits_s: list[float] = []
        self.replica_s = 0.0
        self._number = count()
        self._first_tokens: list[tuple[float, int, Replica]] = []
        for _ in range(replicas):
            self._add(0.0)

    # ---- what is seen from outside

    @property
    def declared(self) -> int:
        """Replicas that the workload declares: all but those that drain."""
        return sum(replica.state != "draining" for replica in self.replicas)

    @property
    def ready(self) -> int:
        """Replicas that take work."""
        return sum(replica.state == "ready" for replica in self.replicas)

    @property
    def running(self) -> int:
        """Requests at the engines."""
        return sum(replica.upstream.in_flight for replica in self.replicas)

    @property
    def waiting(self) -> int:
        """Requests in the front's queue."""
        return self.admission.waiting(LANE)

    def queue_wait_ms(self) -> float:
        """The front's gauge, now."""
        return self.admission.queue_wait_ms(self.now_s)

    # ---- what is done to it

    def scale(self, wanted: int) -> None:
        """Start or drain replicas; of those to go, starting ones first, then the youngest (a ReplicaSet's order)."""
        while self.declared < wanted:
            self._add(self.site.start_s)
        staying = [replica for replica in self.replicas if replica.state != "draining"]
        going = sorted(staying, key=lambda one: (one.state == "starting", one.ready_s), reverse=True)
        for replica in going[: max(len(staying) - wanted, 0)]:
            replica.state = "draining"
            self.upstreams.remove(replica.upstream.name)
        self._bury()

    def arrive(self, at_s: float) -> None:
        """A request comes."""
        self.advance(at_s)
        self.admission.offer(Request(at_s))
        self._pump()
        if self.admission.overflow(LANE) is not None:
            self.refused += 1

    def advance(self, to_s: float) -> None:
        """Let everything happen that happens until `to_s`."""
        while (event := min(self._events(), key=lambda one: one[0], default=None)) and event[0] <= to_s:
            self._at(max(event[0], self.now_s))
            replica, what = event[1], event[2]
            if what == "ready":
                replica.state = "ready"
                self.upstreams.add(replica.upstream)
            elif what == "first":
                heapq.heappop(self._first_tokens)
                self._go_on(replica)
                end = replica.work + self.site.output_tokens - 1
                heapq.heappush(replica.decoding, (end, next(self._number)))
            else:
                self._go_on(replica)
                heapq.heappop(replica.decoding)
                replica.upstream.end(self.now_s)
                self.served += 1
                self.admission.done(Request(0.0))
                self._bury()
            self._pump()
        self._at(to_s)

    def expire(self) -> None:
        """What waited too long leaves the queue."""
        self.expired += len(self.admission.expire(self.now_s))

    # ---- inside

    def _events(self) -> Iterator[tuple[float, Replica, str]]:
        if self._first_tokens:
            yield self._first_tokens[0][0], self._first_tokens[0][2], "first"
        for replica in self.replicas:
            if replica.state == "starting":
                yield replica.ready_s, replica, "ready"
            if replica.decoding:
                left = replica.decoding[0][0] - replica.work
                yield replica.at_s + left * self._tpot_s(replica), replica, "end"

    def _tpot_s(self, replica: Replica) -> float:
        return self.site.times.tpot_s(replica.upstream.in_flight)

    def _go_on(self, replica: Replica) -> None:
        """Bring a replica's work up to now; needed before its load changes."""
        if replica.decoding:
            replica.work += (self.now_s - replica.at_s) / self._tpot_s(replica)
        replica.at_s = self.now_s

    def _pump(self) -> None:
        while not self.admission.empty:
            upstream = self.upstreams.pick(self.now_s, LANE)
            request = self.admission.take(self.now_s) if upstream else None
            if upstream is None or request is None:
                return
            replica = next(one for one in self.replicas if one.upstream is upstream)
            self._go_on(replica)
            upstream.begin(self.now_s)
            self.waits_s.append(self.now_s - request.arrived_s)
            first_s = self.now_s + self.site.times.ttft_s(upstream.in_flight)
            heapq.heappush(self._first_tokens, (first_s, next(self._number), replica))

    def _add(self, start_s: float) -> None:
        upstream = Upstream(f"engine-{next(self._number)}", "model", 0, self.site.concurrency, ready=True)
        replica = Replica(upstream, self.now_s + start_s)
        self.replicas.append(replica)
        if not start_s:
            replica.state = "ready"
            self.upstreams.add(upstream)

    def _bury(self) -> None:
        self.replicas = [one for one in self.replicas if one.state != "draining" or one.upstream.in_flight]

    def _at(self, now_s: float) -> None:
        self.replica_s += len(self.replicas) * (now_s - self.now_s)
        self.now_s = now_s


def share_used(replica: Replica, site: Site, idle: float, full: float) -> float:
    """A pod's CPU as share of its request, by its load: `idle` with none, `full` with as many requests as it takes."""
    return idle + (full - idle) * min(replica.upstream.in_flight / site.concurrency, 1.0)


def most_requests(phases: Sequence[Phase]) -> float:
    """How many requests to expect."""
    return math.fsum(phase.rate_s * phase.length_s for phase in phases)

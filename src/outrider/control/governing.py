"""Keeps the draft in force: tells the governor what has happened, and keeps its decision for the next requests.

All of it lives on the front's event loop. The policy is pure and may refuse what cannot be (ValueError): such a record is left
out and told once, and the draft in force stays.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from outrider.control.past import Past
from outrider.control.upstreams import DraftInForce, Upstream, UpstreamSet
from outrider.core.acceptance import SpecCounters, difference
from outrider.core.errors import place_of
from outrider.engines.base import EngineCounters
from outrider.governor.decision import Alert, Turn
from outrider.governor.ladder import Ladder, Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider.governor.status import status
from outrider.governor.trace import header_line, look_lines
from outrider.stack.manifest import PairManifest
from outrider.stack.models import Price, Stack
from outrider.telemetry import names
from outrider.telemetry.metrics import Metrics

DECIDE_EVERY_S = 1.0
# Between two looks without a decision (nobody calls `tick`) no more is kept than this.
MAX_WAITING = 10_000
# A reading of fewer steps is noise.
LEAST_STEPS = 4
# An alert that comes back is told again once it was away for this long.
QUIET_S = 600.0


@dataclass(frozen=True, slots=True)
class Load:
    """How the front stands: requests running at one engine (of several, their mean), waiting, and how long the oldest waits.

    Of two pools of engines: if all requests ran in the one of the draft in force.
    """

    running: float
    waiting: int
    queue_wait_s: float


@dataclass(frozen=True, slots=True)
class _Seen:
    """One engine's sums at its last scrape; `steps` of requests, `device_s` the request-seconds of all engines of its device."""

    at_s: float
    generated: float
    steps: float
    by_draft: Mapping[str, SpecCounters]
    busy_by_draft_s: dict[str | None, float]
    device_s: float


@dataclass(slots=True)
class _Untold:
    """Requests of a draft that ended at an engine without telling their acceptance, since its last scrape."""

    requests: int
    oldest_s: float


@dataclass(slots=True)
class Governing:
    """One front's governor. `say` writes a log line; `record` gets the lines of a trace that `outrider replay` reads; `price`
    is what the live page reckons cost with.

    `lanes`: those whose engines are in two pools, with the draft and without; none named: every engine runs any draft. `fronts`:
    how many share the engines. Each sees its share of the requests, taken to be one in so many, and all of an engine's steps.
    """

    policy: Policy
    draft: DraftInForce
    upstreams: UpstreamSet
    metrics: Metrics
    say: Callable[..., None]
    price: Price | None = None
    record: Callable[[str], object] | None = None
    clock: Callable[[], float] = time.monotonic
    lanes: frozenset[str] = frozenset()
    fronts: int = 1
    past: Past = field(init=False)
    _turn: Turn = field(init=False)
    _life: int = 0
    _pinned: str | None = None
    _credits: deque[Credit] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    _steps: deque[StepReading] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    _probes: list[StartProbe] = field(default_factory=list)
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _untold: dict[str, dict[str, _Untold]] = field(default_factory=dict)
    _faults: set[str] = field(default_factory=set)
    _alerted_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        now_s = self.clock()
        self.past = Past(self.price)
        self._turn = self.policy.decide(self.policy.start(now_s), Snapshot(now_s))
        if self.record:
            self.record(header_line(self.policy.ladder))

    # ---- what happens

    def decides_for(self, lane: str) -> bool:
        """Whether the draft of this lane's requests is a choice."""
        return not self.lanes or lane in self.lanes

    def credit(self, credit: Credit) -> None:
        """A request that ended."""
        if credit.running is not None and self.fronts > 1:
            credit = replace(credit, running=credit.running * self.fronts)
        self._credits.append(credit)

    def uncredited(self, engine: str, draft: str, started_s: float) -> None:
        """A request ended of which the engine tells no acceptance: its next scrape's counts by draft stand for it."""
        untold = self._untold.setdefault(engine, {}).setdefault(draft, _Untold(0, started_s))
        untold.requests += 1
        untold.oldest_s = min(untold.oldest_s, started_s)

    def engine_started(
        self, upstream: Upstream, probes: Iterable[StartProbe], readings: Iterable[StepReading]
    ) -> None:
        """An engine is ready: what its start-up probe and its warm-up saw. What was learned of the one before is void, but for
        one without a draft beside one that has it; where others like it go on, requests will tell of it."""
        if not self._governs(upstream):
            return
        others = any(
            one.ready and one.draft == upstream.draft for one in self.upstreams if one is not upstream
        )
        self._seen.pop(upstream.name, None)
        self._untold.pop(upstream.name, None)
        if upstream.can_run(self.policy.ladder.top) and not others:
            self._life += 1
            self._credits.clear()
            self._steps.clear()
            self._probes = list(probes)
        self._steps.extend(readings)

    def observed(self, engine: str, counters: EngineCounters) -> None:
        """One scrape: steps and tokens since the one before. An engine of one draft counts them all for that."""
        upstream = self.upstreams.get(engine)
        if upstream is None or counters.generation_tokens is None:
            return
        now_s, generated = self.clock(), counters.generation_tokens
        steps = generated - counters.spec.accepted if counters.steps is None else counters.steps
        by_draft = counters.by_draft or ({upstream.draft: counters.spec} if upstream.draft else {})
        busy_s, device_s = upstream.busy_by_draft_s(now_s), upstream.device.so_far_s(now_s)
        seen = _Seen(now_s, generated, steps, by_draft, busy_s, device_s)
        before, self._seen[engine] = self._seen.get(engine), seen
        untold = self._untold.pop(engine, {})
        if before is None or generated < before.generated:
            return
        self.past.generated(now_s, generated - before.generated)
        if not self._governs(upstream):
            return
        try:
            if (reading := _reading(before, seen, self.fronts)) is not None:
                self._steps.append(reading)
            for draft, ended in untold.items():
                if (credit := _counted(draft, ended, before, seen)) is not None:
                    self._credits.append(credit)
        except ValueError as error:  # the engine's counts do not fit each other
            self.fault(error)

    def pin(self, draft: str | None) -> None:
        """Hold a draft in force, or let go with None; at once. Raises ValueError for one that stands on no rung."""
        if draft is not None and draft not in self.policy.ladder:
            raise ValueError(f"{draft!r} is no draft of this server: {', '.join(self.policy.ladder.names)}")
        self._pinned = draft
        self._decide(Load(self._turn.state.running, 0, 0.0))

    def tick(self, load: Load) -> None:
        """Once a second: decide for the requests to come."""
        self._decide(replace(load, running=load.running * self.fronts))
        self.past.sample(self.clock(), self._turn, load.waiting, load.queue_wait_s)

    def _governs(self, upstream: Upstream) -> bool:
        return not self.lanes or any(upstream.serves(lane) for lane in self.lanes)

    # ---- what is decided

    def _decide(self, load: Load) -> None:
        snapshot = Snapshot(
            at_s=self.clock(),
            running=load.running,
            waiting=load.waiting,
            queue_wait_s=load.queue_wait_s,
            finished=tuple(self._credits),
            steps=tuple(self._steps),
            start_probes=tuple(self._probes),
            pinned=self._pinned,
            life=self._life,
        )
        self._credits.clear()
        self._steps.clear()
        self._probes.clear()
        try:
            self._turn = turn = self.policy.decide(self._turn.state, snapshot)
        except ValueError as error:
            self.fault(error)
            return
        self.past.finished(snapshot.finished)
        decision = turn.decision
        probe = decision.probe_draft, decision.probe_share
        self.draft.set(decision.draft, decision.why, *probe, pinned=self._pinned is not None)
        if decision.switched_from is not None:
            self._switched(decision.switched_from, decision.draft, str(decision.reason), decision.why)
        self.metrics.forget(names.DRAFT_ALERT)
        for alert in decision.alerts:
            self.metrics.gauge(names.DRAFT_ALERT, alert.draft, alert.kind).set(1)
            self._alert(alert, snapshot.at_s)
        if self.record:
            try:
                self.record(look_lines(snapshot, decision))
            except OSError as error:
                self.record = None
                self.say("trace", f"the trace ends here: {error.strerror or error}", fault=str(error))

    def _switched(self, before: str, after: str, reason: str, why: str) -> None:
        self.metrics.counter(names.DRAFT_SWITCHES, before, after, reason).inc()
        self.past.switched(before, after, reason, why)
        self.say(
            "draft",
            f"{before} -> {after} for new requests ({reason}): {why}",
            **{"from": before, "to": after, "reason": reason, "why": why},
        )

    def fault(self, error: Exception) -> None:
        """A record that cannot be, or a fault of ours: told once for every place, whatever the figures."""
        if (place := place_of(error)) not in self._faults:
            self._faults.add(place)
            text = f"{type(error).__name__}: {error}"
            self.say("draft", f"the governor left out what it cannot use: {text}", fault=text)

    def _alert(self, alert: Alert, now_s: float) -> None:
        """Told when it begins; one that comes and goes is not told every time."""
        kind = (alert.kind, alert.draft, alert.level)
        if now_s - self._alerted_s.get(kind, -math.inf) > QUIET_S:
            self.say("alert", alert.text, alert=alert.kind, draft=alert.draft)
        self._alerted_s[kind] = now_s

    def status(self) -> dict[str, object]:
        """How it stands, in plain JSON values (`governor.status`), with the last switches."""
        return {"policy": "on", **status(self._turn), "last_switches": self.past.switches()}


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the front has of it: the draft in force, and who decides it (nobody where drafts are not switched)."""

    draft: DraftInForce
    governing: Governing | None = None


def ladder_for(stack: Stack, manifest: PairManifest | None, drafts: Collection[str]) -> Ladder:
    """The rungs of a stack on engines that can give requests these `drafts`: its own, n-gram below a head, none.

    The yardstick of a head is its served AL at the stack's draft length, over all prompt sets of the pair manifest.
    """
    top = stack.draft
    served = [one for one in manifest.served if one.draft_length == top.length] if manifest else []
    counted, accepted = sum(one.drafts for one in served), sum(one.accepted for one in served)
    length = 1 + accepted / counted if counted else None
    scheduled = bool(top.draft_length_by_batch)
    ladder = ladder_of(Rung(top.method, length, scheduled=scheduled, draft_length=top.length))
    return Ladder(tuple(rung for rung in ladder if rung.draft in drafts))


async def govern(governing: Governing, load: Callable[[], Load]) -> None:
    """Decide once a second, for ever; a fault of ours is told, and the draft in force stays."""
    while True:
        await asyncio.sleep(DECIDE_EVERY_S)
        try:
            governing.tick(load())
        except Exception as fault:  # serving goes on without a governor, not without an engine
            governing.fault(fault)


def _reading(before: _Seen, seen: _Seen, fronts: int) -> StepReading | None:
    """T between two scrapes: request-seconds in flight over steps of requests (tokens made, but for the accepted ones)."""
    busy_s = {
        draft: total_s - before.busy_by_draft_s.get(draft, 0.0)
        for draft, total_s in seen.busy_by_draft_s.items()
    }
    total_s, steps = fronts * sum(busy_s.values()), seen.steps - before.steps
    passed_s, device_s = seen.at_s - before.at_s, seen.device_s - before.device_s
    if steps < LEAST_STEPS or total_s <= 0 or device_s <= 0 or passed_s <= 0:
        return None
    draft = max(busy_s, key=lambda one: busy_s[one])
    if draft is None:
        return None
    alike_ratio = min(busy_s[draft] / device_s, 1.0)
    return StepReading(draft, seen.at_s, total_s / passed_s, total_s / steps, round(steps), alike_ratio)


def _counted(draft: str, ended: _Untold, before: _Seen, seen: _Seen) -> Credit | None:
    """What the engine counted for a draft between two scrapes, as a credit of the requests that ended meanwhile."""
    if draft not in seen.by_draft:
        return None
    window = difference(before.by_draft.get(draft, SpecCounters()), seen.by_draft[draft])
    if window.void or not window.delta.proposed:
        return None
    return Credit(
        draft=draft,
        started_s=ended.oldest_s,
        ended_s=max(seen.at_s, ended.oldest_s),
        drafts=int(window.delta.drafts),
        proposed=int(window.delta.proposed),
        accepted=int(window.delta.accepted),
        requests=ended.requests,
    )

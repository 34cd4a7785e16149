"""From the queue to an engine: whoever's turn it is gets the ready engine with the fewest requests in flight."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from outrider.control.governing import Governing, Load, Speculation
from outrider.control.upstreams import Upstream, UpstreamSet
from outrider.core.errors import RequestError, place_of
from outrider.engines.base import Engine
from outrider.front.admission import Admission
from outrider.front.body import member_texts
from outrider.front.credit import credit_of
from outrider.front.errors import overloaded
from outrider.front.journal import Journal, RequestRecord
from outrider.front.pool import UpstreamPool
from outrider.front.proxy import Exchange
from outrider.front.settings import FrontSettings

# An engine that refused a connection is left alone for this long: control's health check is slower than a queue.
SUSPENSION_S = 0.5

# Requests end, and others begin, in bursts (an engine's step ends many at once): what ended is written down a moment
# later, together, so that no request waits for another one's log lines.
WRITE_AFTER_S = 0.02


class Dispatcher:
    """The queue, the engines and everything under way between them."""

    def __init__(
        self,
        settings: FrontSettings,
        upstreams: UpstreamSet,
        engine: Engine,
        speculation: Speculation,
        journal: Journal,
    ) -> None:
        self.settings = settings
        self.speculation = speculation
        self.engine = engine
        self.draft = speculation.draft
        self.journal = journal
        # The loop's own clock counts whole milliseconds under uvloop: too coarse for what is measured here.
        self.now = time.monotonic
        self.pool = UpstreamPool(asyncio.get_running_loop(), self.now)
        self.admission: Admission[Exchange] = Admission(settings.lanes, settings.queue_wait_window_s)
        self.running: set[Exchange] = set()
        self._upstreams = upstreams
        self._loop = asyncio.get_running_loop()
        self._ended: list[RequestRecord] = []
        self._told: set[str] = set()
        self._stamps: dict[str, tuple[str, ...]] = {}
        upstreams.subscribe(self.pump)

    def submit(self, exchange: Exchange) -> None:
        """Queue a request and dispatch what can be; what no longer fits is refused."""
        lane = exchange.lane
        self.admission.offer(exchange)
        self.pump()
        victim = self.admission.overflow(lane)
        if victim is not None:
            self._refuse(victim, 429, "queue_full", f"The {lane} queue is full: try again later.")

    def pump(self) -> None:
        """Dispatch as long as there is room and somebody whose turn it is."""
        now_s = self.now()
        while not self.admission.empty:
            room: dict[str, Upstream] = {}
            for lane in self.settings.lanes:
                if self.admission.waiting(lane) and (upstream := self._upstream(now_s, lane)):
                    room[lane] = upstream
            exchange = self.admission.take(now_s, room)
            if exchange is None:
                return
            self.running.add(exchange)
            exchange.dispatch(room[exchange.lane], now_s)

    def _upstream(self, now_s: float, lane: str) -> Upstream | None:
        """Where the lane's next request goes: an engine that runs the draft in force, or the one to be probed.

        Once the lane's oldest has waited longer than the stack promises, any that has room: an engine that is slower now is still
        better than a queue. Not so under a pin.
        """
        if upstream := self._upstreams.pick(now_s, lane, self.draft.coming):
            return upstream
        other = None if self.draft.pinned else self._upstreams.pick(now_s, lane)
        too_long = other is not None and self.admission.oldest_s(now_s, lane) > self.settings.patience_s
        return other if too_long else None

    def engines_ready(self, lane: str) -> int:
        """Engines that this lane's requests may be sent to."""
        return sum(upstream.ready and upstream.serves(lane) for upstream in self._upstreams)

    def stamp(self, draft: str | None) -> tuple[str, ...]:
        """The members that make the engine run a request with this draft; none for None."""
        if draft is None:
            return ()
        if draft not in self._stamps:
            self._stamps[draft] = member_texts(self.engine.stamp(draft))
        return self._stamps[draft]

    def put_back(self, exchange: Exchange, upstream: Upstream, draft: str | None) -> None:
        """An engine could not be reached: its request waits on, and it gets no other for a moment."""
        now_s = self.now()
        upstream.end(now_s, draft)
        upstream.suspended_until_s = now_s + SUSPENSION_S
        self.running.discard(exchange)
        self.admission.put_back(exchange)
        self.pump()

    def release(self, exchange: Exchange) -> None:
        """A dispatched request is over: its place is free for the next `pump`."""
        self.running.discard(exchange)
        self.admission.done(exchange)

    def ended(self, record: RequestRecord) -> None:
        """What is to be said of a request that is over; writing it down can wait."""
        if not self._ended:
            self._loop.call_later(WRITE_AFTER_S, self.guarded, self.write_down)
        self._ended.append(record)

    def write_down(self) -> None:
        """Journal what has ended until now."""
        ended, self._ended = self._ended, []
        if ended:
            self.journal.requests_ended(ended)
        if ended and self.speculation.governing:
            self._credit(ended, self.speculation.governing)

    def _credit(self, ended: list[RequestRecord], governing: Governing) -> None:
        """Tell the governor what the drafts of these were worth."""
        for record in ended:
            if not governing.decides_for(record.lane):
                continue
            try:
                credit = credit_of(record)
            except ValueError as fault:  # the engine's figures do not fit each other
                governing.fault(fault)
                continue
            if credit is not None:
                governing.credit(credit)
            elif record.outcome == "ok" and record.draft and record.timing.dispatched_s is not None:
                governing.uncredited(record.engine, record.draft, record.timing.dispatched_s)

    def load(self) -> Load:
        """How the front stands, for the governor: requests running at each engine that runs the draft in force, as if all ran
        there, which they will when those of the draft before have ended."""
        now_s, governing = self.now(), self.speculation.governing
        lanes = [lane for lane in self.settings.lanes if governing is None or governing.decides_for(lane)]
        engines = [one for one in self._upstreams if any(one.serves(lane) for lane in lanes)]
        ready = [one for one in engines if one.ready]
        running = sum(one.in_flight for one in engines)
        able = sum(1 for one in ready if one.can_run(self.draft.draft))
        waiting = sum(self.admission.waiting(lane) for lane in lanes)
        oldest_s = max((self.admission.oldest_s(now_s, lane) for lane in lanes), default=0.0)
        return Load(running / max(able or len(ready), 1), waiting, oldest_s)

    def abandon(self, exchange: Exchange) -> None:
        """A waiting request's client has gone."""
        self.admission.cancel(exchange)
        # 499 is what nginx writes for it; nobody is there to be sent a status.
        gone = RequestError(499, "The client has gone.")
        self.write_refused(exchange.asked.request_id, exchange.lane, "client_gone", gone)

    def tick(self) -> None:
        """What only time brings: queue timeouts, deadlines, the end of a suspension."""
        now_s = self.now()
        for exchange in self.admission.expire(now_s):
            waited = now_s - exchange.arrived_s
            message = f"No engine was free within {waited:.1f} s."
            self.guarded(self._refuse, exchange, 503, "queue_timeout", message)
        for exchange in list(self.running):
            self.guarded(exchange.check_deadline, now_s)
        self.guarded(self.pool.sweep)
        self.guarded(self.pump)

    def guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """One step of several that must not keep the others from their turn: a fault in it is told, and ends with it."""
        try:
            step(*arguments)
        except Exception as fault:  # the clock goes on
            self.report(fault)

    def report(self, fault: Exception) -> None:
        """Tell of a fault in the front itself, once for every place: what it is and where, not what it was about."""
        place = place_of(fault)
        if place not in self._told:
            self._told.add(place)
            self.journal.say("fault", f"{place}; one request was given up. Please report this.", fault=place)

    def stop(self) -> None:
        """End everything under way, with an error each."""
        for exchange in self.admission.expire(math.inf):
            self.guarded(self._refuse, exchange, 503, "shutting_down", "The server is shutting down.")
        for exchange in list(self.running):
            self.guarded(exchange.stop)
        self.guarded(self.write_down)
        self.pool.close()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self.running and self.admission.empty

    def write_refused(self, request_id: str, lane: str, outcome: str, error: RequestError) -> None:
        """Journal a request that will not be dispatched, after what ended before it."""
        self.write_down()
        self.journal.request_refused(request_id, lane, outcome, error.status, error.code)

    def _refuse(self, exchange: Exchange, status: int, code: str, message: str) -> None:
        outcome = code if code in ("queue_full", "queue_timeout") else "engine_error"
        error = overloaded(status, message, code)
        self.write_refused(exchange.asked.request_id, exchange.lane, outcome, error)
        exchange.refuse(error)

"""Keeps one engine running behind the front: start, warm-up, probe, watch, scrape, restart with backoff, stop.

The front keeps the queue; the supervisor only turns an upstream ready and not ready. It never touches a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.control.governing import Governing
from outrider.control.probe import EngineClient, ProbeResult, probe, time_steps, warm_up
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import Busy, Upstream, UpstreamSet
from outrider.core.errors import EngineError, EngineStartFailed, EngineUnreachable
from outrider.core.tasks import ended, to_its_end
from outrider.engines.base import Engine, LaunchPlan
from outrider.governor.snapshot import StepReading
from outrider.launch.process import EngineProcess, free_port, new_key

HEALTH_EVERY_S = 0.5
SCRAPE_EVERY_S = 1.0
TIMED = 6  # readings of a step without load, of each draft: what the governor counts as known by default
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STABLE_AFTER_S = 300.0  # an engine that ran this long starts again with the shortest backoff


def backoff_s(failures: int) -> float:
    """Seconds to wait before start number `failures` + 1 (failures in a row, at least 1)."""
    return BACKOFF_S[min(failures, len(BACKOFF_S)) - 1]


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: the plan for a port, the draft to stamp and probe, the limits that are the stack's.

    `made_up`: target and draft have random weights, so the probe does not judge what is accepted. `drafts`: those that requests
    may be stamped with, where the governor chooses; their steps are timed before users come. `only`: what all its requests run
    with, where it is one of two.
    """

    engine: Engine
    plan: Callable[[int], LaunchPlan]
    model: str
    draft: str
    concurrency: int
    warmup_requests: int
    start_timeout_s: float
    grace_s: float
    log_path: Path
    name: str = "engine-0"
    made_up: bool = False
    drafts: tuple[str, ...] = ()
    only: str | None = None


@dataclass(slots=True)
class Supervisor:
    """One engine's life. `say` prints a line for people; `state` is what /readyz tells; `first_ready` ends when it once was.

    Engines that share a device have one `device`, and one `starting`: they start one after the other, since each measures how
    much memory is free.
    """

    job: Job
    upstreams: UpstreamSet
    metrics: EngineMetrics
    say: Callable[[str], None]
    on_log: Callable[[str], None] = lambda line: None
    governing: Governing | None = None
    device: Busy = field(default_factory=Busy)
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    state: ProbeResult = field(default=ProbeResult(False, "the engine is starting"))
    first_ready: asyncio.Event = field(default_factory=asyncio.Event)
    process: EngineProcess | None = None
    _probed: ProbeResult = field(default=ProbeResult(False, "not probed"))
    _timed: list[StepReading] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Run until `stop`. The task raises EngineStartFailed if the engine was never ready: a mistake to mend, not to retry."""
        self._task = asyncio.create_task(self._keep_running())
        return self._task

    async def stop(self) -> None:
        """Stop watching, then the engine."""
        if self._task:
            await ended(self._task)
        self._set(ProbeResult(False, "stopped"))

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._run_once()
            except EngineError as error:
                self._set(ProbeResult(False, f"the engine is down: {error}"))
                if not self.first_ready.is_set():
                    raise
                failures = 1 if time.monotonic() - began > STABLE_AFTER_S else failures + 1
                wait = backoff_s(failures)
                self.say(f"{error}; starting it again in {wait:.0f} s (queued requests are kept)")
                self.metrics.restarted()
                await asyncio.sleep(wait)
                self._set(ProbeResult(False, "the engine is starting again"))

    async def _run_once(self) -> None:
        """One life of the engine; ends only by raising."""
        async with contextlib.AsyncExitStack() as turn:
            if waits := self.starting.locked():
                self._set(ProbeResult(False, "waiting until the engine beside it has started"))
            await turn.enter_async_context(self.starting)
            if waits:
                self._set(ProbeResult(False, "the engine is starting"))
            await self._live(turn.aclose)

    async def _live(self, started: Callable[[], Awaitable[None]]) -> None:
        """From its start to its end; `started` is called once it is ready."""
        job = self.job
        plan, key = job.plan(free_port()), new_key()
        upstream = Upstream(
            job.name, plan.host, plan.port, job.concurrency, key, draft=job.only, device=self.device
        )
        self.process = process = await EngineProcess.start(plan, key, job.log_path, self.on_log)
        client = EngineClient(job.engine, plan, upstream, job.model)
        end = asyncio.create_task(process.wait())
        try:
            await self._unless(end, self._become_ready(client))
            if self.governing:
                self.governing.engine_started(upstream, self._probed.seen, self._timed)
            upstream.ready = True
            self.upstreams.add(upstream)
            # Only now: who reads "ready" may send work.
            self._set(self._probed)
            self.first_ready.set()
            await started()
            await self._unless(end, self._watch(client))
        finally:
            self.upstreams.remove(job.name)
            # To its end, also when the service stops just now: an engine that is gone may have left its workers behind.
            await to_its_end(self._tidied(process, client, end))

    async def _tidied(self, process: EngineProcess, client: EngineClient, end: asyncio.Task[int]) -> None:
        await client.close()
        # Before it was ever ready there is nothing to finish.
        await process.stop(self.job.grace_s if self.first_ready.is_set() else min(self.job.grace_s, 2.0))
        await ended(end)

    async def _unless(self, end: asyncio.Task[int], work: Coroutine[Any, Any, None]) -> None:
        """Do the work, or raise with the log's last lines as soon as the process is gone."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                raise self._failed(f"the engine ended with status {end.result()}")
            await task
        finally:
            await ended(task)

    async def _become_ready(self, client: EngineClient) -> None:
        job = self.job
        try:
            async with asyncio.timeout(job.start_timeout_s):
                while not await client.healthy():
                    await asyncio.sleep(HEALTH_EVERY_S)
                self._set(ProbeResult(False, "warming up"))
                await warm_up(client, job.draft, job.warmup_requests)
                state = ProbeResult(True, "ready, without a draft")
                if job.draft != "none":
                    self._set(ProbeResult(False, "probing the draft"))
                    state = await probe(client, job.draft, made_up=job.made_up)
                self._timed = [one for draft in job.drafts for one in await self._time_steps(client, draft)]
        except TimeoutError:
            raise self._failed(
                f"the engine was not ready within {job.start_timeout_s:.0f} s (`engine.start_timeout_s`)"
            ) from None
        except EngineUnreachable as error:
            raise self._failed(str(error)) from error
        if not state.ready:
            raise self._failed(state.reason)
        self._probed = state

    async def _time_steps(self, client: EngineClient, draft: str) -> list[StepReading]:
        """Steps of a draft alone: those during which the device had other work are left out."""
        timed = []
        before_s = self.device.so_far_s(time.monotonic())
        async for reading in time_steps(client, draft, TIMED):
            after_s = self.device.so_far_s(time.monotonic())
            if after_s == before_s:
                timed.append(reading)
            before_s = after_s
        return timed

    async def _watch(self, client: EngineClient) -> None:
        """Scrape once a second, off the request path. A scrape that fails is not an engine that failed."""
        told: set[str] = set()
        while True:
            with contextlib.suppress(EngineUnreachable):
                counters = await client.counters()
                self.metrics.observe(self.job.name, self.job.draft, counters)
                if self.governing:
                    self.governing.observed(self.job.name, counters)
            if new := sorted(set(client.unknown) - told):
                told.update(new)
                self.say(f"metrics of the engine that Outrider does not know (no harm): {', '.join(new)}")
            await asyncio.sleep(SCRAPE_EVERY_S)

    def _failed(self, message: str) -> EngineStartFailed:
        tail = self.process.tail() if self.process else ()
        return EngineStartFailed(message, hint=f"The engine's whole log: {self.job.log_path}", log_tail=tail)

    def _set(self, state: ProbeResult) -> None:
        self.state = state
        self.metrics.ready(self.job.name, state.ready, state.broken)

"""Replicas that are local processes: simulated engines by measured times, each kept by control's own supervisor.

A pod's life, as a cluster gives it: declared → starting (`start_s` stands for node, image, weights), then the supervisor's start,
warm-up and draft probe → ready. To go: no new requests, those under way end, then SIGTERM.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import EngineError
from outrider.deploy.service_times import Point, ServiceTimes
from outrider.engines.base import LaunchPlan
from outrider.engines.sim.adapter import SimEngine
from outrider.telemetry.metrics import Metrics

MODEL = "sim"
CYCLE = 25  # chunks over which the tokens of a step average to the measured ones
POLL_S = 0.05


def engine_flags(times: ServiceTimes, draft_length: int) -> tuple[str, ...]:
    """The simulated engine's flags for these times: TTFT and step time by load, tokens of a step as measured.

    A step's tokens hardly depend on the load: they are of the largest one.
    """
    return (
        *("--model", MODEL),
        *("--ttft-table", _table(times.points, "ttft_ms"), "--step-table", _table(times.points, "step_ms")),
        *("--chunk-tokens", chunk_tokens(times.points[-1].tokens_per_step)),
        *("--draft-length", str(draft_length)),
    )


def chunk_tokens(mean: float) -> str:
    """Whole numbers of tokens that average to `mean`: ``3,3,3,4``."""
    total = round(mean * CYCLE)
    return ",".join(str((total * (n + 1)) // CYCLE - (total * n) // CYCLE) for n in range(CYCLE))


def _table(points: tuple[Point, ...], name: str) -> str:
    return ",".join(f"{point.running}={getattr(point, name):.2f}" for point in points)


@dataclass(eq=False, slots=True)
class Replica:
    """One declared replica."""

    number: int
    state: Literal["starting", "ready", "draining"] = "starting"
    life: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """As the front and the metrics know it."""
        return f"engine-{self.number}"

    @property
    def leaving(self) -> bool:
        """Whether it is to take nothing new, end what it has, and go."""
        return self.state == "draining"


def engine_job(flags: tuple[str, ...], draft: str, concurrency: int, log_path: Path) -> Job:
    """What the supervisor of every replica is told; the name and the log's are set for each."""

    def plan(port: int) -> LaunchPlan:
        argv = (sys.executable, "-m", "outrider.engines.sim.server", "--port", str(port), *flags)
        return LaunchPlan(argv, {}, "127.0.0.1", port, "OUTRIDER_SIM_KEY", "/health", "/metrics")

    return Job(
        engine=SimEngine(),
        plan=plan,
        model=MODEL,
        draft=draft,
        concurrency=concurrency,
        warmup_requests=2,
        start_timeout_s=60.0,
        grace_s=5.0,
        log_path=log_path,
    )


class Replicas:
    """As many as are wanted, each a process. `failure` is what ended one that nobody told to end."""

    def __init__(self, upstreams: UpstreamSet, metrics: Metrics, job: Job, start_s: float) -> None:
        self._upstreams, self._metrics = upstreams, EngineMetrics(metrics)
        self._job, self._start_s = job, start_s
        self._all: list[Replica] = []
        self._number = 0
        self.failure: EngineError | None = None

    @property
    def declared(self) -> int:
        """All but those that drain."""
        return sum(one.state != "draining" for one in self._all)

    @property
    def ready(self) -> int:
        """Those that take work."""
        return sum(one.state == "ready" for one in self._all)

    @property
    def draining(self) -> int:
        """Those that finish what they have."""
        return sum(one.state == "draining" for one in self._all)

    def scale(self, wanted: int, *, start_s: float | None = None) -> None:
        """Start or drain; of those to go, starting ones first, then the youngest (a ReplicaSet's order)."""
        while self.declared < wanted:
            replica = Replica(self._number)
            self._number += 1
            self._all.append(replica)
            wait_s = self._start_s if start_s is None else start_s
            replica.life = asyncio.create_task(self._live(replica, wait_s))
        staying = [one for one in self._all if one.state != "draining"]
        going = sorted(staying, key=lambda one: (one.state != "starting", -one.number))
        for replica in going[: max(len(staying) - wanted, 0)]:
            replica.state = "draining"

    async def stop(self) -> None:
        """End all of them, now."""
        lives = [one.life for one in self._all if one.life]
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def _live(self, replica: Replica, start_s: float) -> None:
        supervisor: Supervisor | None = None
        try:
            until_s = time.monotonic() + start_s
            while time.monotonic() < until_s and not replica.leaving:
                await asyncio.sleep(POLL_S)
            if not replica.leaving:
                log_path = self._job.log_path.with_name(f"{replica.name}.log")
                job = replace(self._job, name=replica.name, log_path=log_path)
                supervisor = Supervisor(job, self._upstreams, self._metrics, say=lambda line: None)
                await self._serve(replica, supervisor)
        except EngineError as error:
            self.failure = error
        finally:
            if supervisor is not None:
                await supervisor.stop()
            self._all.remove(replica)

    async def _serve(self, replica: Replica, supervisor: Supervisor) -> None:
        """Until it is to go and has nothing under way. Raises EngineStartFailed: it was never ready."""
        kept = supervisor.start()
        while not replica.leaving:
            if kept.done():
                kept.result()
            if supervisor.first_ready.is_set():
                replica.state = "ready"
            await asyncio.sleep(POLL_S)
        upstream = next((one for one in self._upstreams if one.name == replica.name), None)
        if upstream is not None:
            self._upstreams.remove(replica.name)
            while upstream.in_flight:
                await asyncio.sleep(POLL_S)

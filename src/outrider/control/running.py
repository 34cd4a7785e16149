"""One engine without a front: started, awaited, used, stopped. For work of our own: training data, served acceptance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outrider.control.probe import EngineClient
from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import EngineUnreachable, OutriderError
from outrider.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A ready engine: `url` is its address, `key` its launch key (never shown), `model` the name that requests give.

    `client` reads its counters.
    """

    url: str
    key: str = field(repr=False)
    model: str
    client: EngineClient


@asynccontextmanager
async def running_engine(job: Job, say: Callable[[str], None]) -> AsyncIterator[RunningEngine]:
    """The engine of `job`, ready; stopped at the end, whatever happens. `say` is told how it comes up.

    Raises:
        EngineStartFailed: it was never ready; with the last lines of its log.
        EngineUnreachable: it ended while it was used; whatever the work inside raised because of that is its cause.
    """
    upstreams = UpstreamSet()
    supervisor = Supervisor(job, upstreams, EngineMetrics(Metrics()), say=say)
    life, ready = supervisor.start(), asyncio.create_task(supervisor.first_ready.wait())
    try:
        await asyncio.wait({life, ready}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
        say(supervisor.state.reason)
        upstream = next(iter(upstreams))
        plan = job.plan(upstream.port)
        client = EngineClient(job.engine, plan, upstream, job.model)
        try:
            yield RunningEngine(plan.base_url, upstream.api_key, job.model, client)
        except OutriderError as error:
            if supervisor.state.ready:
                raise
            raise _ended(supervisor) from error
        finally:
            await client.close()
    finally:
        ready.cancel()
        await supervisor.stop()


def _ended(supervisor: Supervisor) -> EngineUnreachable:
    hint = f"Its whole log: {supervisor.job.log_path}"
    return EngineUnreachable(f"the engine ended while it was used: {supervisor.state.reason}", hint=hint)

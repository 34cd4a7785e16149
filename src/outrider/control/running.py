"""One engine without a front: started, awaited, used, stopped. For work of our own: training data, served acceptance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from outrider.control.probe import EngineClient
from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import EngineUnreachable, OutriderError
from outrider.engines.base import Engine
from outrider.governor.ladder import NO_DRAFT
from outrider.launch.prepare import Prepared
from outrider.launch.process import EngineProcess
from outrider.stack.plain_engine import engines_of
from outrider.telemetry.metrics import Metrics

STILL_EVERY_S = 2.0


def job_of(prepared: Prepared, engine: Engine, log_path: Path) -> Job:
    """The job of a stack that was judged and has its weights in place."""
    stack = prepared.stack
    return Job(
        engine=engine,
        plan=lambda port: engine.plan(stack, prepared.install, prepared.models, port),
        model=stack.served_name,
        draft=stack.draft.method,
        concurrency=stack.engine.max_running_requests,
        warmup_requests=stack.serve.warmup_requests,
        start_timeout_s=stack.engine.start_timeout_s,
        grace_s=stack.engine.shutdown_grace_s,
        log_path=log_path,
        made_up=stack.dummy_weights,
        drafts=() if stack.dummy_weights else engine.plan(stack, prepared.install, prepared.models, 0).drafts,
    )


def jobs_of(prepared: Prepared, engine: Engine, log_path: Path) -> tuple[Job, ...]:
    """The jobs of a stack's engines: one, or the one with the draft and the plain one beside it."""
    own, *beside = (
        job_of(replace(prepared, stack=stack), engine, log_path) for stack in engines_of(prepared.stack)
    )
    if not beside:
        return (own,)
    log_path = log_path.with_stem(f"{log_path.stem}-plain")
    plain = replace(beside[0], name="plain-0", log_path=log_path, only=NO_DRAFT[0], drafts=NO_DRAFT[:1])
    return replace(own, only=own.draft, drafts=(own.draft,)), plain


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A ready engine: `url` is its address, `key` its launch key (never shown), `model` the name that requests give.

    `stamp` are the members of a request's body that name the draft, `client` reads the counters.
    """

    url: str
    key: str = field(repr=False)
    model: str
    stamp: Mapping[str, object]
    client: EngineClient


@asynccontextmanager
async def running_engine(job: Job, say: Callable[[str], None]) -> AsyncIterator[RunningEngine]:
    """The engine of `job`, ready; stopped at the end, whatever happens. `say` is told how it comes up: a line that ends in
    a carriage return may be overwritten by the next.

    Raises:
        EngineStartFailed: it was never ready; with the last lines of its log.
        EngineUnreachable: it ended while it was used; whatever the work inside raised because of that is its cause.
    """
    upstreams = UpstreamSet()
    supervisor = Supervisor(job, upstreams, EngineMetrics(Metrics()), say=say)
    life, ready = supervisor.start(), asyncio.create_task(supervisor.first_ready.wait())
    try:
        began = time.monotonic()
        while not (life.done() or ready.done()):
            say(f"{supervisor.state.reason} ({time.monotonic() - began:.0f} s)\r")
            await asyncio.wait({life, ready}, timeout=STILL_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
        say(supervisor.state.reason)
        upstream, process = next(iter(upstreams)), supervisor.process
        plan = job.plan(upstream.port)
        client = EngineClient(job.engine, plan, upstream, job.model)
        try:
            yield RunningEngine(
                plan.base_url, upstream.api_key, job.model, job.engine.stamp(job.draft), client
            )
        except OutriderError as error:
            if status := await _ended(process):
                hint = f"Its whole log: {job.log_path}"
                raise EngineUnreachable(f"the engine ended while it was used: {status}", hint=hint) from error
            raise
        finally:
            await client.close()
    finally:
        ready.cancel()
        await supervisor.stop()


async def _ended(process: EngineProcess | None) -> str:
    """``status N`` if the process is gone, or goes within a second: a broken connection is seen before its end."""
    if process is None:
        return ""
    try:
        async with asyncio.timeout(1):
            return f"status {await process.wait()}"
    except TimeoutError:
        return ""

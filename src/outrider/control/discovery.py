"""Engines that somebody else starts and stops: found by name, probed, watched, given work while they are well.

On a cluster the kubelet keeps engines running and a headless Service lists the addresses of those that are ready; the front
asks the resolver again and again. An address that is gone gets nothing new, requests under way on it go on. As for an engine
of our own, none is given work before warm-up and the draft's probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from outrider.control.governing import Governing
from outrider.control.probe import EngineClient, ProbeResult, probe, warm_up
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import Upstream, UpstreamSet
from outrider.core.errors import EngineUnreachable
from outrider.engines.base import Engine, LaunchPlan

RESOLVE_EVERY_S = 2.0
WATCH_EVERY_S = 1.0
RETRY_EVERY_S = 5.0
UNWELL_AFTER = 3  # health checks in a row
# The name exists and has no address now, which a headless Service without ready pods answers. Other failures say nothing.
_NOBODY = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where engines are: a name that stands for any number of addresses, the port, the lanes they serve (none: all), and the
    draft they run whatever is in force (None: that)."""

    host: str
    port: int
    lanes: frozenset[str] = frozenset()
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What all engines have in common: adapter, key, model, the stack's draft, requests at once, warm-up requests.

    `made_up`: the weights are random, so the probe does not judge what is accepted.
    """

    engine: Engine
    key: str = field(repr=False)
    model: str
    draft: str
    concurrency: int
    warmup_requests: int
    made_up: bool = False


async def addresses(host: str, port: int) -> Sequence[str]:
    """All addresses of a name. Raises OSError where the resolver does not know now."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NOBODY:
            return ()
        raise
    return sorted({str(row[4][0]) for row in found})


@dataclass(slots=True)
class Discovery:
    """Keeps an UpstreamSet as the resolver and the engines' health say. `seen`: an engine was ready once."""

    places: Sequence[Place]
    served: Served
    upstreams: UpstreamSet
    metrics: EngineMetrics
    say: Callable[[str], None]
    resolve: Resolve = addresses
    governing: Governing | None = None
    seen: bool = False
    reason: str = "no engine was found yet"
    _engines: dict[tuple[str, Place], asyncio.Task[None]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look, until `stop`."""
        self._task = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        """Look no more; the engines are left as they are."""
        tasks = [task for task in (self._task, *self._engines.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            for place in self.places:
                with contextlib.suppress(OSError, UnicodeError):
                    self._take(place, await self.resolve(place.host, place.port))
            await asyncio.sleep(RESOLVE_EVERY_S)

    def _take(self, place: Place, hosts: Sequence[str]) -> None:
        for (host, of), task in list(self._engines.items()):
            if of == place and (host not in hosts or task.done()):
                self._engines.pop((host, of)).cancel()
                if task.done() and not task.cancelled():  # a fault of ours: told, and begun anew
                    self.say(f"{host}:{of.port}: {task.exception()!r}")
        for host in hosts:
            if (host, place) not in self._engines:
                self._engines[host, place] = asyncio.create_task(self._keep(host, place))

    async def _keep(self, host: str, place: Place) -> None:
        """One address, from when it appears to when it is gone."""
        served, name = self.served, f"{host}:{place.port}"
        shown = f"[{host}]" if ":" in host else host
        plan = LaunchPlan((), {}, shown, place.port, "", "/health", served.engine.metrics_path)
        upstream = Upstream(
            name, host, place.port, served.concurrency, served.key, lanes=place.lanes, draft=place.draft
        )
        client = EngineClient(served.engine, plan, upstream, served.model)
        self.upstreams.add(upstream)
        try:
            while True:
                state = await self._become_ready(client, place.draft or served.draft)
                self._tell(name, state)
                if state.ready:
                    if self.governing:
                        self.governing.engine_started(upstream, state.seen, ())
                    self.upstreams.set_ready(name, True)
                    await self._while_well(client, name, place.draft or served.draft)
                    self.upstreams.set_ready(name, False)
                    self._tell(name, ProbeResult(False, "no longer well"))
                else:
                    await asyncio.sleep(RETRY_EVERY_S)
        finally:
            if self.upstreams.get(name) is upstream:
                self.upstreams.remove(name)
            self.metrics.gone(name)
            self._tell(name, ProbeResult(False, "gone"))
            await client.close()

    async def _become_ready(self, client: EngineClient, draft: str) -> ProbeResult:
        while not await client.healthy():
            await asyncio.sleep(WATCH_EVERY_S)
        try:
            await warm_up(client, draft, self.served.warmup_requests)
            return await probe(client, draft, made_up=self.served.made_up)
        except EngineUnreachable as error:
            return ProbeResult(False, str(error))

    async def _while_well(self, client: EngineClient, name: str, draft: str) -> None:
        """Scrape once a second, off the request path, until its health check has failed some times in a row."""
        unwell = 0
        while unwell < UNWELL_AFTER:
            with contextlib.suppress(EngineUnreachable):
                counters = await client.counters()
                self.metrics.observe(name, draft, counters)
                if self.governing:
                    self.governing.observed(name, counters)
            await asyncio.sleep(WATCH_EVERY_S)
            unwell = 0 if await client.healthy() else unwell + 1

    def _tell(self, name: str, state: ProbeResult) -> None:
        self.seen = self.seen or state.ready
        self.reason = f"{name}: {state.reason}"
        self.metrics.ready(name, self.seen, state.broken)
        self.say(self.reason)

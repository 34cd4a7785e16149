"""Engines that somebody else runs: what the resolver and their health say becomes what the front may use."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from outrider.control import discovery
from outrider.control.discovery import Discovery, Place, Served, addresses
from outrider.control.probe import ProbeResult
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import UpstreamSet
from outrider.engines.sim.adapter import SimEngine
from outrider.engines.sim.script import Script
from outrider.engines.sim.server import Connection, Simulation
from outrider.telemetry.metrics import Metrics


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in hundredths of a second."""
    for name in ("RESOLVE_EVERY_S", "WATCH_EVERY_S", "RETRY_EVERY_S"):
        monkeypatch.setattr(discovery, name, 0.02)


@asynccontextmanager
async def engine(key: str = "key", **script: object) -> AsyncIterator[tuple[int, Simulation]]:
    """A simulated engine in this process."""
    simulation = Simulation(Script(draft="ngram", ttft_ms=1, step_ms=0.1).changed(script), key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(simulation), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], simulation
    finally:
        server.close()


class Unstamped(SimEngine):
    """Its stamp reaches nobody, as when the draft is not loaded."""

    def stamp(self, draft: str) -> Mapping[str, object]:
        """Nothing."""
        return {}


class Elsewhere(SimEngine):
    """An engine whose page of metrics is not where most have it, as TensorRT-LLM's; this one has none there."""

    metrics_path = "/prometheus/metrics"


class Bed:
    """A discovery, what it said, and names that resolve as a test says."""

    def __init__(
        self, port: int, key: str = "key", draft: str | None = None, adapter: SimEngine | None = None
    ) -> None:
        self.hosts: Sequence[str] | OSError = ["127.0.0.1"]
        self.said: list[str] = []
        self.upstreams, self.metrics = UpstreamSet(), Metrics()
        place = Place("engines.test", port, frozenset({"batch"}), draft)
        served = Served(adapter or SimEngine(), key, "sim", "ngram", 4, 1)
        self.found = Discovery(
            [place], served, self.upstreams, EngineMetrics(self.metrics), self.said.append, self._resolve
        )

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        assert host == "engines.test"
        if isinstance(self.hosts, OSError):
            raise self.hosts
        return self.hosts

    @property
    def ready(self) -> list[str]:
        """Names of engines that may be used."""
        return [upstream.name for upstream in self.upstreams if upstream.ready]


async def until(condition: Callable[[], object]) -> None:
    """Wait for it, 30 s at most."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def test_an_engine_is_used_once_it_drafts_and_until_its_name_is_gone() -> None:
    """Found, warmed up, probed, ready with its lane; gone with its address, and its series with it."""

    async def life() -> None:
        async with engine() as (port, simulation):
            bed = Bed(port)
            assert bed.found.seen is False
            bed.found.start()
            await until(lambda: bed.ready)
            assert bed.found.seen is True
            (upstream,) = bed.upstreams
            assert (upstream.name, upstream.concurrency) == (f"127.0.0.1:{port}", 4)
            assert upstream.serves("batch")
            assert not upstream.serves("interactive")
            assert simulation.drafts > 0
            await until(lambda: b"outrider_engine_drafts_total{" in bed.metrics.render())
            bed.hosts = []
            await until(lambda: not len(bed.upstreams))
            await until(lambda: b"outrider_engine_drafts_total{" not in bed.metrics.render())
            assert bed.found.seen is True  # the queue goes on holding what comes
            await bed.found.stop()

    asyncio.run(life())


def test_an_engine_that_asks_for_no_key_is_used_without_one() -> None:
    """A header without a key in it could not be sent at all."""

    async def life() -> None:
        async with engine(key="") as (port, _):
            bed = Bed(port, key="")
            bed.found.start()
            await until(lambda: bed.ready)
            await bed.found.stop()

    asyncio.run(life())


@pytest.mark.parametrize("draft", ["off", "none"])
def test_an_engine_without_a_draft_is_ready_all_the_same(draft: str) -> None:
    """It proposes nothing, and is not expected to."""

    async def life() -> None:
        async with engine() as (port, simulation):
            bed = Bed(port, draft=draft)
            bed.found.start()
            await until(lambda: bed.ready)
            (upstream,) = bed.upstreams
            assert (upstream.draft, simulation.drafts) == (draft, 0)
            assert bed.said[-1].endswith("ready, without a draft")
            await bed.found.stop()

    asyncio.run(life())


def test_an_engine_that_falls_ill_gets_nothing_until_it_is_well() -> None:
    """Three failed checks in a row; then warm-up and probe again."""

    async def life() -> None:
        async with engine() as (port, simulation):
            bed = Bed(port)
            bed.found.start()
            await until(lambda: bed.ready)
            simulation.script = simulation.script.changed({"ready": False})
            await until(lambda: not bed.ready)
            asked = simulation.requests
            simulation.script = simulation.script.changed({"ready": True})
            await until(lambda: bed.ready)
            assert simulation.requests > asked
            await bed.found.stop()

    asyncio.run(life())


def test_a_resolver_that_fails_takes_no_engine_away() -> None:
    """No answer is not "nobody"."""

    async def life() -> None:
        async with engine() as (port, _):
            bed = Bed(port)
            bed.found.start()
            await until(lambda: bed.ready)
            bed.hosts = OSError("the resolver does not answer")
            await asyncio.sleep(0.2)
            assert bed.ready
            await bed.found.stop()

    asyncio.run(life())


def test_a_draft_that_proposes_nothing_is_not_used_and_a_plain_engine_is_not_asked_for_one() -> None:
    """The stack's draft must be seen to draft; an engine that was started without one needs not."""

    async def life() -> None:
        async with engine(draft="none") as (port, _):
            bed, plain = Bed(port, adapter=Unstamped()), Bed(port, draft="none", adapter=Unstamped())
            bed.found.start()
            await until(lambda: any("proposed nothing" in line for line in bed.said))
            assert not bed.ready
            plain.found.start()
            await until(lambda: plain.ready)
            assert next(iter(plain.upstreams)).draft == "none"
            await bed.found.stop()
            await plain.found.stop()

    asyncio.run(life())


def test_a_fault_of_ours_is_told_and_does_not_lose_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watching begins anew."""
    faults = [KeyError("made up")]

    async def faulty(*given: object, **named: object) -> ProbeResult:
        if faults:
            raise faults.pop()
        return ProbeResult(True, "well")

    async def life() -> None:
        async with engine() as (port, _):
            monkeypatch.setattr(discovery, "probe", faulty)
            bed = Bed(port)
            bed.found.start()
            await until(lambda: bed.ready)
            assert any("made up" in line for line in bed.said)
            await bed.found.stop()

    asyncio.run(life())


def test_a_wrong_key_is_told_and_never_shown() -> None:
    """The reason names the status, not the key."""

    async def life() -> None:
        async with engine() as (port, _):
            bed = Bed(port, key="not-the-key")
            bed.found.start()
            await until(lambda: any("401" in line for line in bed.said))
            assert not any("not-the-key" in line for line in bed.said)
            await bed.found.stop()

    asyncio.run(life())


def test_a_name_without_addresses_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a headless Service without ready pods; other failures are raised."""

    async def resolve(error: int) -> Sequence[str]:
        async def fails(*_: object, **__: object) -> object:
            raise socket.gaierror(error, "…")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
        return await addresses("engines.test", 8000)

    assert asyncio.run(resolve(socket.EAI_NONAME)) == ()
    with pytest.raises(socket.gaierror):
        asyncio.run(resolve(socket.EAI_AGAIN))
    assert "127.0.0.1" in asyncio.run(addresses("localhost", 8000))  # type: ignore[arg-type]


def test_metrics_are_read_where_the_engine_has_them() -> None:
    """The adapter says where."""

    async def life() -> None:
        async with engine() as (port, _):
            bed = Bed(port, adapter=Elsewhere())
            bed.found.start()
            await until(lambda: any("/prometheus/metrics" in line for line in bed.said))
            assert bed.ready == []
            await bed.found.stop()

    asyncio.run(life())

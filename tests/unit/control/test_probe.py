"""What the probe makes of the counters, and what scrapes make of the metrics."""

import asyncio

import pytest

from outrider.control.probe import EngineClient, judge
from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import backoff_s
from outrider.control.upstreams import Upstream
from outrider.core.acceptance import AcceptanceWindow, SpecCounters, difference
from outrider.core.errors import EngineUnreachable
from outrider.engines.base import EngineCounters, LaunchPlan
from outrider.engines.sim.adapter import SimEngine
from outrider.telemetry.metrics import Metrics
from tests.front.harness import RawEngine


def test_a_draft_that_drafts_is_ready() -> None:
    """Accepted probe tokens: ready, and the counts are told."""
    result = judge("ngram", AcceptanceWindow(SpecCounters(10, 30, 21)), 1)
    assert (result.ready, result.broken) == (True, False)
    assert "21 of 30" in result.reason


def test_a_draft_that_accepts_nothing_is_called_broken() -> None:
    """Proposed, none accepted: served, and said to be broken with what to do."""
    result = judge("eagle3", AcceptanceWindow(SpecCounters(13, 40, 0)), 3)
    assert (result.ready, result.broken) == (True, True)
    assert "40 tokens proposed" in result.reason
    assert "outrider check" in result.reason


def test_nothing_accepted_of_dummy_weights_is_no_alarm() -> None:
    """A forecast's random head is never accepted: ready because it drafts, not called broken, sent to no `check`."""
    result = judge("eagle3", AcceptanceWindow(SpecCounters(141, 423, 0)), 1, made_up=True)
    assert (result.ready, result.broken) == (True, False)
    assert "423 tokens proposed" in result.reason
    assert "broken" not in result.reason
    assert not judge("eagle3", AcceptanceWindow(SpecCounters()), 3, made_up=True).ready


def test_a_draft_that_never_drafts_is_not_ready() -> None:
    """Nothing proposed is no readiness; a void window neither; without a draft there is nothing to see."""
    assert not judge("ngram", AcceptanceWindow(SpecCounters()), 3).ready
    assert not judge("ngram", difference(SpecCounters(5), SpecCounters(1)), 1).ready
    assert not judge("ngram", AcceptanceWindow(SpecCounters(10, 30, 31)), 1).ready
    assert judge("none", AcceptanceWindow(SpecCounters()), 0).ready


def test_backoff_grows_to_its_bound() -> None:
    """1, 2, 5, 10, 30, 60, 60, … seconds."""
    assert [backoff_s(n) for n in range(1, 9)] == [1, 2, 5, 10, 30, 60, 60, 60]


@pytest.fixture
def metrics() -> Metrics:
    """An empty registry."""
    return Metrics()


def counters(drafts: float, generated: float) -> EngineCounters:
    """A scrape with these counts."""
    spec = SpecCounters(drafts, 3 * drafts, 2 * drafts)
    return EngineCounters(spec=spec, by_draft={}, models=("m",), generation_tokens=generated, running=2.0)


def test_scrapes_add_up_across_a_restart(metrics: Metrics) -> None:
    """Our counters never fall: a new life of the engine adds what it counted since its start."""
    engine = EngineMetrics(metrics)
    for drafts, generated in ((10, 100), (25, 200), (4, 30), (9, 60)):
        engine.observe("engine-0", "ngram", counters(drafts, generated))
    page = metrics.render().decode()
    assert 'outrider_engine_drafts_total{draft="ngram",engine="engine-0"} 34.0' in page
    assert 'outrider_engine_draft_tokens_accepted_total{draft="ngram",engine="engine-0"} 68.0' in page
    assert 'outrider_engine_generation_tokens_total{engine="engine-0"} 260.0' in page
    assert 'outrider_engine_requests_running{engine="engine-0"} 2.0' in page


@pytest.mark.parametrize(
    "page", [b'sim:accepted_tokens_per_pos_total{position="first"} 3\n', b"sim:drafts_total {\n", b"\xff\n"]
)
def test_a_metrics_page_that_cannot_be_read_is_an_engine_that_did_not_answer(page: bytes) -> None:
    """Whatever is wrong with it: the one error that those who scrape wait for."""
    engine = RawEngine()
    engine.answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page)
    plan = LaunchPlan((), {}, "127.0.0.1", engine.port, "", "/health", "/metrics")

    async def scrape() -> None:
        client = EngineClient(SimEngine(), plan, Upstream("sim", "127.0.0.1", engine.port, 1), "sim")
        try:
            with pytest.raises(EngineUnreachable, match="no metrics from"):
                await client.counters()
        finally:
            await client.close()

    asyncio.run(scrape())
    engine.close()


@pytest.mark.parametrize("key", ["", "k"])
def test_an_engine_without_a_key_is_asked_without_one(key: str) -> None:
    """`Bearer ` with nothing behind it is no header that can be sent: such an engine was never found ready."""
    engine = RawEngine()
    engine.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    plan = LaunchPlan((), {}, "127.0.0.1", engine.port, "", "/health", "/metrics")

    async def ask() -> bool:
        client = EngineClient(
            SimEngine(), plan, Upstream("sim", "127.0.0.1", engine.port, 1, api_key=key), "sim"
        )
        try:
            return await client.healthy()
        finally:
            await client.close()

    assert asyncio.run(ask())
    engine.close()

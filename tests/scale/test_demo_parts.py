"""The parts of the live run: what counts as whole, what the checks see, engines by tables, replicas that end well."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest

from outrider.control.governing import Speculation
from outrider.control.upstreams import DraftInForce, UpstreamSet
from outrider.core.errors import MeasurementError
from outrider.deploy.scale_demo.chart import render_chart
from outrider.deploy.scale_demo.document import PhaseInfo, Sample, ScaleRun
from outrider.deploy.scale_demo.prometheus import configuration, find, labels_of
from outrider.deploy.scale_demo.replicas import MODEL, Replicas, chunk_tokens, engine_flags, engine_job
from outrider.deploy.scale_demo.run import checks, queries_of
from outrider.deploy.scale_demo.traffic import Clients, whole_or_why
from outrider.deploy.scaling_policy import declared, with_settings
from outrider.deploy.service_times import read_times
from outrider.engines.sim.adapter import SimEngine
from outrider.engines.sim.script import Script
from outrider.front.admission import Admission
from outrider.front.journal import Journal
from outrider.front.server import start
from outrider.front.settings import FrontSettings, LaneRule
from outrider.telemetry.metrics import Metrics

RESULTS = Path(__file__).parents[2] / "results" / "scale"
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":8}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (USAGE + DONE, ""),
        (b"", "cut short"),
        (USAGE, "cut short"),
        (DONE, "no usage"),
        (b'data: {"choices":[]}\n\n' + DONE, "no usage"),
        (USAGE.replace(b"8", b"7") + DONE, "tokens missing"),
        (b'data: {"error":{"message":"the engine died"}}\n\n', "cut short"),
    ],
)
def test_an_answer_is_whole_with_its_last_token(tail: bytes, why: str) -> None:
    """Only a stream with its end and all of its tokens counts."""
    assert whole_or_why(tail, 8) == why


def samples(*rows: tuple[float, float | None, int]) -> list[Sample]:
    """(second, queue wait, ready replicas)."""
    return [
        Sample(at_s=at, sent=0, queue_wait_ms=wait, running=0, declared=ready, ready=ready, draining=0)
        for at, wait, ready in rows
    ]


PHASES = (
    PhaseInfo(rate_s=1, length_s=10),
    PhaseInfo(rate_s=3, length_s=20),
    PhaseInfo(rate_s=1, length_s=10),
)
GOOD = [(5, 0, 1), (15, 9000, 1), (20, 9000, 2), (25, 100, 3), (30, 0, 3), (35, 0, 2), (40, 0, 1)]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, set()),
        ({1: (15, 400, 1), 2: (20, 400, 2)}, {"the higher load makes requests wait"}),
        ({2: (20, 9000, 1), 3: (25, 100, 1), 4: (30, 0, 1)}, {"replicas rise", "replicas fall again"}),
        ({4: (30, 501, 3)}, {"the queue wait returns under target and stays there"}),
        ({4: (30, None, 3)}, {"the queue wait returns under target and stays there"}),
        ({6: (40, 0, 3)}, {"replicas fall again"}),
    ],
)
def test_every_check_can_fail(change: dict[int, tuple[float, float | None, int]], wrong: set[str]) -> None:
    """A run that does not show a thing says so."""
    rows = [change.get(number, row) for number, row in enumerate(GOOD)]
    found = checks(samples(*rows), PHASES, 500.0, 100, 100)
    assert {check.name for check in found if not check.good} == wrong
    lost = checks(samples(*rows), PHASES, 500.0, 100, 99)
    assert "no request is lost" in {check.name for check in lost if not check.good}


def test_the_query_is_the_policys() -> None:
    """What Prometheus is asked stands in the policy; the labels it selects by are what the scrape sets."""
    assert dict(queries_of(declared(16))) == {
        "queue_wait_ms": "max(queue_wait_ms)",
        "outrider_requests_running": "sum(outrider_requests_running)",
    }
    assert labels_of('1000 * max(wait{namespace="serving",outrider="llama",lane=~"a|b",x!="y"})') == {
        "namespace": "serving",
        "outrider": "llama",
    }
    with pytest.raises(MeasurementError, match="at least one replica"):
        queries_of(with_settings(declared(16), {"min_replicas": 0}))
    assert "scrape_interval: 1500ms" in configuration(80, 1.5, {})


def test_without_prometheus_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("OUTRIDER_PROMETHEUS", raising=False)
    with pytest.raises(MeasurementError) as caught:
        find()
    assert "make scale-demo" in caught.value.hint


@pytest.mark.parametrize("mean", [1.0, 2.65, 3.04, 5.53])
def test_chunks_average_to_the_measured_tokens(mean: float) -> None:
    """Whole tokens in every chunk, the mean within a fiftieth."""
    sizes = [int(text) for text in chunk_tokens(mean).split(",")]
    assert sum(sizes) / len(sizes) == pytest.approx(mean, abs=0.02)
    assert {later - sooner for sooner, later in pairwise(sorted(sizes))} <= {0, 1}


def test_an_engine_slows_down_by_its_table() -> None:
    """Between measured loads linear, outside of them the nearest; without a table the fixed time."""
    script = Script(ttft_ms=7.0, step_table="1=20,8=34,32=40")
    assert [round(script.step_s(running) * 1e3, 3) for running in (1, 4, 8, 20, 32, 99)] == [
        20,
        26,
        34,
        37,
        40,
        40,
    ]
    assert script.ttft_s(50) == 0.007


def test_the_gauge_keeps_to_its_window() -> None:
    """A shorter window forgets sooner: what the run compresses is the front's own."""

    class Ticket:
        key, lane, limit, arrived_s = "a", "interactive", None, 0.0

    admission: Admission[Ticket] = Admission({"interactive": LaneRule()}, window_s=6.0)
    admission.offer(Ticket())
    admission.take(2.0)
    assert admission.queue_wait_ms(7.9) == 2000.0
    assert admission.queue_wait_ms(8.1) == 0.0


async def _up_and_down(folder: Path) -> tuple[list[tuple[int, int]], float, Clients]:
    """One replica, two, one again, while requests are under way; (declared, ready) after each."""
    metrics, upstreams = Metrics(), UpstreamSet()
    settings = FrontSettings(models=(MODEL,))
    speculation, journal = Speculation(DraftInForce("eagle3")), Journal(metrics, lambda line: None)
    front = await start(settings, upstreams, SimEngine(), speculation, journal, lambda: (True, ""))
    flags = engine_flags(read_times("llama-3.3-70b", "eagle3-k3"), 3)
    replicas = Replicas(upstreams, metrics, engine_job(flags, "eagle3", 4, folder / "engine.log"), 0.0)
    clients = Clients(f"http://127.0.0.1:{front.port}", 64)
    seen = []
    try:
        replicas.scale(1)
        sending = asyncio.create_task(
            clients.send_at([0.1 * number for number in range(60)], time.monotonic() + 1.0)
        )
        async with asyncio.timeout(300):
            for wanted in (1, 2, 1):
                replicas.scale(wanted)
                while replicas.ready != wanted or replicas.draining:
                    assert not replicas.failure
                    await asyncio.sleep(0.05)
                seen.append((replicas.declared, replicas.ready))
            await sending
            await clients.finish()
        peak = max(upstream.in_flight for upstream in upstreams)
    finally:
        await clients.close()
        await replicas.stop()
        await front.close()
    return seen, peak, clients


def test_nothing_is_lost_on_the_way_up_and_down(tmp_path: Path) -> None:
    """Real processes come and go behind a front under load; every stream gets its last token."""
    seen, in_flight, clients = asyncio.run(_up_and_down(tmp_path))
    assert seen == [(1, 1), (2, 2), (1, 1)]
    assert in_flight == 0
    assert (clients.tally.sent, clients.tally.whole, dict(clients.tally.lost)) == (60, 60, {})
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["engine-0.log", "engine-1.log"]


def test_the_committed_run_shows_it() -> None:
    """results/scale: the run is good by checks made again from its samples, and the chart is drawn from it."""
    run = ScaleRun.model_validate_json((RESULTS / "run.json").read_bytes())
    assert run.good
    assert checks(run.samples, run.phases, run.target_ms, run.sent, run.whole) == run.checks
    assert run.longest_gap_s < 3 * run.policy.sync_s
    chart = (RESULTS / "chart.svg").read_text(encoding="utf-8")
    assert chart == render_chart(run)
    assert "prefers-color-scheme:dark" in chart
    assert "every window of the loop 1/10 of the declared one" in chart

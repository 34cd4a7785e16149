"""Counters beside a load: readings on the records' clock, the front's queue, restarts."""

import time

from outrider.core.acceptance import difference
from outrider.engines.sim.adapter import SimEngine
from outrider.measure.sampling import CounterSampler
from tests.front.harness import CHAT, Bed, Sim, ask, chat, wait_until


def page(port: int) -> str:
    """Its metrics page."""
    return f"http://127.0.0.1:{port}/metrics"


def test_readings_surround_the_load(bed: Bed) -> None:
    """A reading at entry, readings on the way, one at exit; their difference is exactly what was served between."""
    sim = bed.sim(ttft_ms=1, step_ms=1, chunk_tokens="2,3", draft="eagle3")
    ask(sim.port, "POST", CHAT, chat(max_tokens=11))  # before: not in the window
    begin = time.monotonic()
    with CounterSampler(SimEngine(), page(sim.port), interval_s=0.02) as sampler:
        for _ in range(4):
            assert ask(sim.port, "POST", CHAT, chat(max_tokens=11)).status == 200
        wait_until(lambda: len(sampler.trace().readings) > 3)
    readings = sampler.trace().readings
    assert len(readings) > 4
    times = [reading.at_s for reading in readings]
    assert begin <= times[0] < times[-1] <= time.monotonic()
    assert times == sorted(times)
    first, last = readings[0].counters, readings[-1].counters
    window = difference(first.spec, last.spec)
    assert (window.delta.drafts, window.acceptance_length) == (16, 2.5)
    assert window.position_rates == (1.0, 0.5, 0.0)
    assert (last.generation_tokens or 0) - (first.generation_tokens or 0) == 44
    assert (last.first_tokens or 0) - (first.first_tokens or 0) == 4
    assert (last.steps or 0) - (first.steps or 0) == 16
    assert not sampler.trace().restarted


def test_the_fronts_queue_is_what_grew_bucket_by_bucket(bed: Bed) -> None:
    """Requests of before are not in it, buckets are not cumulative, and the last bound is infinity."""
    sim = bed.sim(ttft_ms=60, step_ms=1, chunks=1)
    front = bed.front(sim, concurrency=1)
    assert ask(front.port, "POST", CHAT, chat()).status == 200
    with CounterSampler(SimEngine(), page(sim.port), page(front.port)) as sampler:
        for _ in range(3):
            assert ask(front.port, "POST", CHAT, chat()).status == 200
        name = 'outrider_queue_wait_seconds_count{lane="interactive"}'
        wait_until(lambda: front.metric(name) == 4)
    waits = sampler.trace().queue_waits_s
    assert waits[-1][0] == float("inf")
    assert sum(count for _, count in waits) == 3
    assert sum(count for bound, count in waits if bound <= 0.05) == 3  # one after the other: nobody waited


def test_an_engine_that_comes_back_is_a_restart(bed: Bed) -> None:
    """Another process under the same port, even with no count below: said so; failed scrapes between are left out."""
    sim = bed.sim(ttft_ms=1, step_ms=1)
    with CounterSampler(SimEngine(), page(sim.port), interval_s=0.02) as sampler:
        sim.kill()
        before = len(sampler.trace().readings)
        time.sleep(0.1)
        assert len(sampler.trace().readings) <= before + 1
        revived: Sim = bed.sim(port=sim.port)
        wait_until(lambda: len(sampler.trace().readings) > before + 2)
        assert revived.port == sim.port
    assert sampler.trace().restarted


def test_an_engine_that_is_not_there_has_no_readings() -> None:
    """Nobody listens: an empty trace, no exception, no queue."""
    with CounterSampler(SimEngine(), page(9), page(9)) as sampler:
        pass
    trace = sampler.trace()
    assert (trace.readings, trace.queue_waits_s, trace.restarted) == ((), (), False)

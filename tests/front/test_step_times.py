"""How long a step takes, timed on a simulated engine: what reads the prompt is not counted as steps."""

from __future__ import annotations

import asyncio

from outrider.control.probe import SLOW_STEP_S, TIMED_TOKENS, EngineClient, time_steps
from outrider.control.upstreams import Upstream
from outrider.engines.base import LaunchPlan
from outrider.engines.sim.adapter import SimEngine
from outrider.governor.snapshot import StepReading
from tests.front.harness import Bed, Sim
from tests.timing import Between, in_time, measures_time


def timed(sim: Sim, readings: int) -> list[StepReading]:
    """Readings of that engine without a draft."""
    plan = LaunchPlan((), {}, "127.0.0.1", sim.port, "", "/health", "/metrics")

    async def take() -> list[StepReading]:
        client = EngineClient(SimEngine(), plan, Upstream("sim", "127.0.0.1", sim.port, 1), "sim")
        try:
            return [reading async for reading in time_steps(client, "off", readings)]
        finally:
            await client.close()

    return asyncio.run(take())


@measures_time
def test_the_prompt_is_no_step(bed: Bed) -> None:
    """With the prompt's time among the steps the draft with fewer of them looked dearer, most of all on a slow machine."""
    (reading,) = timed(bed.sim(ttft_ms=600, step_ms=10), 1)
    assert reading.steps == TIMED_TOKENS - 1
    in_time({"step": (reading.step_s, Between(0.009, 0.02))})


def test_a_slow_engine_is_asked_for_less(bed: Bed) -> None:
    """After the first reading: eighteen of them stand between a start and its users."""
    readings = timed(bed.sim(ttft_ms=5, step_ms=SLOW_STEP_S * 1e3 + 5), 3)
    assert [one.steps for one in readings] == [TIMED_TOKENS - 1, TIMED_TOKENS // 2 - 1, TIMED_TOKENS // 2 - 1]

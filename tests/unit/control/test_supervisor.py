"""An engine's life under the supervisor, with real processes of the simulated engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import EngineStartFailed
from outrider.engines.base import LaunchPlan, ResolvedModels
from outrider.engines.sim.adapter import SimEngine
from outrider.stack.models import Stack
from outrider.telemetry.metrics import Metrics

STACK = Stack.model_validate({"apiVersion": "outrider/v1alpha1", "target": {"model": "a/sim"}})
ENGINE = SimEngine()
INSTALL = ENGINE.find(STACK)


def sim_plan(port: int) -> LaunchPlan:
    """The simulated engine's own plan."""
    return ENGINE.plan(STACK, INSTALL, ResolvedModels("a/sim"), port)


def supervisor(
    folder: Path, plan: Callable[[int], LaunchPlan], said: list[str], start_timeout_s: float = 30
) -> Supervisor:
    """A supervisor of one simulated engine."""
    job = Job(
        engine=ENGINE,
        plan=plan,
        model=STACK.served_name,
        draft="ngram",
        concurrency=4,
        warmup_requests=1,
        start_timeout_s=start_timeout_s,
        grace_s=5,
        log_path=folder / "engine.log",
    )
    return Supervisor(job, UpstreamSet(), EngineMetrics(Metrics()), said.append)


async def until(done: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for it."""
    async with asyncio.timeout(timeout_s):
        while not done():
            await asyncio.sleep(0.02)


def test_an_engine_that_is_killed_comes_back(tmp_path: Path) -> None:
    """Ready; killed: not ready, said so; ready again on a new process; stopped: no process is left."""

    async def story() -> None:
        said: list[str] = []
        watched = supervisor(tmp_path, sim_plan, said)
        watched.start()
        await until(lambda: watched.state.ready)
        assert [upstream.ready for upstream in watched.upstreams] == [True]
        assert watched.process is not None
        first = watched.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: not watched.state.ready)
        assert len(watched.upstreams) == 0
        await until(lambda: watched.state.ready)
        second = watched.process.pid
        assert second != first
        assert any("starting it again in 1 s" in line for line in said)
        await watched.stop()
        assert not os.path.exists(f"/proc/{second}")
        assert not watched.state.ready

    asyncio.run(story())


@pytest.mark.parametrize(
    ("script", "within_s", "expected"),
    [
        ("echo no such flag; exit 3", 30, "ended with status 3"),
        ("echo loading; exec sleep 60", 1, "not ready within 1 s"),
    ],
)
def test_an_engine_that_does_not_start(tmp_path: Path, script: str, within_s: int, expected: str) -> None:
    """Dies or hangs: the start fails with its last lines, is not tried again, and leaves no process."""

    async def story() -> None:
        def plan(port: int) -> LaunchPlan:
            return replace(sim_plan(port), argv=("/bin/sh", "-c", script))

        watched = supervisor(tmp_path, plan, [], start_timeout_s=within_s)
        with pytest.raises(EngineStartFailed, match=expected) as failed:
            await watched.start()
        assert failed.value.log_tail
        assert str(tmp_path / "engine.log") in failed.value.hint
        assert watched.process is not None
        assert watched.process.returncode is not None

    asyncio.run(story())


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """A wrong interpreter is an error with what to do next."""

    async def story() -> None:
        watched = supervisor(tmp_path, lambda port: replace(sim_plan(port), argv=("/no/such/python",)), [])
        with pytest.raises(EngineStartFailed, match="cannot start the engine") as failed:
            await watched.start()
        assert "outrider plan" in failed.value.hint

    asyncio.run(story())


def test_the_key_never_reaches_the_log(tmp_path: Path) -> None:
    """An engine that prints its environment prints no key into the file we keep."""

    async def story() -> None:
        def plan(port: int) -> LaunchPlan:
            program = (
                "import os, sys; print(os.environ['OUTRIDER_SIM_KEY']); print('x' * 200000); print('end')"
            )
            return replace(sim_plan(port), argv=(sys.executable, "-c", program))

        with pytest.raises(EngineStartFailed):
            await supervisor(tmp_path, plan, []).start()

    asyncio.run(story())
    lines = (tmp_path / "engine.log").read_text().splitlines()
    assert lines == ["<key>", "end"], "the key is masked, a line without end is dropped, the rest is kept"

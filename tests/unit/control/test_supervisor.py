"""An engine's life under the supervisor, with real processes of the simulated engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.control.engines import Engines
from outrider.control.probe import EngineClient
from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import EngineStartFailed
from outrider.engines.base import LaunchPlan, ResolvedModels
from outrider.engines.sim.adapter import SimEngine
from outrider.launch.process import EngineProcess
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


@pytest.mark.parametrize("moment", ["scrape", "close", "stop"])
def test_a_stop_while_it_tidies_up_after_a_dead_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The service ends just as the engine has: nothing is started again, what was begun is done, and the stop comes back."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        reached.set()
        await go_on.wait()

    async def slow_watch(self: Supervisor, client: EngineClient) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await held()

    def slow(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def after(*arguments: object) -> None:
            await held()
            await method(*arguments)

        return after

    async def story() -> None:
        said: list[str] = []
        watched = supervisor(tmp_path, sim_plan, said)
        if moment == "scrape":
            monkeypatch.setattr(Supervisor, "_watch", slow_watch)
        life = watched.start()
        await until(lambda: watched.state.ready)
        if moment == "close":
            monkeypatch.setattr(EngineClient, "close", slow(EngineClient.close))
        if moment == "stop":
            monkeypatch.setattr(EngineProcess, "stop", slow(EngineProcess.stop))
        process = watched.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await reached.wait()
        stopping = asyncio.create_task(watched.stop())
        await asyncio.sleep(0.05)
        go_on.set()
        async with asyncio.timeout(20):
            await stopping
        assert life.cancelled()
        assert process.returncode is not None
        assert watched.process is process
        assert not any("starting it again" in line for line in said)

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


def two(
    folder: Path, said: list[str], plain_plan: Callable[[int], LaunchPlan] = sim_plan
) -> tuple[Engines, UpstreamSet]:
    """An engine with the draft and a plain one beside it."""
    upstreams, metrics = UpstreamSet(), EngineMetrics(Metrics())
    own = replace(supervisor(folder, sim_plan, said).job, only="ngram", drafts=("ngram",))
    plain = replace(
        own,
        plan=plain_plan,
        name="plain-0",
        draft="none",
        only="off",
        drafts=("off",),
        log_path=folder / "plain.log",
    )
    return Engines((own, plain), upstreams, metrics, said.append), upstreams


def pids(engines: Engines) -> list[int]:
    """Of their processes."""
    return [one.process.pid for one in engines._supervisors if one.process]


def test_two_engines_start_in_turn_and_stand_in_for_each_other(tmp_path: Path) -> None:
    """Ready once both are; with one killed still ready, and the other is all there is, until it is back. No process is left."""

    async def story() -> None:
        said: list[str] = []
        engines, upstreams = two(tmp_path, said)
        running = engines.start()
        await until(lambda: len(pids(engines)) == 1)
        await until(lambda: len(upstreams) == 1 or len(pids(engines)) == 2)
        assert [(one.name, one.draft) for one in upstreams] == [("engine-0", "ngram")], "one after the other"
        assert not engines.state.ready
        await engines.first_ready()
        assert engines.state.ready
        assert [(one.name, one.draft) for one in upstreams] == [("engine-0", "ngram"), ("plain-0", "off")]
        assert len({id(one.device) for one in upstreams}) == 1
        first = pids(engines)
        os.kill(first[1], signal.SIGKILL)
        await until(lambda: len(upstreams) == 1)
        assert engines.state.ready
        assert "plain-0: the engine is down" in engines.state.reason
        await until(lambda: len(upstreams) == 2)
        assert "down" not in engines.state.reason
        assert any(line.startswith("plain-0: ") and "starting it again" in line for line in said)
        assert pids(engines)[0] == first[0]
        assert not running.done()
        last = pids(engines)
        await engines.stop()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in last)

    asyncio.run(story())


def test_a_plain_engine_that_never_starts_is_a_mistake_to_mend(tmp_path: Path) -> None:
    """Said at the start, with its own log, and nothing is left running."""

    async def story() -> None:
        def plan(port: int) -> LaunchPlan:
            return replace(sim_plan(port), argv=("/bin/sh", "-c", "echo out of memory; exit 1"))

        engines, _ = two(tmp_path, [], plan)
        with pytest.raises(EngineStartFailed, match="ended with status 1") as failed:
            await engines.start()
        assert failed.value.log_tail == ("out of memory",)
        assert str(tmp_path / "plain.log") in failed.value.hint
        last = pids(engines)
        await engines.stop()
        assert len(last) == 2
        assert not any(os.path.exists(f"/proc/{pid}") for pid in last)

    asyncio.run(story())


def test_steps_are_timed_only_while_the_device_has_no_other_work(tmp_path: Path) -> None:
    """A request on the engine beside it makes a step longer than it is."""

    async def story() -> None:
        said: list[str] = []
        engines, _ = two(tmp_path, said)
        own, plain = engines._supervisors
        own.device.change(0.0, 1)
        engines.start()
        await engines.first_ready()
        assert (own._timed, plain._timed) == ([], [])
        await engines.stop()

    asyncio.run(story())
    quiet, _ = two(tmp_path, [])

    async def in_peace() -> None:
        quiet.start()
        await quiet.first_ready()
        assert [{one.draft for one in each._timed} for each in quiet._supervisors] == [{"ngram"}, {"off"}]
        await quiet.stop()

    asyncio.run(in_peace())

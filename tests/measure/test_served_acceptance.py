"""Served acceptance through a simulated engine whose acceptance is known, and what is said when it cannot be had."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.control.running import RunningEngine, running_engine
from outrider.control.supervisor import Job
from outrider.core.errors import EngineUnreachable, MeasurementError
from outrider.engines.base import LaunchPlan, ResolvedModels
from outrider.engines.sim.adapter import SimEngine
from outrider.measure.prompts import Prompt, PromptSet
from outrider.measure.served_acceptance import Served, ServedSettings, pooled, served_acceptance
from outrider.stack.models import Stack

STACK = Stack.model_validate({"apiVersion": "outrider/v1alpha1", "target": {"model": "a/sim"}})
PROMPTS = PromptSet(
    "code", tuple(Prompt(f"code/{n}", (f"first {n}", "second")) for n in range(5)), "code", "0" * 64
)
SETTINGS = ServedSettings(output_tokens=31, concurrency=2)


def job(folder: Path, flags: Sequence[str] = (), draft: str = "eagle3") -> Job:
    """A simulated engine with these flags."""
    engine = SimEngine()

    def plan(port: int) -> LaunchPlan:
        base = engine.plan(STACK, engine.find(STACK), ResolvedModels("a/sim"), port)
        return replace(base, argv=(*base.argv, "--tokens-per-chunk", "3", "--step-ms", "1", *flags))

    return Job(engine, plan, STACK.served_name, draft, 4, 0, 30, 5, folder / "engine.log")


def measured(job: Job) -> tuple[Served, list[tuple[int, int]]]:
    """What the set comes to on that engine, and the progress told."""
    told: list[tuple[int, int]] = []

    async def work() -> Served:
        async with running_engine(job, lambda line: None) as engine:
            return await served_acceptance(engine, PROMPTS, SETTINGS, lambda *at: told.append(at))

    return asyncio.run(work()), told


def test_a_start_is_told_of(tmp_path: Path) -> None:
    """While the engine comes up its state is told in lines that may be overwritten, then once that it is ready."""
    told: list[str] = []

    async def work() -> None:
        async with running_engine(job(tmp_path), told.append):
            pass

    asyncio.run(work())
    assert told[0] == "the engine is starting (0 s)\r"
    assert [line.endswith("\r") for line in told] == [True] * (len(told) - 1) + [False]


def test_the_counts_of_the_set_alone(tmp_path: Path) -> None:
    """Two of three accepted in every step: AL 3, over all turns of all prompts, the start's probe not among them."""
    found, told = measured(job(tmp_path))
    assert found.window.acceptance_length == pytest.approx(3.0)
    assert (found.prompt_set, found.requests, found.output_tokens) == ("code", 5, 2 * 5 * 31)
    assert found.window.delta.accepted == 2 * found.window.delta.drafts
    assert found.window.delta.drafts <= found.output_tokens / 3 + 10  # of these answers, not of the probe's
    assert told[-1] == (5, 5)
    assert [done for done, _ in told] == [1, 2, 3, 4, 5]


def test_sets_are_pooled_by_their_counts(tmp_path: Path) -> None:
    """A set with ten times the drafts weighs ten times as much."""
    found, _ = measured(job(tmp_path))
    delta = found.window.delta
    poor = replace(
        found, window=replace(found.window, delta=replace(delta, drafts=delta.drafts * 10, accepted=0.0))
    )
    assert pooled([found, poor]) == pytest.approx(1 + 2 / 11)
    assert pooled([]) is None


def test_a_server_without_a_draft_has_no_acceptance(tmp_path: Path) -> None:
    """Nothing drafted is an error that says so, not an AL of 1."""
    with pytest.raises(MeasurementError, match="no acceptance on code: the engine drafted nothing"):
        measured(job(tmp_path, draft="none"))


def test_a_request_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    """One answer of 500 among ten: the error names the prompt and the status, and the engine is stopped."""
    with pytest.raises(MeasurementError, match=r"the request of code/\d failed: answered 500"):
        measured(job(tmp_path, ("--rate-500", "0.3", "--seed", "5")))


def test_an_engine_that_dies_is_named(tmp_path: Path) -> None:
    """The process is gone in the middle: it is the engine's end that is told, with where its log is."""
    with pytest.raises(EngineUnreachable, match="the engine ended while it was used") as caught:
        measured(job(tmp_path, ("--die-after-requests", "6")))
    assert "engine.log" in caught.value.hint


def test_no_process_is_left(tmp_path: Path) -> None:
    """After the work, and after an error inside, the engine is gone."""
    pids: list[int] = []

    async def work(engine: RunningEngine) -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and b"outrider.engines.sim.server" in _command(entry):
                pids.append(int(entry.name))
        raise MeasurementError("enough", hint="none")

    async def story() -> None:
        async with running_engine(job(tmp_path, ("--seed", "4711")), lambda line: None) as engine:
            await work(engine)

    with pytest.raises(MeasurementError, match="enough"):
        asyncio.run(story())
    assert pids
    assert not [
        pid for pid in pids if os.path.exists(f"/proc/{pid}") and b"4711" in _command(Path(f"/proc/{pid}"))
    ]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""

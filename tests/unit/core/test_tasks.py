"""The end of tasks: what they leave behind, and whose cancellation it is."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from outrider.core.tasks import ended, to_its_end

SOURCE = Path(__file__).parents[3]


async def slow_to_end(left: asyncio.Event) -> None:
    """A task that takes until `left` to end once it is cancelled."""
    try:
        await asyncio.sleep(60)
    finally:
        await left.wait()


def test_a_task_ends_however_it_does() -> None:
    """Cancelled, failed or done: awaited, nothing raised."""

    async def fails() -> None:
        raise ValueError

    async def story() -> None:
        tasks = [asyncio.ensure_future(one) for one in (asyncio.sleep(60), fails(), asyncio.sleep(0))]
        await asyncio.sleep(0.01)
        await ended(*tasks)
        assert all(task.done() for task in tasks)
        await ended()

    asyncio.run(story())


def test_a_cancellation_of_ones_own_is_not_taken_for_the_tasks() -> None:
    """It comes while a task is awaited that was cancelled: it goes through."""

    async def story() -> None:
        left = asyncio.Event()
        task = asyncio.ensure_future(slow_to_end(left))
        caller = asyncio.ensure_future(ended(task))
        await asyncio.sleep(0.01)
        caller.cancel()
        await asyncio.wait([caller], timeout=5)
        assert caller.cancelled()
        left.set()
        await ended(task)

    asyncio.run(story())


def test_what_tidies_up_comes_to_its_end() -> None:
    """Cancelled in the middle of it: the work is done first, then the cancellation goes on; an error of the work is raised."""

    async def story() -> None:
        done, go_on = [], asyncio.Event()

        async def tidy() -> None:
            await go_on.wait()
            done.append(1)

        caller = asyncio.ensure_future(to_its_end(tidy()))
        await asyncio.sleep(0.01)
        caller.cancel()
        await asyncio.sleep(0.01)
        assert not caller.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert done == [1]

        async def fails() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await to_its_end(fails())

    asyncio.run(story())


def test_no_cancellation_is_suppressed_anywhere() -> None:
    """Whoever suppresses CancelledError, or waits by `asyncio.wait_for` (3.11: it can lose one), suppresses his own as well."""
    found = []
    for path in (
        *SOURCE.glob("src/**/*.py"),
        *SOURCE.glob("plugin/src/**/*.py"),
        *SOURCE.glob("benchmarks/**/*.py"),
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if (
                    name.endswith("suppress") and "CancelledError" in ast.unparse(node)
                ) or name == "asyncio.wait_for":
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not found

"""The end of asyncio tasks, without losing a cancellation of one's own.

``with suppress(CancelledError): await task`` after ``task.cancel()`` cannot tell the task's cancellation from the caller's: one
that comes in that moment is gone, and whoever cancelled waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel these tasks and wait until each has ended, however it does. Raises CancelledError for the caller's own alone."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that nobody warns of it


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do the work even if the caller is cancelled meanwhile; the cancellation goes on after it. For what tidies up."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise

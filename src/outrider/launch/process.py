"""One engine process: started from a launch plan, its log kept, stopped with everything it started.

The log is piped through here, so that it is bounded on disk, its last lines are at hand when the engine dies, and the
launch key never reaches the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import secrets
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from outrider.core.errors import EngineStartFailed
from outrider.core.tasks import ended
from outrider.engines.base import LaunchPlan

LOG_BYTES = 16 * 1024 * 1024
TAIL_LINES = 40
MAX_LINE_BYTES = 64 * 1024
PR_SET_PDEATHSIG = 1  # Source: prctl(2)
_LIBC = ctypes.CDLL(None)  # opened here: a child that has just been forked must not need the loader


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def new_key() -> str:
    """A random key for one launch of one engine."""
    return secrets.token_urlsafe(32)


def die_with_parent() -> None:
    """In the child: get SIGTERM when Outrider dies, however it dies, so that no engine is left behind."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class EngineProcess:
    """A running engine. `on_line` sees every log line (for progress); `log_path` is where they are kept."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self._pump: asyncio.Task[None] | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.log_path = log_path

    @classmethod
    async def start(
        cls, plan: LaunchPlan, key: str, log_path: Path, on_line: Callable[[str], None] = lambda line: None
    ) -> EngineProcess:
        """Start it. Raises EngineStartFailed if the program cannot be run or its log cannot be written."""
        env = {**os.environ, **plan.env, plan.key_variable: key}
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            # Opened with the first line, so that nothing is left open when the program cannot be run.
            handler = RotatingFileHandler(
                log_path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True
            )
            process = await asyncio.create_subprocess_exec(
                *plan.argv,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
                limit=MAX_LINE_BYTES,
            )
        except OSError as error:
            raise EngineStartFailed(
                f"cannot start the engine: {error}",
                hint="Run `outrider plan` and try its command by hand; check `engine.python` and the free disk space.",
            ) from error
        started = cls(process, log_path)
        started._pump = asyncio.create_task(started._keep_log(handler, key, on_line))
        return started

    @property
    def pid(self) -> int:
        """Process id of the engine's first process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.returncode

    def tail(self) -> tuple[str, ...]:
        """The last lines of its log."""
        return tuple(self._tail)

    async def wait(self) -> int:
        """Until it ends; its exit status. Its log is complete then."""
        status = await self._process.wait()
        if self._pump:
            # A grandchild may hold the pipe open: what it still says is not waited for.
            await asyncio.wait([self._pump], timeout=2)
        return status

    async def stop(self, grace_s: float) -> None:
        """SIGTERM to its first process, then SIGKILL to the whole group after `grace_s` seconds."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
        # Also when the first process is gone: its workers may not be.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._pump:
            await ended(self._pump)

    async def _keep_log(self, handler: RotatingFileHandler, key: str, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None  # noqa: S101  (asked for above)
        handler.setFormatter(logging.Formatter("%(message)s"))
        try:
            async for raw in lines(self._process.stdout):
                line = raw.decode("utf-8", "replace").rstrip().replace(key, "<key>")
                self._tail.append(line)
                handler.emit(logging.makeLogRecord({"msg": line}))
                on_line(line)
        finally:
            handler.close()


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Its lines; one that is longer than the stream's limit is left out whole."""
    too_long = False
    while True:
        try:
            line = await stream.readuntil()
        except asyncio.IncompleteReadError as end:
            line = end.partial
        except asyncio.LimitOverrunError as beyond:
            await stream.readexactly(beyond.consumed)
            too_long = True
            continue
        if not line:
            return
        if not too_long:
            yield line
        too_long = False

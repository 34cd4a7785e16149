"""A whole service, `outrider serve` in a process of its own: started from a stack file, awaited, stopped with its engine.

What is measured is what users get: the front, the engine behind it, the draft that the stack names. Its JSON log is kept in a
file and read for the two addresses: the door, and the engine's own page of counters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from outrider.core.errors import EngineStartFailed
from outrider.launch.process import TAIL_LINES, die_with_parent

STOP_GRACE_S = 45.0


class Service:
    """A running `outrider serve`. `url` is the front's address, `engine_url` the engine's, `facts` what it said of itself."""

    def __init__(self, process: subprocess.Popen[str], log_path: Path) -> None:
        self._process, self._log_path = process, log_path
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._listening = threading.Event()
        self._pump: threading.Thread | None = None
        self.url = ""
        self.engine_url = ""
        self.facts: dict[str, object] = {}

    @classmethod
    def start(
        cls,
        stack: Path,
        log_path: Path,
        timeout_s: float,
        say: Callable[[str], None] = lambda line: None,
        options: Sequence[str] = (),
    ) -> Service:
        """Start it, with more `options` of `outrider serve`, and wait until it listens. `say` is told what it does meanwhile.

        Raises EngineStartFailed with the service's last words, also after `timeout_s` seconds.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "outrider", "serve", str(stack)),
            *("--host", "127.0.0.1", "--port", "0", "--log", "json"),
            *options,
        ]
        process = subprocess.Popen(  # noqa: S603  (our own program)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (one prctl; no lock is taken)
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        service = cls(process, log_path)
        service._pump = threading.Thread(target=service._read, args=(say,), daemon=True)
        service._pump.start()
        deadline = time.monotonic() + timeout_s
        try:
            while not service._listening.wait(0.2):
                if not service.alive:
                    service._pump.join(5)
                    raise service._failed(
                        f"the server ended with status {process.returncode} before it was ready"
                    )
                if time.monotonic() > deadline:
                    raise service._failed(f"the server was not ready within {timeout_s:.0f} s")
        except BaseException:
            service.stop()
            raise
        return service

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def tail(self) -> tuple[str, ...]:
        """The last lines it said."""
        return tuple(self._tail)

    def stop(self) -> None:
        """SIGTERM, so that streams end and the engine stops; SIGKILL to all of it when that takes too long."""
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._pump:
            self._pump.join(5)
        if self._process.stderr and not (self._pump and self._pump.is_alive()):
            self._process.stderr.close()

    def _failed(self, message: str) -> EngineStartFailed:
        return EngineStartFailed(
            message, hint=f"Its whole log: {self._log_path.name} in the run's `logs`.", log_tail=self.tail()
        )

    def _read(self, say: Callable[[str], None]) -> None:
        pipe = self._process.stderr
        assert pipe is not None  # noqa: S101  (asked for above)
        with self._log_path.open("a", encoding="utf-8") as log, contextlib.suppress(ValueError):
            for line in pipe:
                log.write(line)
                log.flush()
                self._take(line.rstrip("\n"), say)

    def _take(self, line: str, say: Callable[[str], None]) -> None:
        try:
            facts = json.loads(line)
        except ValueError:
            self._tail.append(line)
            if line.strip() and not self._listening.is_set():
                say(line.strip())
            return
        if not isinstance(facts, dict) or facts.get("event") not in {"serve", "engine"}:
            return
        if "state" in facts:
            self._tail.append(str(facts["state"]))
            if not self._listening.is_set():
                say(str(facts["state"]))
        self.facts.update(
            {key: value for key, value in facts.items() if key not in {"time", "event", "state"}}
        )
        if facts.get("url"):
            self.url, self.engine_url = str(facts["url"]), str(facts.get("engine_url", ""))
            self._listening.set()

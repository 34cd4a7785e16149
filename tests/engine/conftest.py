"""Real services on the real CPU engine: started once, shared by all tests that only send requests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import yaml

from outrider.stack.load import built_in_text
from tests.stacks import NGRAM

START_S = 600.0


@dataclass
class Served:
    """One `outrider serve` process, its log so far and its address."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""
    reader: threading.Thread | None = None
    model: str = "SmolLM2-135M-Instruct"

    def wait_for(self, pattern: str, timeout_s: float = 90.0, since: int = 0) -> re.Match[str]:
        """The first log line after line `since` that matches; fails with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in self.lines[since:]:
                if found := re.search(pattern, line):
                    return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no line matches {pattern!r}:\n" + "\n".join(self.lines[-40:]))

    def stop(self, timeout_s: float = 120.0) -> int:
        """SIGTERM; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout_s)
        finally:
            self.process.kill()  # nothing where it has ended; its engine goes with it
        if self.reader:
            self.reader.join(10)
        return status

    def engine_pids(self) -> list[int]:
        """Processes whose parent is the service: the engine's first process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children]


def start(*args: str, ready: bool = True) -> Served:
    """Run `outrider serve ARGS --port 0` and, if asked, wait until it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "outrider", "serve", *args, "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    served = Served(process)

    def read() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                served.lines.append(line.rstrip("\n"))

    served.reader = threading.Thread(target=read, daemon=True)
    served.reader.start()
    if ready:
        try:
            served.url = served.wait_for(r"listening on (http://\S+)", START_S).group(1)
        except BaseException:
            served.stop()
            raise
    return served


def refused(*args: str, timeout_s: float = 120) -> tuple[int, str]:
    """Exit status and standard error of an `outrider serve` that must end by itself."""
    command = [sys.executable, "-m", "outrider", "serve", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return done.returncode, done.stderr


def write_stack(folder: Path, changes: dict[str, dict[str, object]]) -> Path:
    """The built-in stack with some sections changed, the draft replaced, as a file."""
    stack = yaml.safe_load(built_in_text())
    for section, values in changes.items():
        stack[section] = values if section == "draft" else {**stack.get(section, {}), **values}
    path = folder / "stack.yaml"
    path.write_text(yaml.safe_dump(stack))
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The built-in target with n-gram drafts, which need no head and repeat what repeats, and a price so that cost is logged;
    gone, with its memory, before the next module's engines."""
    changes: dict[str, dict[str, object]] = {"draft": NGRAM, "price": {"usd_per_hour": 0.10}}
    stack = write_stack(tmp_path_factory.mktemp("service"), changes)
    served = start(str(stack))
    yield served
    served.stop()


@pytest.fixture
def begin() -> Iterator[Callable[..., Served]]:
    """`start`, for services of one test: they end with it, however it ends."""
    made: list[Served] = []

    def begun(*args: str, ready: bool = True) -> Served:
        made.append(start(*args, ready=ready))
        return made[-1]

    yield begun
    for served in made:
        served.stop()


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    """An HTTP client of the shared service."""
    with httpx.Client(base_url=service.url, timeout=120, trust_env=False) as client:
        yield client

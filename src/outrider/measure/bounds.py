"""How much a load may take: a server that floods costs its cell, not the machine.

A load generator holds what the server sends until the answer ends, writes all of it down, and is read back: without a bound a
server that never stops talking takes the memory and the disk of everybody beside it. The bounds follow from what is asked for and
are wide: twenty times what a token takes.

Watched, not limited by the kernel. RLIMIT_AS counts what is reserved, not what is used (aiperf: 0.9 GB where 0.1 GB is used),
it bounds each process and not all of them, and a process that meets it dies without saying why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import MeasurementError
from outrider.measure.load import LoadPlan

KIB, MIB, GIB = 2**10, 2**20, 2**30
TOKEN_BYTES = 8 * KIB  # of one token's chunk in the raw export, 0.4 KiB as a rule
CHARACTER_BYTES = 6  # of one character of a prompt in JSON, at most
PROCESS_BYTES = 256 * MIB  # of one of aiperf's processes, 0.11 GiB as a rule
OWN_PROCESSES = 6  # beside the workers and record processors
LEAST_MEMORY = GIB  # less than this it cannot do with
SCAN_S = 1.0  # new processes are looked for this often


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes: `answer` of one request's line in the raw export, `files` of all files together, `memory` of all processes."""

    answer: int
    files: int
    memory: int


def bounds_of(plan: LoadPlan, processes: int, available: int | None = None) -> Bounds:
    """What this plan may take with so many sending and recording processes.

    `available`: memory that is free now, bytes (None: asked of the machine); nine tenths of it may be taken at most.
    """
    answer = answer_bytes(plan)
    memory = (OWN_PROCESSES + processes) * PROCESS_BYTES + 4 * plan.concurrency * answer
    free = available_bytes() if available is None else available
    return Bounds(
        answer=answer,
        files=256 * MIB + (plan.requests + plan.warmup_requests) * answer // 4,
        memory=max(min(memory, free * 9 // 10), LEAST_MEMORY),
    )


def answer_bytes(plan: LoadPlan) -> int:
    """What one request of the plan may take with its answer, by far: its prompts in JSON and every chunk of every turn."""
    texts = max(len(prompt.system or "") + sum(map(len, prompt.turns)) for prompt in plan.prompts)
    turns = max(len(prompt.turns) for prompt in plan.prompts)
    return MIB + texts * CHARACTER_BYTES + turns * plan.output_tokens * TOKEN_BYTES


def available_bytes() -> int:
    """Memory that can be taken without swapping. Source: proc(5), MemAvailable of /proc/meminfo, in KiB."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """What the processes of one session and the files of one folder take, against the bounds."""

    def __init__(self, session: int, folder: Path, bounds: Bounds) -> None:
        self._session, self._folder, self._bounds = session, folder, bounds
        self._members: list[int] = []
        self._scanned_s = -SCAN_S

    def check(self) -> None:
        """Raises MeasurementError where a bound is passed."""
        now_s = time.monotonic()
        if now_s - self._scanned_s >= SCAN_S:
            self._members, self._scanned_s = list(members(self._session)), now_s
        memory = sum(map(resident_bytes, self._members))
        if memory > self._bounds.memory:
            raise flood(f"the load generator took {_words(memory)} of memory", self._bounds.memory)
        files = folder_bytes(self._folder)
        if files > self._bounds.files:
            raise flood(f"the load generator's files took {_words(files)}", self._bounds.files)


def flood(what: str, bound: int) -> MeasurementError:
    """The error for a bound that was passed."""
    return MeasurementError(
        f"the server floods: {what}, more than the {_words(bound)} that are ample for what was asked for",
        hint="Ask the server for one streamed answer (curl -N) and see what it sends. The load was stopped, other cells stand.",
    )


def members(session: int) -> Iterator[int]:
    """The processes of a session, by id. Source: proc(5), the sixth field of /proc/PID/stat."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat = (path / "stat").read_bytes()
            except OSError:  # it has ended
                continue
            if int(stat.rpartition(b")")[2].split()[3]) == session:
                yield int(path.name)


def resident_bytes(process: int) -> int:
    """Memory that a process uses; 0 if it has ended. Source: proc(5), the second field of /proc/PID/statm, in pages."""
    try:
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def folder_bytes(folder: Path) -> int:
    """What all files below a folder hold together."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _words(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"

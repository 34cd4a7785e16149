"""What a training is measured by, without making the device wait: times by its own events, use by its driver."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

EVERY_STEPS = 8  # steps of which one is timed
USE_EVERY_S = 0.5


class Pace:
    """Time and tokens of a run that began with `spent_s` seconds behind it, `paced_s` of them with steps of `paced_tokens`.

    Measuring and keeping count as time, not as pace.
    """

    def __init__(
        self,
        spent_s: float = 0.0,
        paced_tokens: int = 0,
        paced_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._spent_s = clock, spent_s
        self._began = self._lap_began = clock()
        self._lap_tokens = self._lap_step = 0
        self._lap_s = 0.0
        self.tokens, self.paced_s = paced_tokens, paced_s
        self._steps, self._step_s = 0, 0.0
        self._measure_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds of this run and of those it goes on from."""
        return self._spent_s + self._clock() - self._began

    @property
    def untold_s(self) -> float:
        """Seconds of steps since the last lap."""
        return self._lap_s + self._clock() - self._lap_began

    @property
    def tok_s(self) -> float:
        """Tokens a second of all laps, earlier runs' too; 0 before the first."""
        return self.tokens / self.paced_s if self.paced_s else 0.0

    def start(self) -> None:
        """Time begins."""
        self._began = self._clock()

    def begin_lap(self, tokens: int, step: int) -> None:
        """The pace is taken from here on."""
        self._lap_tokens, self._lap_step, self._lap_s = tokens, step, 0.0
        self._lap_began = self._clock()

    def pause(self) -> None:
        """What follows is no step."""
        self._lap_s += self._clock() - self._lap_began
        self._lap_began = self._clock()

    def go_on(self) -> None:
        """Steps again."""
        self._lap_began = self._clock()

    def lap(self, tokens: int, step: int) -> float:
        """Tokens a second since the last lap."""
        took = max(self.untold_s, 1e-9)
        done = tokens - self._lap_tokens
        self.tokens += done
        self.paced_s += took
        self._steps += step - self._lap_step
        self._step_s += took
        self.begin_lap(tokens, step)
        return done / took

    def measured(self, took_s: float) -> None:
        """An evaluation took so long."""
        self._measure_s = took_s

    def seconds_left(self, steps: int, evaluations: int) -> float:
        """For so many steps at the pace so far, and evaluations like the last."""
        return steps * self._step_s / max(1, self._steps) + evaluations * self._measure_s


class TargetShare:
    """Share of the step's time that the target's forward takes, from every eighth step."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._marks: list[Any] = []
        self._pending: list[tuple[Any, Any, Any, Any]] = []
        self._sums = [0.0, 0.0]
        self._total = [0.0, 0.0]

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around a step."""
        if number % EVERY_STEPS:
            yield
            return
        self._marks = []
        self._mark()
        yield
        self._mark()
        if len(self._marks) == 4:
            self._pending.append((self._marks[0], *self._marks[1:]))
        self._marks = []

    @contextmanager
    def target(self) -> Iterator[None]:
        """Around the target's part of a step."""
        timed = len(self._marks) == 1
        if timed:
            self._mark()
        yield
        if timed:
            self._mark()

    def taken(self) -> float | None:
        """The share since the last call; None where no step was timed. The device's events must have been reached."""
        for begun, before, after, ended in self._pending:
            self._sums[0] += self._between(before, after)
            self._sums[1] += self._between(begun, ended)
        self._pending.clear()
        part, whole = self._sums
        self._sums = [0.0, 0.0]
        self._total = [self._total[0] + part, self._total[1] + whole]
        return part / whole if whole else None

    @property
    def overall(self) -> float | None:
        """The share of all that `taken` told."""
        return self._total[0] / self._total[1] if self._total[1] else None

    def _mark(self) -> None:
        if not self._cuda:
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def _between(self, one: Any, other: Any) -> float:
        if self._cuda:
            return float(one.elapsed_time(other)) / 1000
        return float(other) - float(one)


class GpuUse:
    """How busy the GPU is, 0 to 1, sampled in a thread; None without a GPU or without NVML."""

    def __init__(self, device: str) -> None:
        self._samples: list[float] = []
        self._all: list[float] = []
        self._stop = threading.Event()
        if device == "cuda":
            threading.Thread(target=self._sample, name="gpu-use", daemon=True).start()

    def _sample(self) -> None:
        while not self._stop.wait(USE_EVERY_S):
            try:
                self._samples.append(torch.cuda.utilization() / 100)
            except Exception:  # no NVML, or it does not answer: not worth a training
                return

    def taken(self) -> float | None:
        """The mean since the last call."""
        samples, self._samples = self._samples, []
        self._all += samples
        return sum(samples) / len(samples) if samples else None

    @property
    def overall(self) -> float | None:
        """The mean of all that `taken` told."""
        return sum(self._all) / len(self._all) if self._all else None

    def close(self) -> None:
        """End the thread."""
        self._stop.set()


def peak_memory_bytes(device: str) -> int:
    """The most that was held: of the device's memory by PyTorch, on a CPU of the host's by this process."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def free_memory_bytes(device: str) -> int:
    """What can be taken now."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))

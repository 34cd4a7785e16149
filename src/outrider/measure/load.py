"""The load: what is sent, and the protocol of whoever sends it.

A load generator is a program of its own, in an environment of its own; here is only what we ask of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from outrider.measure.prompts import Prompt
from outrider.measure.records import RequestRecord


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One closed-loop run against an OpenAI-compatible server: `concurrency` requests under way at any time.

    `url` is the server's root (``http://127.0.0.1:8000``). Prompts are taken in order, from the start again when they end.
    `requests` counted ones follow `warmup_requests` that are not. With `fixed_length` each answer is exactly `output_tokens`
    long (``ignore_eos``); without, it ends where the model ends it, at `output_tokens` at most.
    """

    url: str
    model: str
    prompts: tuple[Prompt, ...]
    concurrency: int
    requests: int
    warmup_requests: int
    output_tokens: int
    fixed_length: bool = True
    temperature: float = 0.0
    timeout_s: float = 600.0
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What the accelerator did during the counted part, read by NVML; utilisation 0 to 1, memory in bytes, means and peaks."""

    name: str
    utilisation_mean: float
    memory_peak_bytes: int
    power_mean_w: float | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it. `records`: every counted request, failed ones included, in the order they were started.

    `began_s`, `ended_s`: first start and last end of counted requests, seconds, monotonic clock.
    """

    records: tuple[RequestRecord, ...]
    began_s: float
    ended_s: float
    generator: str
    gpu: GpuUse | None = None
    warnings: tuple[str, ...] = ()


class LoadRunner(Protocol):
    """Sends a plan's requests and reads back what happened."""

    def run(self, plan: LoadPlan, folder: Path, progress: Callable[[int, int], None]) -> LoadResult:
        """Run it; `folder` takes the generator's own files. `progress(done, of)` is called now and then.

        Raises MeasurementError: the generator is not installed, died, or answered nothing usable.
        """
        ...

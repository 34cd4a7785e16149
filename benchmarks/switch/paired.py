"""Engines that stay loaded and answer batches in turn, and what a ratio of their times is worth."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.built_in import Pair, built_in_pair

SWITCH = {
    "worker_cls": "outrider_vllm.worker.SwitchWorker",
    "scheduler_cls": "outrider_vllm.scheduler.CountingScheduler",
}
SWITCH_ENV = {"OUTRIDER_VLLM_SWITCH": "2,4"}


class Engine:
    """A process of `benchmarks.switch.engine`."""

    def __init__(self, arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.switch.engine", json.dumps(arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OUTRIDER_VLLM": "1", **(environ or {})},
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise SystemExit("an engine has no pipes")
        self._jobs, self._answers = stdin, stdout
        if self._read() != "ready":
            raise SystemExit("an engine did not start")

    def _read(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise SystemExit("an engine ended")
        return json.loads(line)

    def batch(self, **job: Any) -> dict[str, Any]:
        """What one batch took; see `benchmarks.switch.engine`."""
        print(json.dumps(job), file=self._jobs, flush=True)
        return dict(self._read())

    def stop(self) -> None:
        """End it."""
        self._jobs.close()
        self._process.wait(60)


def arguments(pair: Pair, length: int = 0) -> dict[str, object]:
    """vLLM's, for the pair's target and, at draft length `length`, its head."""
    found: dict[str, object] = {"model": str(pair.target), "dtype": pair.dtype, "max_model_len": 2048}
    found |= {"kv_cache_memory_bytes": 2**30, "enable_prefix_caching": False}
    if length:
        found["speculative_config"] = {
            "method": "eagle3",
            "model": str(pair.head),
            "num_speculative_tokens": length,
        }
    return found


def chosen_pair(head: Path | None) -> Pair:
    """The built-in target with this head, or with its own. Raises OutriderError."""
    pair = built_in_pair()
    return Pair(pair.target, head, pair.dtype) if head else pair


def interval(logs: list[float], seed: int = 1) -> tuple[float, float, float]:
    """Geometric mean of ratios and its 95 % interval by bootstrap."""
    draw = random.Random(seed)  # noqa: S311  (resampling, not secrets)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(4000))
    return math.exp(statistics.fmean(logs)), math.exp(means[100]), math.exp(means[3899])

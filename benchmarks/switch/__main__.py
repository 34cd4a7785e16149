"""``python -m benchmarks.switch HEAD [--repeats 16] [--out FILE]``: paired runs on the CPU build, one engine at a time.

Three engines stay loaded: without speculation, with the head, with the head and the switch. In each repeat every arm runs the
same prompts, in an order that turns; a ratio is of two runs of one repeat. Printed: the geometric mean of the ratios of seconds
(over 1: slower), its 95 % interval (bootstrap over repeats), and how often it was run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from outrider.stack.load import load_stack
from outrider.stack.weights import resolve

K = 5
PAIRS = {
    "switch idle / plain with head": ("idle", "head"),
    "off / without speculation": ("off", "none"),
    "warm / without speculation": ("warm", "none"),
    "head / without speculation": ("head", "none"),
}
ARMS: dict[str, tuple[str, str | None]] = {  # arm → engine, stamp
    "none": ("none", None),
    "head": ("head", None),
    "idle": ("switch", "eagle3"),
    "off": ("switch", "off"),
    "warm": ("switch", "warm"),
}


class Engine:
    """A process of `benchmarks.switch.engine`."""

    def __init__(self, arguments: dict[str, Any], environ: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.switch.engine", json.dumps(arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environ},
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

    def seconds(self, draft: str | None, rows: int, tokens: int, repeat: int) -> float:
        """How long one batch took."""
        job = {"draft": draft, "rows": rows, "tokens": tokens, "repeat": repeat}
        print(json.dumps(job), file=self._jobs, flush=True)
        return float(self._read())

    def stop(self) -> None:
        """End it."""
        self._jobs.close()
        self._process.wait(60)


def start(head: str) -> dict[str, Engine]:
    """The three engines, loaded one after the other."""
    target = load_stack(None).target
    base = {"model": resolve(target.model, sha256=target.sha256), "kv_cache_memory_bytes": 2**28}
    base |= {"enable_prefix_caching": False}
    speculative = {"method": "eagle3", "model": head, "num_speculative_tokens": K}
    classes = {
        "worker_cls": "outrider_vllm.worker.SwitchWorker",
        "scheduler_cls": "outrider_vllm.scheduler.CountingScheduler",
    }
    return {
        "none": Engine(base, {"OUTRIDER_VLLM": "1"}),
        "head": Engine(base | {"speculative_config": speculative}, {"OUTRIDER_VLLM": "1"}),
        "switch": Engine(
            base | {"speculative_config": speculative} | classes,
            {"OUTRIDER_VLLM": "1", "OUTRIDER_VLLM_SWITCH": "2,4"},
        ),
    }


def interval(logs: list[float], seed: int = 1) -> tuple[float, float, float]:
    """Geometric mean of ratios and its 95 % interval by bootstrap over repeats."""
    draw = random.Random(seed)  # noqa: S311  (resampling, not secrets)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(4000))
    return math.exp(statistics.fmean(logs)), math.exp(means[100]), math.exp(means[3899])


def main() -> None:
    """Run and print; with --out also write every second that was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("head")
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--rows", default="1,4,8")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    engines = start(given.head)
    names, measured = list(ARMS), []
    try:
        for rows in map(int, given.rows.split(",")):
            for repeat in range(-1, given.repeats):  # the first one warms up
                turned = names[repeat % len(names) :] + names[: repeat % len(names)]
                found = {}
                for arm in turned if repeat % 2 else reversed(turned):
                    engine, draft = ARMS[arm]
                    found[arm] = engines[engine].seconds(draft, rows, given.tokens, repeat)
                if repeat >= 0:
                    measured.append(
                        {"rows": rows, "repeat": repeat, "load": os.getloadavg()[0], "seconds": found}
                    )
            for title, (one, other) in PAIRS.items():
                logs = [
                    math.log(each["seconds"][one] / each["seconds"][other])
                    for each in measured
                    if each["rows"] == rows
                ]
                mean, low, high = interval(logs)
                print(f"batch {rows}: {title}: {mean:.3f} [{low:.3f}, {high:.3f}] n={len(logs)}", flush=True)
    finally:
        for engine in engines.values():
            engine.stop()
        if given.out:
            run = {
                "at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
                "k": K,
                "tokens": given.tokens,
                "runs": measured,
            }
            given.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

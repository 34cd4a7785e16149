"""Runs the jobs, one queue an accelerator, so that a stop at any moment leaves whole cells.

::

    python3 -m benchmarks.h200 plan                                     what would run, and for how long
    python3 -m benchmarks.h200 start --runs DIR 0=llama-3.3-70b 1=qwen3-coder-30b-a3b,qwen2.5-coder-1.5b
    python3 -m benchmarks.h200 status --runs DIR                        the last lines and the cells that are done
    python3 -m benchmarks.h200 collect --runs DIR --out OUT [--raw]     archives to carry away
    python3 -m benchmarks.h200 stop --runs DIR                          ends the queues; finished cells stay

`start` returns at once; each queue goes on by itself, and the same command later goes on with what is not done. A job may be
given a limit, ``llama-3.3-70b@1500``: seconds after which it is interrupted as by Ctrl-C. Reports are written elsewhere, from
the folders that come back: ``outrider bench --report-only --out RUN``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.h200.jobs import LLAMA, QWEN3, REHEARSAL, WARMUP, Job, real

ROOT = Path(__file__).parents[2]
PART_BYTES = 15 * 1024 * 1024
END_GRACE_S = 90.0
DEFAULT = ("0=llama-3.3-70b", "1=qwen3-coder-30b-a3b,qwen2.5-coder-1.5b")


@dataclass(frozen=True, slots=True)
class Step:
    """A job in a queue; `limit_s` None: until it ends."""

    job: Job
    limit_s: float | None = None


def jobs(models: Path, data: Path) -> dict[str, Job]:
    """All jobs by name."""
    return {job.name: job for job in (LLAMA, QWEN3, real(models, data), REHEARSAL)}


def read_queue(text: str, known: dict[str, Job]) -> tuple[str, list[Step]]:
    """``0=llama-3.3-70b@1500,other`` as the accelerator and its steps. Raises SystemExit for an unknown job."""
    gpu, _, names = text.partition("=")
    steps = []
    for one in names.split(","):
        name, _, limit = one.partition("@")
        if name not in known:
            raise SystemExit(f"no job {name!r}; there are {', '.join(known)}")
        steps.append(Step(known[name], float(limit) if limit else None))
    return gpu, steps


def plan(known: dict[str, Job]) -> None:
    """Print every job with its expected seconds."""
    for job in known.values():
        print(f"{job.name}: outrider {shlex.join(job.command(Path('RUNS')))}")
        total = 0.0
        for arm, seconds in job.expected().items():
            total += seconds
            print(f"  {arm:12} {seconds:5.0f} s, {total:5.0f} s in all")


def start(runs: Path, queues: Sequence[str]) -> None:
    """Start one process a queue, in a session of its own."""
    runs.mkdir(parents=True, exist_ok=True)
    for queue in queues:
        gpu = queue.partition("=")[0]
        with (runs / f"queue-{gpu}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.h200", "work", "--runs", str(runs), queue],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (runs / f"queue-{gpu}.pid").write_text(str(process.pid))
        print(f"queue of accelerator {gpu}: process {process.pid}")


def work(runs: Path, queue: str, known: dict[str, Job]) -> None:
    """One queue, in this process: job after job, each with the accelerator alone."""
    gpu, steps = read_queue(queue, known)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if gpu != "any":
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for step in steps:
        command = [
            sys.executable,
            "-m",
            "outrider",
            *step.job.command(runs),
            "--warmup",
            str(WARMUP),
            "--no-report",
        ]
        began = time.time()
        print(f"{_clock()} {step.job.name} begins: {shlex.join(command[2:])}", flush=True)
        with (runs / f"{step.job.name}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                status = process.wait(step.limit_s)
            except subprocess.TimeoutExpired:
                status = _interrupt(process)
            except BaseException:
                _interrupt(process)
                raise
        print(f"{_clock()} {step.job.name} ended with {status} after {time.time() - began:.0f} s", flush=True)


def _interrupt(process: subprocess.Popen[bytes]) -> int:
    """As Ctrl-C: the cell under way is given up, the others are kept."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(END_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def stop(runs: Path) -> None:
    """End the queues and what they started."""
    for path in runs.glob("queue-*.pid"):
        try:
            os.kill(int(path.read_text()), signal.SIGTERM)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + END_GRACE_S
    while any(_alive(path) for path in runs.glob("queue-*.pid")) and time.monotonic() < deadline:
        time.sleep(0.5)


def _alive(path: Path) -> bool:
    try:
        os.kill(int(path.read_text()), 0)
    except (ProcessLookupError, ValueError):
        return False
    stat = Path(f"/proc/{int(path.read_text())}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def status(runs: Path) -> None:
    """What is done and what is said last."""
    for path in sorted(runs.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-4:]
        print(f"== {path.name}", *(line[:160] for line in lines), sep="\n")
    for cells in sorted(runs.glob("*/cells")):
        states = [json.loads(cell.read_text()) for cell in sorted(cells.glob("*.json"))]
        failed = [one["key"]["arm"] for one in states if not one.get("load")]
        print(f"{cells.parent.name}: {len(states) - len(failed)} cells done, {len(failed)} failed")
    alive = [path.stem for path in runs.glob("queue-*.pid") if _alive(path)]
    print("running:", ", ".join(sorted(alive)) or "nothing")


def collect(runs: Path, out: Path, raw: bool) -> None:
    """`runs.tgz`: all runs without their raw records; with `raw` also those, in parts of at most 15 MiB."""
    out.mkdir(parents=True, exist_ok=True)
    skipped = {"raw", "work"}
    with tarfile.open(out / "runs.tgz", "w:gz") as archive:
        for path in sorted([*runs.glob("*.log"), *runs.glob("*/*")]):
            if path.name not in skipped:
                archive.add(path, str(path.relative_to(runs)))
    if raw:
        _split(out, sorted(runs.glob("*/raw/*.gz")), runs)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB {path.name}")


def _split(out: Path, files: Sequence[Path], runs: Path) -> None:
    parts: list[list[Path]] = [[]]
    size = 0
    for file in files:
        if size + file.stat().st_size + 1024 > PART_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.stat().st_size + 1024
    for number, part in enumerate(parts):
        with tarfile.open(out / f"raw-{number}.tar", "w") as archive:
            for file in part:
                archive.add(file, str(file.relative_to(runs)))


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse and call."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.h200", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["plan", "start", "work", "status", "stop", "collect"])
    parser.add_argument(
        "queues", nargs="*", default=DEFAULT, help="ACCELERATOR=JOB[@SECONDS][,JOB…]; `any` for no choice"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of the real weights' job")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of named prompt sets")
    parser.add_argument("--out", type=Path, default=Path("collected"))
    parser.add_argument("--raw", action="store_true")
    given = parser.parse_intermixed_args(argv)  # queues may follow options
    models = Path(os.environ.get("OUTRIDER_H200_MODELS", given.models)).absolute()
    data = Path(os.environ.get("OUTRIDER_DATA", given.data)).absolute()
    known, runs = jobs(models, data), given.runs.absolute()
    match given.action:
        case "plan":
            plan(known)
        case "start":
            for queue in given.queues:
                read_queue(queue, known)
            start(runs, given.queues)
        case "work":
            work(runs, given.queues[0], known)
        case "status":
            status(runs)
        case "stop":
            stop(runs)
        case "collect":
            collect(runs, given.out, given.raw)

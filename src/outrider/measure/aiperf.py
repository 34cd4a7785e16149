"""aiperf behind `LoadRunner`: start it, follow it, read what it left, leave nothing behind.

The run's folder keeps aiperf's log and summary; its raw export (17 KB a request) is read and deleted. The API key goes by the
environment, never by the command line or a file. What it takes is bounded: see `outrider.measure.bounds`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from outrider.core.errors import MeasurementError
from outrider.launch.process import die_with_parent
from outrider.measure.aiperf_input import CONFIG, INPUT, KEY_VARIABLE, OUTPUT, TOKENIZER, write_input
from outrider.measure.aiperf_program import INSTALL, VERSION, checked, environment, find_aiperf
from outrider.measure.aiperf_records import (
    AcceptanceOf,
    RawExport,
    ReadRecords,
    read_gpu_use,
    read_records,
)
from outrider.measure.bounds import MIB, Bounds, Watch, bounds_of, flood
from outrider.measure.load import GpuUse, LoadPlan, LoadResult

CONSOLE = "aiperf-console.log"
KEPT = {"profile_export_aiperf.json": "aiperf-summary.json", "logs/aiperf.log": "aiperf.log"}
TAIL_LINES = 15
GRACE_S = 8.0
POLL_S = 0.25
PIECE_BYTES = 4 * MIB  # of the progress file, read at once
LOG_BYTES = 16 * MIB  # of a log: its end is kept
TAIL_BYTES = 64 * 1024


Progress = Callable[[int, int], None]


class AiperfRunner:
    """Implements `LoadRunner`. Make one for a whole bench: finding the program is done once.

    `acceptance` reads what the engine's last chunk says of a request's drafts (``engine.request_acceptance``). `program` is
    aiperf's path, found by `find_aiperf` if None. `workers` bounds its sending processes; None: half the cores, 8 at most.
    `most_memory`: bytes that it may take of, as `bounds_of` takes `available`; None: what is free on the machine.
    """

    def __init__(
        self,
        acceptance: AcceptanceOf | None = None,
        *,
        program: Path | None = None,
        workers: int | None = None,
        most_memory: int | None = None,
    ) -> None:
        self._program = checked(program) if program else find_aiperf()
        self._acceptance = acceptance
        self._most_memory = most_memory
        self._workers = workers or max(1, min(8, (os.cpu_count() or 2) // 2))

    def run(self, plan: LoadPlan, folder: Path, progress: Progress) -> LoadResult:
        """Send the plan's requests. Failed ones, even all, are records with their outcome, not an exception.

        Raises MeasurementError: a plan that cannot be run, aiperf died or told nothing, a clock that jumped, an engine that
        tells no token counts, a server that sends so much more than was asked for that the machine would suffer. Whatever
        raises, aiperf and its processes are gone afterwards.
        """
        shutil.rmtree(folder / OUTPUT, ignore_errors=True)
        made = write_input(plan, folder)
        bounds = bounds_of(plan, self._processes(plan), self._most_memory)
        progress(0, plan.requests)
        try:
            status = self._execute(plan, folder, bounds, progress)
            export = RawExport(made.prompt_ids, self._acceptance, plan.timeout_s)
            with _raw_lines(folder / OUTPUT, bounds.answer) as lines:
                read = read_records(lines, export)
            self._judge(plan, read, status, folder)
            gpu = _gpu_use(folder / OUTPUT, read)
        finally:
            _tidy(folder, plan.api_key)
        progress(len(read.records), plan.requests)
        return LoadResult(
            records=read.records,
            began_s=read.records[0].started_s,
            ended_s=max(record.ended_s for record in read.records),
            generator=f"aiperf {VERSION}",
            gpu=gpu,
            warnings=read.warnings + _plan_warnings(plan, made.counted),
        )

    def _judge(self, plan: LoadPlan, read: ReadRecords, status: int, folder: Path) -> None:
        """Raises MeasurementError unless every request has its record and somebody counted tokens."""
        got = len(read.records)
        if got < plan.requests:
            tail = _scrubbed(_tail(folder / CONSOLE), plan.api_key)
            raise MeasurementError(
                f"the load generator ended with status {status} after {got} of {plan.requests} requests. "
                f"Its last lines:\n{tail}",
                hint=f"Its whole output is {CONSOLE} in the cell's folder. Run the bench again: finished cells are kept.",
            )
        good = [record for record in read.records if record.ok]
        if good and all(record.output_tokens is None for record in good):
            raise MeasurementError(
                "the server told no token counts: neither running usage nor one at the end",
                hint="Serve with an engine that honours `stream_options.include_usage`.",
            )

    def _processes(self, plan: LoadPlan) -> int:
        """Those that send and those that record."""
        workers = min(self._workers, plan.concurrency)
        return workers + max(1, workers // 4)

    def _argv(self, plan: LoadPlan) -> list[str]:
        workers = min(self._workers, plan.concurrency)
        gpu = ["--gpu-telemetry", "pynvml"] if _has_nvidia() else ["--no-gpu-telemetry"]
        return [
            *(str(self._program), "profile", "--config", CONFIG, "--artifact-dir", OUTPUT, "--ui", "none"),
            *("--use-server-token-count", "--per-chunk-usage", "--use-legacy-max-tokens"),
            *("--tokenizer", f"./{TOKENIZER}", "--export-level", "raw", "--no-server-metrics", *gpu),
            *("--workers-max", str(workers), "--record-processors", str(self._processes(plan) - workers)),
        ]

    def _execute(self, plan: LoadPlan, folder: Path, bounds: Bounds, progress: Progress) -> int:
        """Run it to its end; its exit status."""
        secret = {KEY_VARIABLE: plan.api_key} if plan.api_key is not None else {}
        with (
            tempfile.TemporaryDirectory(prefix="outrider-load-", ignore_cleanup_errors=True) as scratch,
            (folder / CONSOLE).open("wb") as console,
        ):
            # Written soon, so that progress is; its temporary files where they go even if it is killed.
            env = environment(TMPDIR=scratch, AIPERF_METRICS_EXPORT_FLUSH_INTERVAL="1", **secret)
            try:
                process = subprocess.Popen(  # noqa: S603  (checked above)
                    self._argv(plan),
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509  (one system call, nothing imported or allocated)
                )
            except OSError as error:
                raise MeasurementError(
                    f"the load generator cannot be started: {error}", hint=INSTALL
                ) from error
            try:
                return self._follow(process, plan, folder, Watch(process.pid, folder, bounds), progress)
            finally:
                _end(process)

    def _follow(
        self, process: subprocess.Popen[bytes], plan: LoadPlan, folder: Path, watch: Watch, progress: Progress
    ) -> int:
        rounds = (plan.requests + plan.warmup_requests) / plan.concurrency + 2
        deadline = time.monotonic() + rounds * plan.timeout_s + 300
        done = _Done(folder / OUTPUT / "profile_export.jsonl")
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_S)
            watch.check()
            if time.monotonic() > deadline:
                raise MeasurementError(
                    f"the load generator did not end: {done.requests} of {plan.requests} requests after every timeout had passed",
                    hint="Look at its output in the cell's folder, and run the bench again: finished cells are kept.",
                )
            if done.grew():
                progress(min(done.requests, plan.requests), plan.requests)


class _Done:
    """Counted requests that have ended, as the file says that aiperf writes on the way."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.requests = 0

    def grew(self) -> bool:
        """Read on, whole lines only; whether a counted request was among them."""
        before = self.requests
        with contextlib.suppress(OSError), self._path.open("rb") as source:
            source.seek(self._offset)
            piece = source.read(PIECE_BYTES)
            piece = piece[: piece.rfind(b"\n") + 1]
            self._offset += len(piece)
            self.requests += piece.count(b'"benchmark_phase":"profiling"')
        return self.requests > before


def _end(process: subprocess.Popen[bytes]) -> None:
    """No process of the group is left: asked first, killed after a grace period."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    # Also when the first process is gone: its workers may not be.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _raw_lines(output: Path, most: int) -> Iterator[Iterator[bytes]]:
    """The raw export's lines: the whole file, or what the processors wrote when aiperf did not gather them (all failed, died).

    The iterator raises MeasurementError for a line of more than `most` bytes.
    """
    whole = output / "profile_export_raw.jsonl"
    paths = [whole] if whole.exists() else sorted((output / "raw_records").glob("*.jsonl"))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        yield (line for file in files for line in _lines(file, most) if line.endswith(b"\n"))


def _lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    while line := file.readline(most + 1):
        if len(line) > most:
            raise flood("one answer is longer than any can be", most)
        yield line


def _gpu_use(output: Path, read: ReadRecords) -> GpuUse | None:
    try:
        with (output / "gpu_telemetry_export.jsonl").open("rb") as lines:
            return read_gpu_use((line for line in lines if line.strip()), read.wall_ns, _visible(os.environ))
    except FileNotFoundError:
        return None


def _visible(environ: Mapping[str, str]) -> frozenset[int] | None:
    """The accelerators of this process by index: NVML shows all, CUDA_VISIBLE_DEVICES hides some; None if it names none so."""
    named = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return frozenset(map(int, named)) if all(name.strip().isdigit() for name in named) else None


def _has_nvidia() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _plan_warnings(plan: LoadPlan, conversations: int) -> tuple[str, ...]:
    if conversations >= plan.concurrency:
        return ()
    return (f"concurrency {plan.concurrency} was never reached: there were {conversations} conversations",)


def _tail(path: Path) -> str:
    lines = _end_of(path, TAIL_BYTES).decode("utf-8", "replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])


def _end_of(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read(most)


def _scrubbed(text: str, key: str | None) -> str:
    return text.replace(key, "<key>") if key else text


def _tidy(folder: Path, key: str | None) -> None:
    """Keep the summary and the ends of logs, without the key should it be there; delete the rest."""
    output = folder / OUTPUT
    for name, kept in KEPT.items():
        with contextlib.suppress(FileNotFoundError):
            (output / name).replace(folder / kept)
    shutil.rmtree(output, ignore_errors=True)
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    (folder / INPUT).unlink(missing_ok=True)
    for path in folder.glob("aiperf*"):
        whole = path.stat().st_size <= LOG_BYTES
        content = _end_of(path, LOG_BYTES)
        kept_part = content if whole else content.partition(b"\n")[2]  # no half a line, nor half a key
        clean = kept_part.replace(key.encode(), b"<key>") if key else kept_part
        if clean != content:
            path.write_bytes(clean)

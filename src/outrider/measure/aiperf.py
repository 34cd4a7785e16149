"""aiperf behind `LoadRunner`: find it, start it, follow it, read what it left, leave nothing behind.

A program of its own in an environment of its own, because its pins and vLLM's do not meet. The run's folder keeps aiperf's log
and summary; its raw export (17 KB a request) is read and deleted. The API key goes by the environment, never by the command
line or a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from outrider.core.errors import MeasurementError
from outrider.launch.process import die_with_parent
from outrider.measure.aiperf_input import CONFIG, INPUT, KEY_VARIABLE, OUTPUT, TOKENIZER, write_input
from outrider.measure.aiperf_records import (
    AcceptanceOf,
    RawExport,
    ReadRecords,
    read_gpu_use,
    read_records,
)
from outrider.measure.load import GpuUse, LoadPlan, LoadResult

VERSION = "0.13.0"
PROGRAM_VARIABLE = "OUTRIDER_AIPERF"
CONSOLE = "aiperf-console.log"
KEPT = {"profile_export_aiperf.json": "aiperf-summary.json", "logs/aiperf.log": "aiperf.log"}
TAIL_LINES = 15
_SAYS_VERSION = re.compile(r"(?:aiperf\s+)?(?:version\s+)?(\d+\.\d+[\w.+-]*)", re.IGNORECASE)
GRACE_S = 8.0
POLL_S = 0.25
_INSTALL = (
    "Run `make bench-env` in Outrider's folder, or name the program: OUTRIDER_AIPERF=/path/to/bin/aiperf."
)


def find_aiperf(environ: Mapping[str, str] | None = None, here: Path | None = None) -> Path:
    """The program: $OUTRIDER_AIPERF, else ``.venv-bench`` in `here` (the current folder) or in the checkout, else PATH's.

    Raises MeasurementError: none found, or not version 0.13.0.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(PROGRAM_VARIABLE):
        return _checked(Path(named))
    for folder in (here or Path.cwd(), Path(__file__).parents[3]):
        if os.access(program := folder / ".venv-bench" / "bin" / "aiperf", os.X_OK):
            return _checked(program)
    if found := shutil.which("aiperf", path=environ.get("PATH")):
        return _checked(Path(found))
    raise MeasurementError("the load generator aiperf is not installed", hint=_INSTALL)


def _checked(program: Path) -> Path:
    try:
        asked = subprocess.run(  # noqa: S603  (the program the user named, or ours)
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(
            f"the load generator {program} cannot be run: {error}", hint=_INSTALL
        ) from error
    said = _SAYS_VERSION.fullmatch(asked.stdout.strip())
    if asked.returncode or said is None:
        words = (asked.stdout.strip() or asked.stderr.strip()).partition("\n")[0][:80]
        answer = f"it answers --version with {words!r}" if words else "it tells no version"
        raise MeasurementError(
            f"{program} is not the load generator aiperf {VERSION}: {answer}", hint=_INSTALL
        )
    if said[1] != VERSION:
        raise MeasurementError(
            f"the load generator {program} is aiperf {said[1]}; {VERSION} is needed, "
            "because its files are read by what that version writes",
            hint=_INSTALL,
        )
    return program.absolute()


def _environment(**more: str) -> dict[str, str]:
    """The environment without what would change aiperf: its own settings, offline switches, our Python's path."""
    dropped = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONPATH", "PYTHONHOME"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("AIPERF_")
    }
    return kept | more


class AiperfRunner:
    """Implements `LoadRunner`. Make one for a whole bench: finding the program is done once.

    `acceptance` reads what the engine's last chunk says of a request's drafts (``engine.request_acceptance``). `program` is
    aiperf's path, found by `find_aiperf` if None. `workers` bounds its sending processes; None: half the cores, 8 at most.
    """

    def __init__(
        self,
        acceptance: AcceptanceOf | None = None,
        *,
        program: Path | None = None,
        workers: int | None = None,
    ) -> None:
        self._program = _checked(program) if program else find_aiperf()
        self._acceptance = acceptance
        self._workers = workers or max(1, min(8, (os.cpu_count() or 2) // 2))

    def run(self, plan: LoadPlan, folder: Path, progress: Callable[[int, int], None]) -> LoadResult:
        """Send the plan's requests. Failed ones, even all, are records with their outcome, not an exception.

        Raises MeasurementError: a plan that cannot be run, aiperf died or told nothing, a clock that jumped, an engine that
        tells no token counts. Whatever raises, aiperf and its processes are gone afterwards.
        """
        shutil.rmtree(folder / OUTPUT, ignore_errors=True)
        made = write_input(plan, folder)
        progress(0, plan.requests)
        status = self._execute(plan, folder, progress)
        try:
            export = RawExport(made.prompt_ids, self._acceptance, plan.timeout_s)
            with _raw_lines(folder / OUTPUT) as lines:
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

    def _argv(self, plan: LoadPlan) -> list[str]:
        workers = min(self._workers, plan.concurrency)
        gpu = ["--gpu-telemetry", "pynvml"] if _has_nvidia() else ["--no-gpu-telemetry"]
        return [
            *(str(self._program), "profile", "--config", CONFIG, "--artifact-dir", OUTPUT, "--ui", "none"),
            *("--use-server-token-count", "--per-chunk-usage", "--use-legacy-max-tokens"),
            *("--tokenizer", f"./{TOKENIZER}", "--export-level", "raw", "--no-server-metrics", *gpu),
            *("--workers-max", str(workers), "--record-processors", str(max(1, workers // 4))),
        ]

    def _execute(self, plan: LoadPlan, folder: Path, progress: Callable[[int, int], None]) -> int:
        """Run it to its end; its exit status."""
        secret = {KEY_VARIABLE: plan.api_key} if plan.api_key is not None else {}
        with (
            tempfile.TemporaryDirectory(prefix="outrider-load-", ignore_cleanup_errors=True) as scratch,
            (folder / CONSOLE).open("wb") as console,
        ):
            # Written soon, so that progress is; its temporary files where they go even if it is killed.
            env = _environment(TMPDIR=scratch, AIPERF_METRICS_EXPORT_FLUSH_INTERVAL="1", **secret)
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
                    f"the load generator cannot be started: {error}", hint=_INSTALL
                ) from error
            try:
                return self._follow(process, plan, folder, progress)
            finally:
                _end(process)

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        plan: LoadPlan,
        folder: Path,
        progress: Callable[[int, int], None],
    ) -> int:
        rounds = (plan.requests + plan.warmup_requests) / plan.concurrency + 2
        deadline = time.monotonic() + rounds * plan.timeout_s + 300
        export, offset, done = folder / OUTPUT / "profile_export.jsonl", 0, 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_S)
            if time.monotonic() > deadline:
                raise MeasurementError(
                    f"the load generator did not end: {done} of {plan.requests} requests after every timeout had passed",
                    hint="Look at its output in the cell's folder, and run the bench again: finished cells are kept.",
                )
            with contextlib.suppress(OSError), export.open("rb") as source:
                source.seek(offset)
                piece = source.read()
                offset += len(piece)
                if ended := piece.count(b'"benchmark_phase":"profiling"'):
                    done = min(done + ended, plan.requests)
                    progress(done, plan.requests)


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
def _raw_lines(output: Path) -> Iterator[Iterator[bytes]]:
    """The raw export's lines: the whole file, or what the processors wrote when aiperf did not gather them (all failed, died)."""
    whole = output / "profile_export_raw.jsonl"
    paths = [whole] if whole.exists() else sorted((output / "raw_records").glob("*.jsonl"))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        yield (line for file in files for line in file if line.endswith(b"\n"))


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
    lines = path.read_text("utf-8", "replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])


def _scrubbed(text: str, key: str | None) -> str:
    return text.replace(key, "<key>") if key else text


def _tidy(folder: Path, key: str | None) -> None:
    """Keep log and summary, without the key should it be there; delete the rest."""
    output = folder / OUTPUT
    for name, kept in KEPT.items():
        with contextlib.suppress(FileNotFoundError):
            (output / name).replace(folder / kept)
    shutil.rmtree(output, ignore_errors=True)
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    (folder / INPUT).unlink(missing_ok=True)
    for path in folder.glob("aiperf*"):
        if key and key.encode() in (content := path.read_bytes()):
            path.write_bytes(content.replace(key.encode(), b"<key>"))

"""The trainer as a process of its own: started, listened to, stopped, and its end put into words.

Its standard output are events (`events.py`); what else it and its libraries print goes to ``trainer.log`` in the work folder.
Torch is imported there and nowhere here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from outrider.core.errors import TrainingError
from outrider.core.files import put_whole
from outrider.launch.process import die_with_parent
from outrider.train.events import Evaluated, Failed, Finished, Planned, TrainerEvent, from_line
from outrider.train.job import TRAIN_LOG, TrainJob
from outrider.train.requirements import AGAIN, INSTALL, MODULES, SMALLER
from outrider.train.rows import unwritable

JOB, LOG = "train_job.json", "trainer.log"
STOP_S = 120.0  # for a checkpoint of a large head on a slow disk
TAIL_LINES = 3
_ASK = "import sys; from importlib.util import find_spec; print(*(m for m in sys.argv[1:] if find_spec(m) is None))"


class TrainerFailed(TrainingError):
    """The trainer's own words on why there is no head; `kind` as in `events.Failed`, or ``killed``."""

    def __init__(self, kind: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """A training that ended with a head: its plan, the head after each epoch (earlier runs' too), and the end."""

    plan: Planned
    curve: tuple[Evaluated, ...]
    done: Finished


def train(job: TrainJob, say: Callable[[TrainerEvent], None], python: str = sys.executable) -> TrainSummary:
    """Train in a process of `python`, which has torch and Speculators; `say` hears each event as it comes.

    Leaves the head in `job.out`, whole or not at all. Interrupted, the process is given time for a checkpoint, and the next
    call of the same job goes on from there.

    Raises:
        TrainerFailed: refused, out of memory, disk full, killed, …: no head was written.
        TrainingError: something is not installed, or the process cannot be started.
    """
    check_installed(python)
    put_whole(
        job.work / JOB, job.model_dump_json(indent=1) + "\n", lambda error: unwritable(job.work / JOB, error)
    )
    plan: Planned | None = None
    last: TrainerEvent | None = None
    with _trainer(job, python) as (process, log):
        for event in _events(process, log):
            last = event
            if isinstance(event, Planned):
                plan = event
            if not isinstance(event, Failed):
                say(event)
        status = process.wait()
    if isinstance(last, Failed):
        raise TrainerFailed(last.kind, last.message, hint=last.hint)
    if status or plan is None or not isinstance(last, Finished):
        raise _silent_end(status, job.work / LOG)
    return TrainSummary(plan, read_curve(job.work / TRAIN_LOG), last)


def check_installed(python: str = sys.executable) -> None:
    """Look for the modules in a Python without importing them. Raises TrainingError, which names those that are missing."""
    if python == sys.executable:
        missing = [name for name in MODULES if find_spec(name) is None]
    else:
        try:
            asked = subprocess.run(  # noqa: S603  (the engine's Python, which the stack names)
                [python, "-c", _ASK, *MODULES], capture_output=True, text=True, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise TrainingError(f"{python} cannot be run: {error}", hint="Check `engine.python`.") from error
        missing = asked.stdout.split()
    if missing:
        raise TrainingError(f"training needs what is not there: {', '.join(missing)}", hint=INSTALL)


def read_curve(log: Path) -> tuple[Evaluated, ...]:
    """The head after each epoch, out of train_log.jsonl: of the last training that began in its folder, in all its runs."""
    curve: dict[int, Evaluated] = {}
    with suppress(OSError):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            event = from_line(line)
            if isinstance(event, Planned) and not event.resumed_steps:
                curve.clear()
            elif isinstance(event, Evaluated):
                curve.setdefault(event.step, event)
    return tuple(curve.values())


@contextmanager
def _trainer(job: TrainJob, python: str) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """The running process and its log; stopped, with time for a checkpoint, however this is left."""
    with ExitStack() as stack:
        try:
            log = stack.enter_context((job.work / LOG).open("ab"))
            env = stack.enter_context(_environment(python))
            process = subprocess.Popen(  # noqa: S603  (our module, in the engine's Python)
                [python, "-m", "outrider.train.trainer", str((job.work / JOB).resolve())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,  # Ctrl-C reaches it as our SIGTERM, once
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        except OSError as error:
            raise TrainingError(
                f"the trainer cannot be started: {error}",
                hint="Check `engine.python`, and that the work folder can be written.",
            ) from error
        try:
            yield process, log
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    if process.stdout:
        process.stdout.close()
    process.wait()


@contextmanager
def _environment(python: str) -> Iterator[Mapping[str, str]]:
    """Nothing is fetched from a hub; another Python finds this package, and nothing else of ours, by a link."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if Path(python) == Path(sys.executable):
        yield env
        return
    with tempfile.TemporaryDirectory(prefix="outrider-trainer-") as folder:
        (Path(folder) / "outrider").symlink_to(Path(__file__).parents[1])
        before = env.get("PYTHONPATH")
        yield {**env, "PYTHONPATH": f"{folder}{os.pathsep}{before}" if before else folder}


def _events(process: subprocess.Popen[bytes], log: BinaryIO) -> Iterator[TrainerEvent]:
    assert process.stdout is not None  # noqa: S101  (asked for)
    for raw in process.stdout:
        event = from_line(raw.decode("utf-8", "replace"))
        if event is not None:
            yield event
            continue
        with suppress(OSError):  # a disk without room for a library's chatter is the trainer's to tell
            log.write(raw)
            log.flush()


def _silent_end(status: int, log: Path) -> TrainerFailed:
    """The end of a process that did not say why."""
    if status == -signal.SIGKILL:
        return TrainerFailed(
            "killed",
            "the trainer was killed (SIGKILL): most likely the machine ran out of memory",
            hint=SMALLER,
        )
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    tail = " | ".join([line.strip() for line in lines if line.strip()][-TAIL_LINES:])
    return TrainerFailed(
        "killed", f"the trainer {how}: {tail or 'it said nothing'}", hint=f"Read {log.name}. {AGAIN}"
    )

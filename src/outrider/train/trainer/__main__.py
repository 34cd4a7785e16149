"""``python -m outrider.train.trainer JOB.json``: train one head; what happens is said in JSON lines on standard output.

SIGTERM and SIGINT write a checkpoint and end it. Exit status 0 with a head, 13 without one; the last line says why.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from outrider.core.errors import TrainingError
from outrider.train.events import TrainerEvent, to_line
from outrider.train.job import TrainJob, read_job
from outrider.train.trainer.failures import failure

LOCK = ".trainer.lock"


def main(arguments: list[str]) -> int:
    """Exit status."""
    began = time.monotonic()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    say = _Voice(sys.stdout, stop)
    try:
        job = read_job(Path(arguments[0]))
        with _locked(job):
            from outrider.train.trainer.training import train_head  # noqa: PLC0415  (seconds; and it may be missing)

            train_head(job, say, stop, began)
    except Exception as error:  # each is said in words
        traceback.print_exc(file=sys.stderr)
        say(failure(error))
        return TrainingError.exit_code
    return 0


class _Voice:
    """Prints events. When nobody listens any more, the training is told to stop."""

    def __init__(self, stream: TextIO, stop: threading.Event) -> None:
        self._stream, self._stop = stream, stop

    def __call__(self, event: TrainerEvent) -> None:
        try:
            self._stream.write(to_line(event) + "\n")
            self._stream.flush()
        except BrokenPipeError:
            self._stop.set()
            self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for the rest of this process)


def _locked(job: TrainJob) -> TextIO:
    """The work folder, held while the file is open. Raises TrainingError: another training has it."""
    job.work.mkdir(parents=True, exist_ok=True)
    handle = (job.work / LOCK).open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise TrainingError(
            f"another training is at work in {job.work.name}",
            hint="Wait for it, or train into another folder.",
        ) from None
    return handle


if __name__ == "__main__":
    status = main(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)  # no thread of a library keeps a process alive that has said its last line

"""Programs that run a whole engine, one at a time on this machine, with nothing left of them."""

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT_S = 900.0


def run_alone(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run it to its end; what it wrote, to standard output and then to standard error.

    An engine's processes outlive their parent when that is killed, with gigabytes: all of them go, also after `LIMIT_S`.
    """
    lock = Path(tempfile.gettempdir()) / "outrider-engine.lock"
    with lock.open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            return "".join(process.communicate(timeout=LIMIT_S))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

"""aiperf's program: where it is looked for, which version it must be, the environment it runs in.

A program of its own in an environment of its own, because its pins and vLLM's do not meet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outrider.core.errors import MeasurementError

VERSION = "0.13.0"
PROGRAM_VARIABLE = "OUTRIDER_AIPERF"
INSTALL = (
    "Run `make bench-env` in Outrider's folder, or name the program: OUTRIDER_AIPERF=/path/to/bin/aiperf."
)
_SAYS_VERSION = re.compile(r"(?:aiperf\s+)?(?:version\s+)?(\d+\.\d+[\w.+-]*)", re.IGNORECASE)


def find_aiperf(environ: Mapping[str, str] | None = None, here: Path | None = None) -> Path:
    """The program: $OUTRIDER_AIPERF, else ``.venv-bench`` in `here` (the current folder) or in the checkout, else PATH's.

    Raises MeasurementError: none found, or not version 0.13.0.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(PROGRAM_VARIABLE):
        return checked(Path(named))
    for folder in (here or Path.cwd(), Path(__file__).parents[3]):
        if os.access(program := folder / ".venv-bench" / "bin" / "aiperf", os.X_OK):
            return checked(program)
    if found := shutil.which("aiperf", path=environ.get("PATH")):
        return checked(Path(found))
    raise MeasurementError("the load generator aiperf is not installed", hint=INSTALL)


def checked(program: Path) -> Path:
    """The program, if it is aiperf of this version. Raises MeasurementError."""
    try:
        asked = subprocess.run(  # noqa: S603  (the program the user named, or ours)
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(
            f"the load generator {program} cannot be run: {error}", hint=INSTALL
        ) from error
    said = _SAYS_VERSION.fullmatch(asked.stdout.strip())
    if asked.returncode or said is None:
        words = (asked.stdout.strip() or asked.stderr.strip()).partition("\n")[0][:80]
        answer = f"it answers --version with {words!r}" if words else "it tells no version"
        raise MeasurementError(
            f"{program} is not the load generator aiperf {VERSION}: {answer}", hint=INSTALL
        )
    if said[1] != VERSION:
        raise MeasurementError(
            f"the load generator {program} is aiperf {said[1]}; {VERSION} is needed, "
            "because its files are read by what that version writes",
            hint=INSTALL,
        )
    return program.absolute()


def environment(**more: str) -> dict[str, str]:
    """The environment without what would change aiperf: its own settings, offline switches, our Python's path."""
    dropped = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONPATH", "PYTHONHOME"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("AIPERF_")
    }
    return kept | more

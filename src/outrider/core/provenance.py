"""Where a number comes from: versions, hardware, the command; paths and secrets redacted.

A result without its provenance cannot be repeated, and one that names a home folder or a token cannot be published.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

_SECRET = re.compile(
    r"(?i)\b(hf_\w{8,}|sk-[\w-]{8,}|bearer\s+\S+)|((?:token|secret|password|api[-_]?key)[=: ]+)\S+"
)
_PATH = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?(?:/[^/\s'\",;:]+)+/?")
_PROXY = re.compile(r"(\w+://)[^/@\s]+@")


def redact(text: str) -> str:
    """The text with every folder reduced to ``…/last-part`` and what looks like a secret to ``<redacted>``."""
    return _redact(text, relative=False)


def _redact(text: str, *, relative: bool) -> str:
    """`relative`: paths below or beside the working folder stay; they tell nothing of the machine."""

    def path(match: re.Match[str]) -> str:
        if relative and match[0].startswith("."):
            return match[0]
        return f"…/{match[0].rstrip('/').rsplit('/', 1)[-1]}"

    text = _PROXY.sub(r"\1<redacted>@", text)
    text = _SECRET.sub(lambda match: f"{match[2] or ''}<redacted>", text)
    return _PATH.sub(path, text)


def command_line(command: Sequence[str]) -> str:
    """The command as it is pasted into a shell: quoted, relative paths as typed, absolute ones and secrets redacted."""
    return shlex.join(_redact(part, relative=True) for part in command)


def version_of(distribution: str) -> str | None:
    """An installed distribution's version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def hardware() -> dict[str, object]:
    """Processor, cores this process may use, memory (GiB), accelerators by name. Never raises."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "accelerators": _accelerators(),
    }


def program() -> dict[str, str | None]:
    """Which Outrider this is: version, and commit of the checkout."""
    return {"outrider": version_of("outrider"), "commit": _commit()}


def provenance(command: Sequence[str], created: str) -> dict[str, object]:
    """All that is known of this machine and program; the caller adds engine, weights and data.

    `created` is the time in ISO 8601, UTC.
    """
    return {
        "created": created,
        **program(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "command": command_line(command),
        "hardware": hardware(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _output(*command: str) -> str:
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603  (our own words, no shell)
            [program, *command[1:]], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _accelerators() -> list[str]:
    rows = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return [row.strip() for row in rows.splitlines() if row.strip()]


def _commit() -> str | None:
    """The checkout this program runs from, with ``-dirty`` if its code differs; None for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    commit = _output("git", "-C", str(root), "rev-parse", "--short=12", "HEAD").strip()
    status = ("status", "--porcelain", "--untracked-files=no", "--", "src", "plugin")
    changed = _output("git", "-C", str(root), *status).strip()
    return f"{commit}-dirty" if commit and changed else commit or None

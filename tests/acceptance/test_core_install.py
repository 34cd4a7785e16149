"""The core distribution installs by itself."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
pytestmark = pytest.mark.acceptance


def test_the_core_installs_and_helps_without_torch_or_vllm(tmp_path: Path) -> None:
    """A wheel in an empty environment: no torch, no vLLM, every command's --help, and `check` on the built-in stack."""
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, REPO], check=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    wheel = next(wheels.glob("outrider-*.whl"))
    subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", wheel], check=True
    )
    listed = subprocess.run(
        [python, "-m", "pip", "list"], check=True, capture_output=True, text=True
    ).stdout.lower()
    assert not [name for name in ("torch", "vllm", "transformers") if f"\n{name} " in listed]
    for command in ("serve", "check", "plan", "weights", "key"):
        subprocess.run([venv / "bin" / "outrider", command, "--help"], check=True, capture_output=True)
    subprocess.run([venv / "bin" / "outrider", "check", "--offline"], check=True, capture_output=True)

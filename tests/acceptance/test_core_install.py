"""The core distribution installs by itself."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from outrider.stack.head_rows import BUILT_IN_HEADS
from outrider.stack.load import built_in_text, load_stack

REPO = Path(__file__).parents[2]
pytestmark = pytest.mark.acceptance


def test_the_core_installs_and_helps_without_torch_or_vllm(tmp_path: Path) -> None:
    """A wheel in an empty environment: no torch, no vLLM, every command's --help, and the built-in stack with its head."""
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, REPO], check=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    wheel = next(wheels.glob("outrider-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    heads = [path.name for path in BUILT_IN_HEADS.iterdir() if path.is_dir()]
    files = ("config.json", "model.safetensors", "rows.json", "pair.json")
    assert heads
    assert names >= {f"outrider/data/heads/{head}/{file}" for head in heads for file in files}
    subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", wheel], check=True
    )
    listed = subprocess.run(
        [python, "-m", "pip", "list"], check=True, capture_output=True, text=True
    ).stdout.lower()
    assert not [name for name in ("torch", "vllm", "transformers") if f"\n{name} " in listed]

    def outrider(*command: str) -> str:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        program = venv / "bin" / "outrider"
        return subprocess.run(
            [program, *command], check=True, capture_output=True, text=True, env=environ
        ).stdout

    for command in ("serve", "check", "plan", "weights", "key"):
        outrider(command, "--help")
    assert f"with draft {load_stack(None).draft.method}" in outrider("check", "--offline")
    assert "every hash is the pair's" in outrider("pair", "verify")
    elsewhere = yaml.safe_load(built_in_text())
    elsewhere["engine"]["python"] = sys.executable  # the engine stands in another environment
    stack = tmp_path / "elsewhere.yaml"
    stack.write_text(yaml.safe_dump(elsewhere))
    assert '"model": "' in outrider("plan", str(stack)).partition("--speculative-config")[2]

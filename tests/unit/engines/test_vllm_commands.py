"""`outrider plan` and `outrider weights` with an environment that only looks like it has vLLM."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.plan import KEY_PLACEHOLDER, plan_command
from outrider.cli.weights import weights_command
from outrider.core.errors import StackError
from outrider.engines.vllm.adapter import VllmEngine
from tests.unit.engines.vllm_stacks import CPU, environment

STACK = """
apiVersion: outrider/v1alpha1
target: {{model: {model}, served_name: "it's mine"}}
draft: {{method: ngram}}
engine: {{python: {python}, extra_args: {extra}}}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that could be a model."""
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    return folder


def stack_file(tmp_path: Path, model: Path, extra: str = "{}") -> str:
    """A stack of that model for a vLLM 0.31 of CUDA, which is found and was not tried."""
    path = tmp_path / "stack.yaml"
    path.write_text(STACK.format(model=model, python=environment(tmp_path, {"vllm": "0.31.0"}), extra=extra))
    return str(path)


def test_plan_can_be_pasted(tmp_path: Path, model: Path) -> None:
    """The text, read as a shell does, is environment and argv exactly as `--json` has them, and a key to choose."""
    path = stack_file(tmp_path, model)
    exact = json.loads(CliRunner().invoke(plan_command, [path, "--json"]).stdout)
    words = shlex.split(CliRunner().invoke(plan_command, [path]).stdout.replace("\\\n", " "))
    settings = [f"{name}={value}" for name, value in exact["env"].items()] + [
        f"VLLM_API_KEY={KEY_PLACEHOLDER}"
    ]
    assert words == [*settings, *exact["argv"]]
    assert {str(model), "it's mine"} <= set(words)


def test_plan_warns_beside_the_command(tmp_path: Path, model: Path) -> None:
    """Warnings go to stderr, so that stdout is the command and nothing else."""
    result = CliRunner().invoke(plan_command, [stack_file(tmp_path, model)])
    assert "warning" in result.stderr
    assert "tried" in result.stderr
    assert "tried" not in result.stdout


def test_plan_says_why_no_request_can_have_another_draft(tmp_path: Path, model: Path) -> None:
    """docs/govern.md sends people here; `--json` has the reason too."""
    why = "outrider-vllm is not installed beside vllm"
    result = CliRunner().invoke(plan_command, [stack_file(tmp_path, model), "--json"])
    assert f"note: no request can have another draft than the stack's: {why}" in result.stderr
    assert json.loads(result.stdout)["notes"] == {"drafts": why}


def test_plan_of_a_refused_stack_gives_every_reason(tmp_path: Path, model: Path) -> None:
    """A stack that cannot be started has no command: all its errors are raised at once."""
    path = stack_file(tmp_path, model, "{host: x, port: 1}")
    result = CliRunner().invoke(plan_command, [path])
    assert isinstance(result.exception, StackError)
    assert [problem.rule for problem in result.exception.problems] == ["extra-arg-refused"] * 2
    assert {(problem.file, problem.line) for problem in result.exception.problems} == {(path, 5)}
    assert not result.stdout


def test_plan_for_another_device_is_printed_with_a_warning(tmp_path: Path, model: Path) -> None:
    """A stack for the other device than the build here gets its command, for that device, and a warning with its line."""
    path = Path(stack_file(tmp_path, model))
    path.write_text(path.read_text().replace("{python:", "{device: cpu, python:").replace("ngram", "none"))
    result = CliRunner().invoke(plan_command, [str(path)])
    assert result.exit_code == 0, result.exception
    assert f"{path}:5:10: warning: engine.device:" in result.stderr
    assert "--kv-cache-memory-bytes" in result.stdout


@pytest.mark.parametrize("dtype", ["", ", dtype: bfloat16"])
def test_plan_on_a_cpu_without_bf16(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """`auto` is float32 in the command, which a note says; a type that the stack names stays, and is no word worth."""
    install = replace(CPU, bf16=False)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: install)
    path = Path(stack_file(tmp_path, model))
    path.write_text(path.read_text().replace('mine"', f'mine"{dtype}'))
    result = CliRunner().invoke(plan_command, [str(path)])
    assert f"--dtype {'bfloat16' if dtype else 'float32'} " in result.stdout
    assert ("note: this CPU does not multiply bf16: float32" in result.stderr) != bool(dtype)


def test_plan_for_a_gpu_does_not_look_at_this_cpu(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack for the other device than the build here keeps `auto`."""
    install = replace(CPU, version="0.26.0", bf16=False)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: install)
    path = Path(stack_file(tmp_path, model))
    path.write_text(path.read_text().replace("{python:", "{device: cuda, python:"))
    result = CliRunner().invoke(plan_command, [str(path)])
    assert "--dtype auto " in result.stdout
    assert "float32" not in result.stderr


def test_weights_prints_what_the_engine_loads(tmp_path: Path, model: Path) -> None:
    """A folder that needs no work is printed as it is."""
    result = CliRunner().invoke(weights_command, [stack_file(tmp_path, model)])
    assert re.sub(r"\s+$", "", result.stdout) == str(model)


def test_plan_of_two_engines_shows_both_commands(tmp_path: Path, model: Path) -> None:
    """The same target on the next port, with half of the memory each, and the draft in the first alone; as JSON too."""
    path = Path(stack_file(tmp_path, model))
    path.write_text(path.read_text() + "policy: {plain_engine: true}\n")
    told = json.loads(CliRunner().invoke(plan_command, [str(path), "--json"]).stdout)
    own, plain = told["argv"], told["plain_engine"]["argv"]
    start = own.index("--speculative-config")
    expected = own[:start] + own[start + 4 :]
    expected[expected.index("8001")] = "8002"
    assert plain == expected
    assert own[own.index("--gpu-memory-utilization") + 1] == "0.45"
    result = CliRunner().invoke(plan_command, [str(path)])
    first, second = result.stdout.split("\n# the plain engine beside it\n")
    assert "--speculative-config" in first
    assert "--speculative-config" not in second
    assert "no request can have another draft" not in result.stderr

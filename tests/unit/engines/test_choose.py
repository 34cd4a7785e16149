"""Which adapter a stack gets, and that nothing is started with one that was never run."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from outrider.cli.bench import bench_command
from outrider.cli.check import check_command
from outrider.cli.forecast import forecast_command
from outrider.cli.plan import KEY_PLACEHOLDER, plan_command
from outrider.cli.serve import serve_command
from outrider.cli.train import train_command
from outrider.cli.tune import tune_command
from outrider.core.errors import UnsupportedFeature
from outrider.engines.choose import engine_of, startable
from outrider.stack.models import Engine
from tests.unit.engines.vllm_stacks import stack

NAMES = ("vllm", "sglang", "tensorrt-llm")
STARTING = (serve_command, bench_command, tune_command, forecast_command, train_command)


@pytest.fixture(params=NAMES[1:])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The stack of an engine that is not started, with a model that could be one."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"x")
    file = tmp_path / "stack.yaml"
    file.write_text(
        f'apiVersion: outrider/v1alpha1\ntarget: {{model: {model}, served_name: "it\'s mine"}}\n'
        f"draft: {{method: ngram}}\nengine: {{name: {request.param}}}\n"
    )
    return file


def test_every_name_of_the_stack_has_its_adapter() -> None:
    """And no more: a name that the schema takes is planned."""
    assert set(Engine.model_json_schema()["properties"]["name"]["enum"]) == set(NAMES)
    for name in NAMES:
        assert engine_of(stack(engine={"name": name})).name == name
    assert startable(stack()).name == "vllm"


@pytest.mark.parametrize("command", STARTING, ids=lambda command: str(command.name))
def test_nothing_is_started_with_it(command: click.Command, path: Path) -> None:
    """Refused with what knows the engine; nothing is looked for, fetched or written first."""
    options = ["--acceptance", "none=1"] if command is forecast_command else []
    with pytest.raises(UnsupportedFeature, match="only `plan`, `check` and `render` know") as refused:
        CliRunner().invoke(command, [str(path), *options], catch_exceptions=False, standalone_mode=False)
    assert refused.value.exit_code == 11
    assert "outrider render" in refused.value.hint
    assert sorted(each.name for each in path.parent.iterdir()) == ["model", "stack.yaml"]


def test_plan_can_be_pasted(path: Path, tmp_path: Path) -> None:
    """A shell makes of it the files and the argv that `--json` has, with a key to choose where the engine asks for one."""
    exact = json.loads(CliRunner().invoke(plan_command, [str(path), "--json"]).stdout)
    text = CliRunner().invoke(plan_command, [str(path)]).stdout
    *files, command = text.rpartition("END\n") if "END\n" in text else ("", text)
    words = shlex.split(command.replace("\\\n", " "))
    argv = [KEY_PLACEHOLDER if word == "$(SGLANG_API_KEY)" else word for word in exact["argv"]]
    assert words == [*(f"{name}={value}" for name, value in exact["env"].items()), *argv]
    folder = tmp_path / "shell"
    folder.mkdir()
    subprocess.run(["/bin/sh", "-c", "".join(files)], cwd=folder, check=True)
    assert {each.name: each.read_text() for each in folder.iterdir()} == exact.get("files", {})


def test_check_says_that_it_was_never_run(path: Path) -> None:
    """The engine's side is judged without the engine."""
    done = CliRunner().invoke(check_command, [str(path), "--json"])
    assert "engine-not-run" in done.stdout

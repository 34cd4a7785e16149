"""`outrider train`'s command line: what cannot be is said before anything is written, fetched or started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

from outrider.cli import train as command
from outrider.core.errors import TrainingError
from outrider.engines.vllm.adapter import VllmEngine
from outrider.train import run
from tests.unit.pairs import write_target


class Started(Exception):
    """An engine would be started now."""


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of a small target, and an engine that is there but must not be started."""

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(command, "startable", lambda loaded: VllmEngine())
    monkeypatch.setattr(command, "check_installed", lambda python: None)
    monkeypatch.setattr(
        VllmEngine, "find", lambda self, loaded: SimpleNamespace(python="python", device="cpu")
    )
    monkeypatch.setattr(run, "prepare", lambda *_: None)
    monkeypatch.setattr(run, "_running", start)
    write_target(tmp_path / "target")
    path = tmp_path / "stack.yaml"
    path.write_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: ./target, max_context_tokens: 2048}\n"
        "draft: {method: none}\nengine: {device: cpu}\n"
    )
    return path


def train(stack: Path, *more: object) -> Result:
    """`outrider train STACK --out … MORE`."""
    out = ("--out", stack.parent / "out")
    return CliRunner().invoke(command.train_command, [str(one) for one in (stack, *out, *more)])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("epoch_count=3", "epoch_count"),
        ("learning_rate=abc", "learning_rate"),
        ("learning_rate=-1", "learning_rate"),
        ("learning_rate=NaN", "learning_rate"),
        ("seed=99999999999999999999999999", "seed"),
        ("epochs=" + "[" * 100_000, "epochs"),
        ("method=p-eagle", "method"),
        ("target=/elsewhere", "target"),
        ("out=/elsewhere", "out"),
    ],
)
@pytest.mark.parametrize("backend", ["speculators", "specforge"])
def test_settings_are_judged_before_anything_is_made(
    stack: Path, option: str, said: str, backend: str
) -> None:
    """In one line of words, for either backend, and the folder is not begun."""
    result = train(stack, "--backend", backend, "--option", option)
    assert isinstance(result.exception, TrainingError), result.exception
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert "pydantic" not in str(result.exception)
    assert not (stack.parent / "out").exists()


@pytest.mark.parametrize("options", [("loss=ce",), ("depth=abc",), ("layers=0",)])
def test_what_specforge_cannot_be_told_is_said_first(stack: Path, options: tuple[str, ...]) -> None:
    """Not after the target wrote and answered all prompts."""
    result = train(stack, "--backend", "specforge", *(word for one in options for word in ("--option", one)))
    assert isinstance(result.exception, TrainingError), result.exception
    assert not (stack.parent / "out").exists()


@pytest.mark.parametrize("twice", [("--epochs", 3, "--option", "epochs=5"), ("--option", "loss=ce") * 2])
def test_a_setting_is_given_once(stack: Path, twice: tuple[object, ...]) -> None:
    """One of the two would be passed over in silence."""
    result = train(stack, *twice)
    assert result.exit_code == click.UsageError.exit_code, result.exception
    assert "given twice" in result.output


@pytest.mark.parametrize("option", ["--answer-temperature", "--minutes"])
def test_nan_is_within_no_range(stack: Path, option: str) -> None:
    """It is neither below nor above a limit."""
    result = train(stack, option, "nan")
    assert result.exit_code == click.UsageError.exit_code, result.exception


@pytest.mark.parametrize("source", ["nowhere.jsonl", "", ".", "../wrong.jsonl"])
def test_a_source_of_no_use_is_said_before_the_engine_starts(
    stack: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the folder is not begun with it: the right one is taken then."""
    (stack.parent / "empty").mkdir()
    (stack.parent / "wrong.jsonl").write_text('{"label": 1}\n')
    monkeypatch.chdir(stack.parent / "empty")
    result = train(stack, "--data", source)
    assert isinstance(result.exception, TrainingError), result.exception
    mine = stack.parent / "mine.jsonl"
    mine.write_text('{"prompt": "What is a draft?"}\n')
    assert isinstance(train(stack, "--data", mine).exception, Started)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--data", "mine.jsonl"), "sources"),
        (("--conversations", 7), "conversations"),
        (("--system", "Be brief."), "system"),
        (("--answer-tokens", 99), "max_answer_tokens"),
    ],
)
def test_rows_of_another_head_are_as_they_are(stack: Path, options: tuple[object, ...], named: str) -> None:
    """What is asked of them is held against how they were made, not passed over; the same again passes."""
    assert isinstance(train(stack, "--conversations", 8).exception, Started)
    donor, other = stack.parent / "out", stack.parent / "other"
    same = train(stack, "--conversations", 8, "--rows-of", donor, "--out", other)
    assert isinstance(same.exception, TrainingError)
    assert "no complete conversations" in str(same.exception)
    result = train(stack, "--rows-of", donor, "--out", other, *options)
    assert isinstance(result.exception, TrainingError)
    assert f"{named} differ" in str(result.exception)


def test_a_folder_without_conversations_has_no_rows(stack: Path) -> None:
    """The folder is named, and what it should be."""
    result = train(stack, "--rows-of", stack.parent / "target")
    assert isinstance(result.exception, TrainingError)
    assert "holds no conversations" in str(result.exception)
    assert "Errno" not in str(result.exception)


@pytest.mark.parametrize("text", ["null", "[]", "5", "{", "[" * 100_000])
def test_a_damaged_record_of_the_data_is_named(stack: Path, text: str) -> None:
    """`data.json` of a folder that something else wrote to."""
    work = stack.parent / "out" / "work"
    work.mkdir(parents=True)
    (work / "data.json").write_text(text)
    result = train(stack)
    assert isinstance(result.exception, TrainingError), result.exception
    assert "data.json cannot be read" in str(result.exception)


def test_a_folder_s_name_may_be_too_long(stack: Path) -> None:
    """What the system says of it, as an error of the training."""
    result = train(stack, "--out", stack.parent / ("x" * 300))
    assert isinstance(result.exception, TrainingError), result.exception


def test_stopped_it_says_how_to_go_on(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with the folder and what to do, not with silence."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_running", interrupted)
    result = train(stack)
    assert f"stopped; the same command goes on in {stack.parent / 'out'}\n" in result.stderr


def test_what_is_printed_to_serve_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path where the name alone would not be found, as after `make train-demo`."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert command.called(".venv/bin/outrider") == ".venv/bin/outrider"
    assert command.called("/lib/outrider/__main__.py") == "outrider"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/outrider")
    assert command.called(".venv/bin/outrider") == "outrider"

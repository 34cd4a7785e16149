"""`outrider front` refuses what it cannot do before it listens."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.front import front_command
from outrider.core.errors import OutriderError, StackError
from outrider.stack.load import load_keys

STACK = "apiVersion: outrider/v1alpha1\ntarget: {model: org/model}\ndraft: {method: ngram}\n"


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack without keys."""
    path = tmp_path / "stack.yaml"
    path.write_text(STACK)
    return path


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("gpu-1", "is not HOST:PORT"),
        ("gpu-1:0", "is not HOST:PORT"),
        ("gpu-1:http", "is not HOST:PORT"),
        (":8000", "is not HOST:PORT"),
        ("fast=gpu-1:8000", "there is no lane 'fast'; lanes: interactive, batch"),
    ],
)
def test_a_place_that_is_none_is_a_usage_error(stack: Path, engine: str, words: str) -> None:
    """Exit 2, with the form it should have."""
    done = CliRunner().invoke(front_command, [str(stack), "--engine", engine])
    assert done.exit_code == 2
    assert words in done.output


def test_an_open_door_needs_keys(stack: Path) -> None:
    """As `serve`: an address that others reach, and no key."""
    with pytest.raises(StackError, match="Refusing to listen"):
        CliRunner().invoke(
            front_command, [str(stack), "--engine", "h:8000", "--host", "192.0.2.1"], catch_exceptions=False
        )


def test_made_up_parts_are_not_served_unasked(stack: Path) -> None:
    """A forecast is no service, in a cluster neither."""
    stack.write_text(STACK + "forecast: {dummy_weights: true}\n")
    with pytest.raises(StackError, match="cannot be served"):
        CliRunner().invoke(front_command, [str(stack), "--engine", "h:8000"], catch_exceptions=False)


def test_keys_come_out_of_a_file(tmp_path: Path) -> None:
    """A list like `serve.keys`; anything else is refused without repeating it."""
    path = tmp_path / "keys.yaml"
    path.write_text(f"- {{name: a, sha256: {'0a' * 32}}}\n- {{name: b, sha256: {'0b' * 32}, lane: batch}}\n")
    assert [(key.name, key.lane) for key in load_keys(path)] == [("a", "interactive"), ("b", "batch")]
    for text in (
        "- {name: a, sha256: or-secret}",
        "keys: or-secret",
        "or-secret",
        "- or-secret",
        "[",
        "\x00",
    ):
        path.write_text(text)
        with pytest.raises(OutriderError) as refused:
            load_keys(path)
        assert "or-secret" not in str(refused.value)
    with pytest.raises(OutriderError, match="cannot be used"):
        load_keys(tmp_path / "none.yaml")

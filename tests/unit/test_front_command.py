"""`outrider front` refuses what it cannot do before it listens."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.front import front_command, governed_lanes, pools
from outrider.control.discovery import Place
from outrider.core.errors import OutriderError, StackError
from outrider.stack.load import load_keys, load_stack_text
from outrider.stack.models import Stack

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


def test_one_address_is_in_one_pool(stack: Path) -> None:
    """An engine has the draft or has it not."""
    both = ["--engine", "gpu-1:8000", "--plain-engine", "gpu-1:8000"]
    done = CliRunner().invoke(front_command, [str(stack), *both])
    assert done.exit_code == 2
    assert "gpu-1:8000 is named with the draft, too" in done.output


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


def stack_with(draft: str = "ngram", policy: str = "on") -> Stack:
    """A stack of this draft."""
    return load_stack_text(
        f"apiVersion: outrider/v1alpha1\ntarget: {{model: org/model}}\ndraft: {{method: {draft}}}\npolicy: {policy}\n",
        "x",
    )


BATCH, INTERACTIVE = frozenset({"batch"}), frozenset({"interactive"})


@pytest.mark.parametrize(
    ("drafting", "plain", "lanes"),
    [
        ([Place("a", 1)], [Place("b", 1)], INTERACTIVE | BATCH),
        ([Place("a", 1)], [Place("b", 1, INTERACTIVE)], INTERACTIVE),
        ([Place("a", 1, INTERACTIVE), Place("c", 1, BATCH)], [Place("b", 1, INTERACTIVE)], INTERACTIVE),
        ([Place("a", 1, INTERACTIVE), Place("c", 1, BATCH, "none")], [Place("b", 1)], INTERACTIVE),
        ([Place("a", 1, INTERACTIVE)], [Place("b", 1, BATCH)], frozenset()),
        ([Place("a", 1)], [], frozenset()),
    ],
)
def test_a_lane_with_both_pools_is_governed(
    drafting: list[Place], plain: list[Place], lanes: frozenset[str]
) -> None:
    """And no other: a lane all of whose engines run without a draft has no choice."""
    assert governed_lanes(stack_with(), drafting, plain) == lanes
    for nothing in (stack_with("none"), stack_with(policy="off")):
        assert governed_lanes(nothing, drafting, plain) == frozenset()


def test_each_pool_runs_one_draft_whatever_is_in_force() -> None:
    """Governed: the stack's draft or `off`, in lanes without a choice too. Not governed: what is in force, or `none`."""
    drafting, plain = [Place("a", 1), Place("c", 1, BATCH, "none")], [Place("b", 1, INTERACTIVE)]
    assert [one.draft for one in pools(stack_with(), drafting, plain, INTERACTIVE)] == [
        "ngram",
        "none",
        "off",
    ]
    assert [one.draft for one in pools(stack_with(), drafting, plain, frozenset())] == [None, "none", "none"]

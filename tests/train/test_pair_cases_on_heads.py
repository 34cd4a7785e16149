"""The field's `pair-*` cases on heads as our trainer leaves them: a defect is put into a good head, and found by its name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from outrider.cli.check import check_command
from outrider.cli.pair import pair_command
from outrider.core.errors import EngineNotInstalled
from outrider.engines.vllm.adapter import VllmEngine
from tests.unit.pairs import Tensors, safetensors, write_head, write_stack, write_target

CONTEXT = 40960


@pytest.fixture(autouse=True)
def own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine: the pair's side alone; a cache of its own."""

    def find(self: VllmEngine, stack: object) -> None:
        raise EngineNotInstalled("no vLLM here")

    monkeypatch.setattr(VllmEngine, "find", find)
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["written", "exported"])
def head(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A head that is right, and its target beside it: in the trainer's form, and by the trainer's own export."""
    if request.param == "written":
        return write_head(tmp_path / "head", write_target(tmp_path / "target"))
    return exported(tmp_path)


def exported(folder: Path) -> Path:
    """An untrained head as the trainer builds and writes it."""
    pytest.importorskip("speculators", reason="the trainer's libraries are not installed: make train-env")
    import torch

    from outrider.train.job import TrainJob
    from outrider.train.trainer.export import export
    from outrider.train.trainer.head import build_head
    from outrider.train.trainer.target import Target
    from outrider.train.vocabulary import choose_vocabulary
    from tests.train import tiny

    place = tiny.write_target(folder / "target")
    target = Target(place, "cpu", torch.bfloat16)
    target.watch((1, 2, 4))
    job = TrainJob(
        method="eagle3",
        target=place,
        target_name="tiny",
        rows=(folder / "rows.jsonl",),
        out=folder,
        work=folder,
    )
    vocabulary = choose_vocabulary(dict.fromkeys(range(3, 40), 1), 37, tiny.VOCABULARY)
    export(build_head(job.settled("cpu"), target, vocabulary, None), folder / "head")
    return folder / "head"


def config_of(folder: Path) -> dict[str, Any]:
    """A folder's config."""
    value: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return value


def change_config(folder: Path, *removed: str, **changes: object) -> None:
    """Other members in a config; those of the head's layer by their own names."""
    config = config_of(folder)
    layer = config.get("transformer_layer_config", {})
    for name, value in changes.items():
        (layer if name in layer else config)[name] = value
    for name in removed:
        config.pop(name)
    (folder / "config.json").write_text(json.dumps(config))


def tensors_of(folder: Path) -> Tensors:
    """Everything in a head's file, read plainly."""
    raw = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    entries = json.loads(raw[8 : 8 + length])
    entries.pop("__metadata__", None)
    data = raw[8 + length :]
    return {
        name: (one["dtype"], tuple(one["shape"]), data[slice(*one["data_offsets"])])
        for name, one in entries.items()
    }


def change_tensors(folder: Path, change: Callable[[Tensors], None]) -> None:
    """A head's file with other tensors."""
    tensors = tensors_of(folder)
    change(tensors)
    (folder / "model.safetensors").write_bytes(safetensors(tensors))


def found(head: Path, change: Callable[[str], str] = lambda text: text) -> dict[str, list[str]]:
    """What check says of the pair, of a stack that `change` changes: messages by ``severity rule``."""
    path = write_stack(head.parent / "stack.yaml", "./target", "./head")
    path.write_text(change(path.read_text()))
    report = json.loads(CliRunner().invoke(check_command, [str(path), "--json", "--offline"]).stdout)
    told: dict[str, list[str]] = {}
    for one in report["problems"]:
        if one["rule"].startswith(("pair-", "head-")):
            assert one["hint"] or one["severity"] == "note"
            told.setdefault(f"{one['severity']} {one['rule']}", []).append(one["message"])
    return told


def test_a_head_that_is_right(head: Path) -> None:
    """Nothing speaks against it, and a manifest can be written for it and verified."""
    change_config(head.parent / "target", max_position_embeddings=8192)
    change_config(head, max_position_embeddings=8192)
    assert found(head) == {}
    for command in ("write", "verify"):
        result = CliRunner().invoke(pair_command, [command, str(head.parent / "stack.yaml")])
        assert result.exit_code == 0, result.exception
    assert found(head) == {}


def test_pair_vocabulary_on_a_head(head: Path) -> None:
    """Another size is refused with both numbers; equal sizes with other texts are, by the head's tokenizer or its manifest's."""
    vocabulary = config_of(head.parent / "target")["vocab_size"]
    change_config(head, vocab_size=32002)
    (message,) = found(head)["error pair-vocabulary"]
    assert "32,002" in message
    assert f"{vocabulary:,}" in message
    change_config(head, vocab_size=vocabulary)
    assert "error pair-vocabulary" not in found(head)
    ours = json.loads((head.parent / "target" / "tokenizer.json").read_text())
    words = {f"other {text}": number for text, number in ours["model"]["vocab"].items()}
    other = json.dumps({"added_tokens": [], "model": {**ours["model"], "vocab": words}})
    (head / "tokenizer.json").write_text(other)
    (message,) = found(head)["error pair-vocabulary"]
    assert "id " in message
    (head / "tokenizer.json").unlink()
    assert CliRunner().invoke(pair_command, ["write", str(head.parent / "stack.yaml")]).exit_code == 0
    (head.parent / "target" / "tokenizer.json").write_text(other)
    assert "tokenizer" in found(head)["error pair-shape"][0]


def test_pair_head_defects_on_a_head(head: Path) -> None:
    """One named defect each: no draft_vocab_size though its lm_head is smaller, an EAGLE-1 config, a map of noughts."""
    config = (head / "config.json").read_text()
    rows = config_of(head)["draft_vocab_size"]
    change_config(head, "draft_vocab_size")
    (message,) = found(head)["error head-no-draft-vocab"]
    assert f"no draft_vocab_size, though its lm_head has {rows} rows" in message
    (head / "config.json").write_text(config)
    change_config(head, speculators_model_type="eagle")
    (message,) = found(head)["error head-is-eagle-1"]
    assert "EAGLE-1" in message
    (head / "config.json").write_text(config)

    def noughts(tensors: Tensors) -> None:
        dtype, shape, content = tensors["d2t"]
        tensors["d2t"] = (dtype, shape, bytes(len(content)))

    def drop_map(tensors: Tensors) -> None:
        del tensors["d2t"]

    change_tensors(head, noughts)
    (message,) = found(head)["error head-map-all-zero"]
    assert "d2t map is all zero" in message
    change_tensors(head, drop_map)
    assert "error head-map-missing" in found(head)


def test_pair_aux_layers_on_a_head(head: Path) -> None:
    """Four ids and fc for three; ids beyond the target; absent ids: the default that is used is told."""
    hidden, layers = (
        config_of(head.parent / "target")[name] for name in ("hidden_size", "num_hidden_layers")
    )
    change_config(head, eagle_aux_hidden_state_layer_ids=[0, 1, 2, 3])
    (message,) = found(head)["error pair-aux-layers"]
    assert (
        f"4 aux layers [0, 1, 2, 3] × hidden size {hidden} = {4 * hidden}, but fc takes {3 * hidden}"
        in message
    )
    change_config(head, eagle_aux_hidden_state_layer_ids=[1, 2, layers + 1])
    (message,) = found(head)["error pair-aux-layers"]
    assert f"[{layers + 1}] are not within the target's {layers} layers" in message
    change_config(head, eagle_aux_hidden_state_layer_ids=None)
    (message,) = found(head)["note pair-aux-layers"]
    assert f"[2, {layers // 2}, {layers - 3}]" in message
    assert "error pair-aux-layers" not in found(head)


def test_pair_context_on_a_head(head: Path) -> None:
    """2,048 positions in the head, 40,960 served: a warning with both numbers, no refusal."""
    change_config(head.parent / "target", max_position_embeddings=CONTEXT)
    change_config(head, max_position_embeddings=2048)
    told = found(
        head, lambda text: text.replace("max_context_tokens: 2048", f"max_context_tokens: {CONTEXT}")
    )
    (message,) = told.pop("warning pair-context")
    assert "2048" in message
    assert str(CONTEXT) in message
    assert told == {}


def test_pair_draft_tp_on_a_head(head: Path) -> None:
    """The head on 2 of the target's 8 accelerators is refused: 1 or 8."""

    def parallel(text: str) -> str:
        wide = text.replace("draft_length: 3", "draft_length: 3, tensor_parallel: 2")
        return wide.replace("{device: cpu}", "{tensor_parallel: 8}")

    for message in found(head, parallel)["error pair-draft-tp"]:
        assert "draft tensor parallel 2 with the target's 8" in message

"""The examples: each loads, each is fit for what it says, and the built-in one is the first example."""

import json
from pathlib import Path

import pytest

from outrider.stack.find_facts import Source
from outrider.stack.load import built_in_text, load_stack
from outrider.stack.preflight import Examination, examine
from tests.shared import shared_path

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Facts of the hub models in the examples: the targets' known shapes, heads of the targets' widths."""
    llama, qwen, oss, head = (
        json.loads(shared_path("facts", f"{name}.config.json").read_text())
        for name in ("llama-3.3-70b", "qwen3-coder-30b-a3b", "gpt-oss-120b", "eagle3-llama-70b-shape")
    )
    fp8 = json.loads(shared_path("facts", "fp8-w8a8.quantization_config.json").read_text())
    configs = {
        "Llama-3.3-70B-Instruct-FP8-dynamic": {**llama, "quantization_config": fp8},
        "Llama-3.3-70B-Instruct-speculator.eagle3": head,
        "Qwen3-Coder-30B-A3B-Instruct": qwen,
        "Qwen3-Coder-30B-A3B-Instruct-P-EAGLE": _head_for(qwen, head, ptd_token_id=151935),
        "gpt-oss-120b": oss,
        "gpt-oss-120b-speculator.eagle3": _head_for(oss, head),
    }
    for name, config in configs.items():
        (tmp_path / f"{name}.config.json").write_text(json.dumps(config))
    return tmp_path


def _head_for(target: dict[str, object], head: dict[str, object], **more: int) -> dict[str, object]:
    sizes = ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    return {**head, **{name: target[name] for name in sizes}, **more}


def examined(path: Path, facts: Path) -> Examination:
    """What check says of an example."""
    return examine(load_stack(path), Source(facts=facts, offline=True))


def test_there_are_examples() -> None:
    """The five that the documentation names."""
    assert [path.stem for path in FILES] == [
        "gpt-oss-120b-eagle3",
        "llama-3.3-70b-fp8-eagle3",
        "qwen3-coder-30b-a3b-p-eagle",
        "smollm2-135m-p-eagle",
        "smollm2-135m",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_example_can_be_served(path: Path, facts: Path) -> None:
    """Nothing refuses it, its facts are known, and its memory is reckoned and enough."""
    found = examined(path, facts)
    assert [p.render() for p in found.problems if p.severity == "error" or p.rule == "facts"] == []
    assert found.budget
    assert found.budget.fits


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_hub_models_without_a_commit_are_warned_of(path: Path, facts: Path) -> None:
    """Examples from a hub leave the commits to the user, and check says so for both sides."""
    unpinned = [p.path for p in examined(path, facts).problems if p.rule == "unpinned"]
    assert unpinned == ([] if path.stem.startswith("smollm2") else ["target.revision", "draft.revision"])


def test_the_first_example_is_the_built_in_stack() -> None:
    """What `outrider serve` runs without a file is there to be read and changed."""
    assert (EXAMPLES / "smollm2-135m.yaml").read_text(encoding="utf-8") == built_in_text()

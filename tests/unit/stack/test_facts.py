"""Facts out of configs, headers and tokenizers; what is broken is told, never guessed."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared import shared_path

from outrider.stack.facts import FactsError, facts_from_config
from outrider.stack.read_facts import MAX_CONFIG_BYTES, parse_tokenizer, read_config_file, read_folder
from outrider.stack.safetensors_header import header_length, is_all_zero, parse_header

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}


def write_model(folder: Path, config: dict[str, object], header: object = None, content: bytes = b"") -> Path:
    """A model folder with this config and, where given, one safetensors file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if header is not None:
        raw = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + content)
    return folder


def test_llama_70b() -> None:
    """The public shape of Llama 3.3 70B is read as it stands."""
    facts = read_config_file(shared_path("facts", "llama-3.3-70b.config.json"))
    assert (facts.hidden_size, facts.layers, facts.heads, facts.kv_heads, facts.head_dim) == (
        8192,
        80,
        64,
        8,
        128,
    )
    assert (facts.vocab_size, facts.max_positions, facts.dtype) == (128256, 131072, "bfloat16")
    assert not facts.tied_embeddings
    assert facts.head is None
    assert facts.quantization.label == "none"


def test_gpt_oss_layers_alternate() -> None:
    """gpt-oss without a list of layer types alternates, sliding first; only its experts are MXFP4."""
    facts = read_config_file(shared_path("facts", "gpt-oss-120b.config.json"))
    assert facts.layer_types[:3] == ("sliding", "full", "sliding")
    assert (facts.layers_of("sliding"), facts.layers_of("full"), facts.sliding_window) == (18, 18, 128)
    assert facts.experts
    assert (facts.experts.count, facts.experts.per_token, facts.experts.size) == (128, 4, 2880)
    assert facts.quantization.label == "mxfp4"
    assert facts.quantization.only_experts


def test_qwen3_moe() -> None:
    """A mixture of experts has its own intermediate size."""
    experts = read_config_file(shared_path("facts", "qwen3-coder-30b-a3b.config.json")).experts
    assert experts
    assert (experts.count, experts.per_token, experts.size, experts.dense_layers) == (128, 8, 768, 0)


def test_plain_eagle3_head() -> None:
    """A head in EAGLE's own form: smaller draft vocabulary, aux layers left to the engine."""
    head = read_config_file(shared_path("facts", "eagle3-llama-70b-shape.config.json")).head
    assert head
    assert (head.draft_vocab_size, head.aux_layer_ids, head.target_hidden_size) == (32000, None, 8192)
    assert (head.generation, head.parallel) == (3, False)


def test_speculators_head_folder() -> None:
    """A head in Speculators form with its weights: ids, map and tensors are read, the map is not all zero."""
    facts = read_folder(shared_path("models", "smollm2-135m-eagle3-start"))
    head, fc = facts.head, facts.tensor("fc.weight")
    assert head
    assert fc
    assert (head.draft_vocab_size, head.aux_layer_ids, head.d2t_all_zero) == (8192, (2, 15, 27), False)
    assert head.verifier == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert fc.shape == (576, 1728)
    assert sum(tensor.size_bytes for tensor in facts.tensors.values()) == 19_734_400


@pytest.mark.parametrize(
    ("block", "label"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq"}, "int4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "int4",
        ),
        ({"quant_method": "bitnet"}, "bitnet"),
    ],
)
def test_quantization_labels(block: dict[str, object], label: str) -> None:
    """Each known form of quantisation gets one word; an unknown one keeps its own."""
    assert facts_from_config({**LLAMA, "quantization_config": block}, "x").quantization.label == label


def test_the_fp8_block_of_llm_compressor() -> None:
    """compressed-tensors with 8-bit floats is FP8."""
    block = json.loads(shared_path("facts", "fp8-w8a8.quantization_config.json").read_text())
    assert facts_from_config({**LLAMA, "quantization_config": block}, "x").quantization.label == "fp8"


def test_multimodal_config_is_read_one_level_down() -> None:
    """A vision model keeps its language model's sizes in text_config."""
    config = {"architectures": ["X"], "vision_config": {}, "text_config": LLAMA}
    facts = facts_from_config(config, "x")
    assert facts.multimodal
    assert (facts.hidden_size, facts.architecture) == (64, "X")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": None},
        {"hidden_size": 0},
        {"hidden_size": "64"},
        {"vocab_size": -1},
        {"num_hidden_layers": True},
    ],
)
def test_absurd_numbers_are_refused(changes: dict[str, object]) -> None:
    """Missing, negative, textual and boolean sizes are refused, by name."""
    with pytest.raises(FactsError, match=next(iter(changes)) if changes != {"hidden_size": 0} else "width"):
        facts_from_config({**LLAMA, **changes}, "x")


def test_broken_folders_are_told(tmp_path: Path) -> None:
    """No config, no JSON, too large, a cut header: each is an error that names the file."""
    with pytest.raises(FactsError, match=r"has no config\.json"):
        read_folder(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(FactsError, match="not a JSON object"):
        read_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(b" " * (MAX_CONFIG_BYTES + 1))
    with pytest.raises(FactsError, match="larger than"):
        read_folder(tmp_path)
    write_model(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 500) + b"{}")
    with pytest.raises(FactsError, match="cut short"):
        read_folder(tmp_path)


@pytest.mark.parametrize("prefix", [b"", b"\0" * 7, struct.pack("<Q", 0), struct.pack("<Q", 2**40)])
def test_header_lengths_that_cannot_be(prefix: bytes) -> None:
    """A length too short, zero or beyond 100 MB is no safetensors file."""
    with pytest.raises(FactsError, match="header"):
        header_length(prefix, "x")


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(
        lambda v: json.dumps(v).encode()
    )
)
def test_any_header_is_read_or_refused(raw: bytes) -> None:
    """Whatever the header holds, it is parsed or refused as FactsError."""
    with contextlib.suppress(FactsError):
        assert all(tensor.size_bytes >= 0 for tensor in parse_header(raw, "x").values())


def test_zero_map_is_read_by_its_offset(tmp_path: Path) -> None:
    """Only the map's own bytes decide, wherever they stand in the file; an absent map is unknown."""
    entry = {"dtype": "I64", "shape": [2], "data_offsets": [8, 24]}
    zero = write_model(tmp_path / "zero", LLAMA, {"d2t": entry}, b"\1" * 8 + bytes(16))
    full = write_model(tmp_path / "full", LLAMA, {"model.d2t": entry}, bytes(8) + b"\0" * 15 + b"\1")
    cut = write_model(tmp_path / "cut", LLAMA, {"d2t": entry}, bytes(8))
    assert is_all_zero(zero, "d2t") is True
    assert is_all_zero(full, "d2t") is False
    assert is_all_zero(full, "t2d") is None
    with pytest.raises(FactsError, match="cut short"):
        is_all_zero(cut, "d2t")


def test_a_map_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    """Offsets beyond any vocabulary are refused before reading."""
    entry = {"dtype": "I64", "shape": [2], "data_offsets": [0, 2**40]}
    with pytest.raises(FactsError, match="that large"):
        is_all_zero(write_model(tmp_path, LLAMA, {"d2t": entry}), "d2t")


def test_tokenizers_are_compared_by_tokens_not_by_files() -> None:
    """Order and other settings do not matter, ids and text do, added tokens included."""
    one = {
        "model": {"vocab": {"a": 0, "b": 1}},
        "added_tokens": [{"id": 2, "content": "<s>"}],
        "truncation": None,
    }
    same = {
        "added_tokens": [{"id": 2, "content": "<s>"}],
        "model": {"vocab": {"b": 1, "a": 0}, "type": "BPE"},
    }
    other = {"added_tokens": [{"id": 2, "content": "</s>"}], "model": {"vocab": {"b": 1, "a": 0}}}
    pairs = [json.dumps(x).encode() for x in (one, same, other)]
    first, second, third = (parse_tokenizer(raw, "tokenizer.json") for raw in pairs)
    assert first == second
    assert first != third
    unigram = parse_tokenizer(
        json.dumps({"model": {"vocab": [["a", 0.0], ["b", -1.0]]}}).encode(), "tokenizer.json"
    )
    assert unigram.tokens == {0: "a", 1: "b"}


def test_a_binary_tokenizer_has_only_a_fingerprint() -> None:
    """A sentencepiece file is known by its bytes alone."""
    tokenizer = parse_tokenizer(b"\x0a\x0b", "tokenizer.model")
    assert tokenizer.fingerprint.startswith("tokenizer.model:")
    assert not tokenizer.tokens

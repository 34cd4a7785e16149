"""Small pairs on disk: a target of random weights, and an EAGLE-3 head whose output rows are the target's."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

SIZES = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1}
_SMALL = bytes(
    0x3C | (n & 0x80) for n in range(256)
)  # the upper half of a bfloat16 of 0.01 to 0.03, either sign
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


@dataclass(frozen=True)
class Sizes:
    """A pair's widths."""

    hidden: int = 16
    vocabulary: int = 64
    drafted: int = 12
    inner: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 4
    layers: int = 8

    @property
    def aux(self) -> list[int]:
        """The layers that the head taps: vLLM's default."""
        return [2, self.layers // 2, self.layers - 3]


def small_numbers(shape: Sequence[int], seed: int) -> bytes:
    """Random bfloat16 values near nought."""
    raw = bytearray(random.Random(seed).randbytes(2 * prod(shape)))  # noqa: S311  (weights, not secrets)
    raw[1::2] = raw[1::2].translate(_SMALL)
    return bytes(raw)


def safetensors(tensors: Tensors) -> bytes:
    """A file of these tensors, in their order."""
    entries, offset = {}, 0
    for name, (dtype, shape, content) in tensors.items():
        assert len(content) == prod(shape) * SIZES[dtype], name
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + len(content)],
        }
        offset += len(content)
    header = json.dumps(entries, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(content for _, _, content in tensors.values())


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> Tensors:
    """Small random numbers in these shapes."""
    return {
        name: ("BF16", shape, small_numbers(shape, seed + i))
        for i, (name, shape) in enumerate(shapes.items())
    }


def target_config(sizes: Sizes = Sizes(), **changes: object) -> dict[str, object]:
    """A small Llama."""
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "head_dim": sizes.head_dim,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": 8192,
        "model_type": "llama",
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.kv_heads,
        "tie_word_embeddings": True,
        "vocab_size": sizes.vocabulary,
    }
    return {**config, **changes}


def write_target(
    folder: Path, sizes: Sizes = Sizes(), *, tied: bool = True, shards: int = 1, seed: int = 1
) -> Path:
    """A target's folder: embedding, output rows of their own unless `tied`, a norm; in one file or several."""
    shapes = {
        "model.embed_tokens.weight": (sizes.vocabulary, sizes.hidden),
        "model.norm.weight": (sizes.hidden,),
    }
    if not tied:
        shapes["lm_head.weight"] = (sizes.vocabulary, sizes.hidden)
    tensors = random_tensors(shapes, seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = target_config(sizes, tie_word_embeddings=tied)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {f"t{i}": i for i in range(sizes.vocabulary)}}})
    )
    names = list(tensors)
    for i in range(shards):
        name = "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
        (folder / name).write_bytes(safetensors({key: tensors[key] for key in names[i::shards]}))
    return folder


def head_config(sizes: Sizes = Sizes(), **changes: object) -> dict[str, object]:
    """A head's config in Speculators form, as `outrider train` exports it."""
    layer = {
        "attention_bias": False,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": sizes.kv_heads,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": sizes.vocabulary,
    }
    proposal = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": 3,
        "verifier_accept_k": 1,
    }
    config: dict[str, object] = {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": sizes.drafted,
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": sizes.aux,
        "embed_requires_grad": False,
        "fc_norm": False,
        "norm_before_fc": True,
        "norm_before_residual": True,
        "norm_output": True,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": ""},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
    }
    return {**config, **changes}


def drafted_ids(sizes: Sizes) -> list[int]:
    """Which target tokens the head drafts: ascending, some neighbours, some not."""
    chosen = random.Random(5).sample(range(sizes.vocabulary), sizes.drafted)  # noqa: S311
    return sorted(chosen)


def head_tensors(sizes: Sizes, rows: bytes, ids: list[int], seed: int = 50) -> Tensors:
    """The tensors of such a head; `rows` are the target's output rows, of which it keeps those of `ids`."""
    hidden, wide, kv = sizes.hidden, 2 * sizes.hidden, sizes.kv_heads * sizes.head_dim
    query = sizes.heads * sizes.head_dim
    shapes = {
        "fc.weight": (hidden, 3 * hidden),
        "input_norm.weight": (3 * hidden,),
        "layers.0.hidden_norm.weight": (hidden,),
        "layers.0.input_layernorm.weight": (hidden,),
        "layers.0.mlp.down_proj.weight": (hidden, sizes.inner),
        "layers.0.mlp.gate_proj.weight": (sizes.inner, hidden),
        "layers.0.mlp.up_proj.weight": (sizes.inner, hidden),
        "layers.0.post_attention_layernorm.weight": (hidden,),
        "layers.0.self_attn.k_proj.weight": (kv, wide),
        "layers.0.self_attn.o_proj.weight": (hidden, query),
        "layers.0.self_attn.q_proj.weight": (query, wide),
        "layers.0.self_attn.v_proj.weight": (kv, wide),
    }
    width = 2 * hidden
    kept = b"".join(rows[i * width : (i + 1) * width] for i in ids)
    offsets = struct.pack(f"<{len(ids)}q", *(target - i for i, target in enumerate(ids)))
    known = bytes(1 if i in set(ids) else 0 for i in range(sizes.vocabulary))
    return {
        "d2t": ("I64", (len(ids),), offsets),
        **random_tensors(shapes, seed),
        "lm_head.weight": ("BF16", (len(ids), hidden), kept),
        **random_tensors({"norm.weight": (hidden,)}, seed + 40),
        "t2d": ("BOOL", (sizes.vocabulary,), known),
    }


def tensor_bytes(folder: Path, name: str) -> bytes:
    """A tensor's bytes, by the plainest reading of the format: nothing of the code under test."""
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        if entry := json.loads(raw[8 : 8 + length]).get(name):
            begin, end = entry["data_offsets"]
            return raw[8 + length + begin : 8 + length + end]
    raise KeyError(name)


def write_head(
    folder: Path, target: Path, sizes: Sizes = Sizes(), *, rows: str = "model.embed_tokens.weight"
) -> Path:
    """A head's folder for a target's: its output rows are the target's tensor `rows`, as far as it drafts them."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = head_tensors(sizes, tensor_bytes(target, rows), drafted_ids(sizes))
    (folder / "config.json").write_text(json.dumps(head_config(sizes), indent=1))
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder


def write_stack(path: Path, target: str, draft: str, method: str = "eagle3", more: str = "") -> Path:
    """A stack of that pair."""
    path.write_text(
        f"apiVersion: outrider/v1alpha1\ntarget: {{model: {target}, max_context_tokens: 2048}}\n"
        f"draft: {{method: {method}, model: '{draft}', draft_length: 3}}\nengine: {{device: cpu}}\n{more}"
    )
    return path

"""How many bytes a model's weights take: exactly from safetensors headers, else from its config.

Source of the parameter counts: the modules of transformers' and vLLM's Llama, Qwen3-MoE, gpt-oss and EAGLE-3 models
(`vllm/model_executor/models/{llama,qwen3_moe,gpt_oss,llama_eagle3}.py`, 0.32). What is left out (rotary tables, scales per
channel, query and key norms) is below one in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.stack.facts import FactsError, HeadFacts, ModelFacts

# Bytes per weight of quantised layers. awq: 4 bits, and a 2-byte scale and 4-bit zero for each 128; mxfp4: 4 bits, and one byte
# for each 32 (OCP Microscaling Formats 1.0).
RATES = {"fp8": 1.0, "int8": 1.0, "awq": 0.5 + 2.5 / 128, "int4": 0.5 + 2.5 / 128, "mxfp4": 0.5 + 1 / 32}


@dataclass(frozen=True, slots=True)
class WeightSize:
    """Bytes on one copy of the model, and how they were found."""

    size_bytes: int
    arithmetic: str
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class _Parameters:
    """Counts: attention and dense layers, experts, embeddings and output, all else (norms, biases, routers)."""

    linear: int
    experts: int
    vocabulary: int
    small: int

    @property
    def total(self) -> int:
        return self.linear + self.experts + self.vocabulary + self.small


def weight_size(facts: ModelFacts, label: str, element_bytes: int) -> WeightSize:
    """Bytes of `facts`' weights stored as `label` (none, fp8, …), unquantised elements at `element_bytes`.

    Raises:
        FactsError: no headers, and a layout whose parameters cannot be counted from the config.
    """
    if facts.tensors and label == facts.quantization.label:
        stored = sum(tensor.size_bytes for tensor in facts.tensors.values())
        if label == "none" and element_bytes != facts.element_bytes:
            count = stored // facts.element_bytes
            return WeightSize(count * element_bytes, f"{count:,} × {element_bytes} B", count)
        return WeightSize(stored, f"{len(facts.tensors)} tensors, exactly")
    counts = _head_parameters(facts, facts.head) if facts.head else _model_parameters(facts)
    if label in ("none", ""):
        return WeightSize(counts.total * element_bytes, f"{counts.total:,} × {element_bytes} B", counts.total)
    rate = RATES.get(label)
    if rate is None:
        raise FactsError(f"{facts.source}: no safetensors headers, and {label} has no known size per weight")
    only_experts = facts.quantization.only_experts or (label == "mxfp4" and facts.experts is not None)
    quantised = counts.experts if only_experts else counts.experts + counts.linear
    rest = counts.total - quantised
    size = int(quantised * rate) + rest * element_bytes
    return WeightSize(size, f"{quantised:,} × {rate:g} B + {rest:,} × {element_bytes} B", counts.total)


def _model_parameters(facts: ModelFacts) -> _Parameters:
    if facts.latent_kv_size or facts.layers_of("linear"):
        raise FactsError(
            f"{facts.source}: this attention's weights can only be counted from safetensors headers"
        )
    hidden = facts.hidden_size
    linear = facts.layers * _attention(facts, hidden)
    small = facts.layers * 2 * hidden + hidden
    if facts.attention_bias:
        small += facts.layers * ((facts.heads + 2 * facts.kv_heads) * facts.head_dim + hidden)
    experts, mixed = facts.experts, 0
    if experts:
        sparse = facts.layers - experts.dense_layers
        mixed = sparse * experts.count * 3 * hidden * experts.size
        linear += sparse * 3 * hidden * experts.shared_size
        small += sparse * experts.count * hidden
        if facts.model_type == "gpt_oss":  # its experts and routers have biases
            small += sparse * experts.count * (2 * experts.size + hidden + 1)
        dense = experts.dense_layers
    else:
        dense = facts.layers
    linear += dense * 3 * hidden * facts.intermediate_size
    vocabulary = facts.vocab_size * hidden * (1 if facts.tied_embeddings else 2)
    return _Parameters(linear, mixed, vocabulary, small)


def _head_parameters(facts: ModelFacts, head: HeadFacts) -> _Parameters:
    """An EAGLE-3 head: fc, layers of which the first sees embedding and state side by side, its own output layer.

    The embedding is the target's (vLLM shares it), so it is not counted again.
    """
    hidden = facts.hidden_size
    aux = len(head.aux_layer_ids) if head.aux_layer_ids else 3
    fc = hidden * aux * head.target_hidden_size
    attention = _attention(facts, 2 * hidden) + (facts.layers - 1) * _attention(facts, hidden)
    linear = fc + attention + facts.layers * 3 * hidden * facts.intermediate_size
    vocabulary = (head.draft_vocab_size or facts.vocab_size) * hidden
    return _Parameters(linear, 0, vocabulary, facts.layers * 3 * hidden + hidden)


def _attention(facts: ModelFacts, width_in: int) -> int:
    qkv = width_in * (facts.heads + 2 * facts.kv_heads) * facts.head_dim
    return qkv + facts.heads * facts.head_dim * facts.hidden_size

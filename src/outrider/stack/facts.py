"""What is known about a model without loading it: the facts that pair rules and the memory budget judge by.

`facts_from_config` reads the Hugging Face `config.json` of a target, a draft model, a plain EAGLE-3 head or a head in
Speculators form. Pure: files are read by `read_facts`, a hub by `hub`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

MAX_NUMBER = 10**9
MAX_LAYERS = 10_000  # lists are made of that length

DTYPE_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "BOOL": 1, "F4": 0.5,
}  # fmt: skip


class FactsError(ValueError):
    """A model's files do not say what they must; the message says which and why."""


class HubError(FactsError):
    """A hub did not give what was asked; `hint` says what to do, `unreachable` that it may be there another time."""

    def __init__(self, message: str, hint: str = "", *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor of a safetensors file: its dtype as the format writes it (``BF16``), and shape."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Which text stands behind which id. `fingerprint` is SHA-256 over them; `tokens` is empty where only that is known."""

    fingerprint: str
    tokens: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the weights are stored. `label` none, fp8, awq, mxfp4, int4, int8 or the checkpoint's own word.

    `only_experts`: the rest of the layers stays unquantised (gpt-oss). `lm_head`: whether the output layer is quantised too.
    """

    label: str = "none"
    only_experts: bool = False
    lm_head: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `count` per layer of `size` (intermediate), `shared_size` of those every token uses."""

    count: int
    per_token: int
    size: int
    shared_size: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """What only a draft head has. `aux_layer_ids` None: the config does not say, so the engine's default applies."""

    draft_vocab_size: int | None
    aux_layer_ids: tuple[int, ...] | None
    target_hidden_size: int
    parallel_token: int | None
    parallel: bool
    generation: int
    verifier: str = ""
    d2t_all_zero: bool | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model. Sizes in elements, `tensors` empty where no safetensors header was read."""

    source: str
    architecture: str
    model_type: str
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    dtype: str
    tied_embeddings: bool
    attention_bias: bool = False
    quantization: Quantization = Quantization()
    experts: Experts | None = None
    latent_kv_size: int = 0
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    multimodal: bool = False
    head: HeadFacts | None = None
    tensors: Mapping[str, TensorFacts] = field(default_factory=dict, repr=False)
    tokenizer: TokenizerFacts | None = None
    commit: str | None = None
    files: Mapping[str, str] = field(default_factory=dict, repr=False)

    def tensor(self, suffix: str) -> TensorFacts | None:
        """The tensor of this name, or of a name that ends with it after a dot."""
        for name, tensor in self.tensors.items():
            if name == suffix or name.endswith(f".{suffix}"):
                return tensor
        return None

    @property
    def element_bytes(self) -> int:
        """Bytes of one unquantised element."""
        return {"float32": 4, "float16": 2, "bfloat16": 2}.get(self.dtype, 2)

    def layers_of(self, kind: str) -> int:
        """How many layers have this attention: ``full``, ``sliding`` or ``linear``."""
        if not self.layer_types:
            return self.layers if kind == "full" else 0
        return sum(1 for one in self.layer_types if one == kind)


def tensor_facts(dtype: str, shape: tuple[int, ...]) -> TensorFacts:
    """A tensor of the given dtype and shape. Raises FactsError for a dtype that is not known."""
    if dtype not in DTYPE_BYTES:
        raise FactsError(f"unknown tensor type {dtype}")
    return TensorFacts(dtype, shape, int(prod(shape) * DTYPE_BYTES[dtype]))


def facts_from_config(config: Mapping[str, object], source: str) -> ModelFacts:
    """Facts of a `config.json`. Raises FactsError where a needed number is missing or absurd."""
    if "speculators_model_type" in config or "transformer_layer_config" in config:
        return _speculators_head(config, source)
    read = _Config(_text_part(config), source)
    facts = _model(read, config)
    head = _plain_head(read, facts)
    return replace(facts, head=head) if head else facts


def _text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """A multimodal model keeps its language model's numbers one level down."""
    inner = config.get("text_config")
    if isinstance(inner, dict) and "hidden_size" in inner:
        return {**{k: v for k, v in config.items() if k not in inner}, **inner}
    return config


class _Config:
    """Typed, bounded access to a config."""

    def __init__(self, config: Mapping[str, object], source: str) -> None:
        self.config = config
        self.source = source

    def number(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
                raise FactsError(f"{self.source}: {name} is {value!r}, which is no size")
            return value
        if default is None:
            raise FactsError(f"{self.source}: config.json does not say {names[0]}")
        return default

    def optional(self, *names: str) -> int | None:
        found = self.number(*names, default=-1)
        return None if found < 0 else found

    def text(self, *names: str, default: str = "") -> str:
        return next((value for name in names if isinstance(value := self.config.get(name), str)), default)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.config.get(name, default)
        return value if isinstance(value, bool) else default

    def block(self, name: str) -> Mapping[str, object]:
        value = self.config.get(name)
        return value if isinstance(value, dict) else {}

    def numbers(self, name: str) -> tuple[int, ...] | None:
        value = self.config.get(name)
        if not isinstance(value, list) or len(value) > 1024:
            return None
        return tuple(one for one in value if isinstance(one, int) and not isinstance(one, bool)) or None


def _model(read: _Config, whole: Mapping[str, object]) -> ModelFacts:
    heads = read.number("num_attention_heads")
    hidden = read.number("hidden_size")
    if not heads or not hidden:
        raise FactsError(f"{read.source}: a model without width or attention heads")
    layers = read.number("num_hidden_layers")
    if layers > MAX_LAYERS:
        raise FactsError(f"{read.source}: num_hidden_layers is {layers:,}, over {MAX_LAYERS:,}")
    names = whole.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    multimodal = any(f"{kind}_config" in whole for kind in ("vision", "audio", "thinker"))
    latent = read.number("kv_lora_rank", default=0)
    return ModelFacts(
        source=read.source,
        architecture=architecture,
        model_type=read.text("model_type"),
        hidden_size=hidden,
        intermediate_size=read.number("intermediate_size", default=4 * hidden),
        layers=layers,
        heads=heads,
        kv_heads=read.number("num_key_value_heads", default=heads),
        head_dim=read.number("head_dim", default=hidden // heads),
        vocab_size=read.number("vocab_size"),
        max_positions=read.number("max_position_embeddings", default=0),
        dtype=read.text("dtype", "torch_dtype", default="bfloat16"),
        tied_embeddings=read.flag("tie_word_embeddings"),
        attention_bias=read.flag("attention_bias"),
        quantization=_quantization(read.block("quantization_config")),
        experts=_experts(read, layers),
        latent_kv_size=latent + read.number("qk_rope_head_dim", default=0) if latent else 0,
        layer_types=_layer_types(read, layers),
        sliding_window=read.optional("sliding_window"),
        multimodal=multimodal,
    )


def _layer_types(read: _Config, layers: int) -> tuple[str, ...]:
    """``full``, ``sliding`` or ``linear`` per layer; empty: all full.

    gpt-oss without a list alternates, sliding first. Source: `GptOssConfig` of transformers 5.
    """
    given = read.config.get("layer_types")
    if isinstance(given, list) and len(given) == layers:
        return tuple(
            "sliding" if "sliding" in str(one) else "linear" if "linear" in str(one) else "full"
            for one in given
        )
    if read.text("model_type") == "gpt_oss" and read.optional("sliding_window"):
        return tuple("sliding" if i % 2 == 0 else "full" for i in range(layers))
    return ()


def _experts(read: _Config, layers: int) -> Experts | None:
    count = read.number("num_local_experts", "num_experts", "n_routed_experts", default=0)
    if not count:
        return None
    size = read.number("moe_intermediate_size", "intermediate_size")
    step = read.number("decoder_sparse_step", default=1) or 1
    dense = read.numbers("mlp_only_layers") or ()
    first_dense = read.number("first_k_dense_replace", default=0)
    is_dense = [i in dense or i < first_dense or (i + 1) % step != 0 for i in range(layers)]
    shared = read.number(
        "shared_expert_intermediate_size", default=read.number("n_shared_experts", default=0) * size
    )
    per_token = read.number("num_experts_per_tok", "experts_per_token", default=1)
    return Experts(count, per_token, size, shared, sum(is_dense))


def _quantization(block: Mapping[str, object]) -> Quantization:
    """Source: `quantization_config` of transformers, compressed-tensors and gpt-oss checkpoints."""
    method = str(block.get("quant_method", "")).lower()
    if not method:
        return Quantization()
    if method == "compressed-tensors":
        return Quantization(_compressed_label(block))
    if method == "mxfp4":
        skipped = str(block.get("modules_to_not_convert", ""))
        return Quantization("mxfp4", only_experts="self_attn" in skipped or not skipped)
    known = {"fp8": "fp8", "fbgemm_fp8": "fp8", "awq": "awq", "gptq": "int4", "auto-round": "int4"}
    if method == "modelopt":
        algorithm = str(block.get("quant_algo", "")).lower()
        return Quantization("fp8" if "fp8" in algorithm else algorithm or "modelopt")
    return Quantization(known.get(method, method))


def _compressed_label(block: Mapping[str, object]) -> str:
    groups = block.get("config_groups")
    group: object = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = group.get("weights") if isinstance(group, dict) else None
    weights = weights if isinstance(weights, dict) else {}
    bits, kind = weights.get("num_bits"), weights.get("type")
    if bits == 8:
        return "fp8" if kind == "float" else "int8"
    return "int4" if bits == 4 and kind == "int" else "compressed-tensors"


def _speculators_head(config: Mapping[str, object], source: str) -> ModelFacts:
    """Source: vLLM 0.32, `vllm/transformers_utils/configs/speculators/algos.py`."""
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict):
        raise FactsError(f"{source}: a Speculators config without transformer_layer_config")
    read, outer = _Config(layer, source), _Config(config, source)
    kind = outer.text("speculators_model_type")
    verifier = _Config(outer.block("speculators_config"), source).block("verifier")
    facts = replace(_model(read, layer), architecture=_architecture(config), quantization=Quantization())
    head = HeadFacts(
        draft_vocab_size=outer.optional("draft_vocab_size"),
        aux_layer_ids=outer.numbers("eagle_aux_hidden_state_layer_ids"),
        target_hidden_size=outer.number("target_hidden_size", default=facts.hidden_size),
        parallel_token=outer.optional("mask_token_id"),
        parallel=kind == "peagle",
        generation=3 if kind in ("eagle3", "peagle") else 1 if kind == "eagle" else 0,
        verifier=str(verifier.get("name_or_path") or ""),
    )
    return replace(facts, head=head)


def _architecture(config: Mapping[str, object]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _plain_head(read: _Config, facts: ModelFacts) -> HeadFacts | None:
    """A head as EAGLE's own repository and vLLM save it.

    Source: vLLM 0.32, `vllm/transformers_utils/configs/eagle.py` and `vllm/model_executor/models/llama_eagle3.py`.
    """
    name = facts.architecture.lower()
    eagle = read.block("eagle_config")
    if "eagle" not in name and not eagle and "draft_vocab_size" not in read.config:
        return None
    inner = _Config({**eagle, **read.config}, read.source)
    eagle3 = "eagle3" in name or "draft_vocab_size" in read.config or bool(eagle)
    token = inner.optional("ptd_token_id", "pard_token")
    return HeadFacts(
        draft_vocab_size=inner.optional("draft_vocab_size"),
        aux_layer_ids=inner.numbers("eagle_aux_hidden_state_layer_ids"),
        target_hidden_size=inner.number("target_hidden_size", default=facts.hidden_size),
        parallel_token=token,
        parallel=token is not None,
        generation=3 if eagle3 else 1,
    )

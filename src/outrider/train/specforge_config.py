"""A target's facts and the settings -> what SpecForge 0.2.0 reads: the draft's config and the run's config. Pure.

Source: SpecForge 0.2.0, `config/schema.py`, `algorithms/eagle3` and `algorithms/peagle` (providers), `modeling/draft/`,
`modeling/target/target_head.py`, `data/template.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.train.specforge_target import (
    SpecForgeSettings,
    SpecForgeTarget,
    aux_layers,
    embedding_key,
    lm_head_key,
)

RUN_ID = "head"
PROMPTS, FEATURES, OUTPUT, HEAD = "prompts.jsonl", "features", "output", "head"
DRAFT_CONFIG, RUN_CONFIG, MAPPING, VIEW = "draft.json", "run.yaml", "vocab_mapping.pt", "target"

_STRATEGY = {"eagle3": "eagle3", "p-eagle": "peagle"}
_ARCHITECTURE = {"eagle3": "LlamaForCausalLMEagle3", "p-eagle": "PEagleDraftModel"}
_DEPTH_KEY = {"eagle3": "ttt_length", "p-eagle": "num_depths"}
_ROPE_TYPES = frozenset({"linear", "dynamic", "llama3", "yarn"})
_CAPTURE_PORT = 30000

# Chat templates that SpecForge knows by name, each with the markers that a target's own template must hold; first match.
TEMPLATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("phi4", ("<|im_start|>", "<|im_sep|>", "<|im_end|>")),
    ("kimi-k2-instruct", ("<|im_assistant|>", "<|im_middle|>", "<|im_end|>")),
    ("qwen", ("<|im_start|>", "<|im_end|>")),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    ("llama4", ("<|header_start|>", "<|header_end|>", "<|eot|>")),
    ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ("phi3", ("<|assistant|>", "<|user|>", "<|end|>")),
    ("deepseek-v3", ("<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>")),
    ("ling-flash-2.0", ("<role>", "<|role_end|>")),
)


def template_name(text: str) -> str | None:
    """The chat template of SpecForge's registry whose markers stand in the target's own; None: it knows none such."""
    return next((name for name, marks in TEMPLATES if all(mark in text for mark in marks)), None)


def draft_config(
    target: SpecForgeTarget, settings: SpecForgeSettings, draft_vocab_size: int, mask_token: int | None
) -> dict[str, object]:
    """The draft's config.json. It is the exported head's too, so it says what vLLM must know: layers read, placeholder."""
    facts = target.facts
    config: dict[str, object] = {
        "architectures": [_ARCHITECTURE[settings.method]],
        "model_type": "llama",
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "num_hidden_layers": settings.draft_layers,
        "vocab_size": facts.vocab_size,
        "draft_vocab_size": draft_vocab_size,
        "max_position_embeddings": facts.max_positions or settings.max_length,
        "rms_norm_eps": _text_part(target.config).get("rms_norm_eps", 1e-6),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": list(aux_layers(target)),
        **_rope(target.config, scaled=settings.method == "eagle3"),
    }
    # No pad_token_id: torch would keep that token's row of the embedding from learning.
    config |= {
        key: value
        for key in ("bos_token_id", "eos_token_id")
        if (value := _text_part(target.config).get(key)) is not None
    }
    if mask_token is not None:
        config |= {"ptd_token_id": mask_token, "norm_before_residual": False}
    return config


def run_config(
    target: SpecForgeTarget, settings: SpecForgeSettings, mask_token: int | None
) -> dict[str, object]:
    """The file that `specforge train --config` reads. Paths are those of the folder it lies in."""
    model: dict[str, object] = {
        "target_model_path": VIEW,
        "draft_model_config": DRAFT_CONFIG,
        "embedding_key": embedding_key(target),
        "lm_head_key": lm_head_key(target),
        "vocab_mapping_path": MAPPING,
        # SpecForge counts a layer's output, vLLM the next layer's input.
        "aux_hidden_state_layer_ids": [layer - 1 for layer in aux_layers(target)],
        "torch_dtype": "bfloat16",  # its target head has no other
    }
    if mask_token is not None:
        model["mask_token_id"] = mask_token
    data: dict[str, object] = {"max_length": settings.max_length, "cache_dir": "cache"}
    data |= {"prompts_path": PROMPTS} if settings.online else {"hidden_states_path": FEATURES}
    if name := template_name(target.chat_template):
        data["chat_template"] = name
    training: dict[str, object] = {
        "strategy": _STRATEGY[settings.method],
        "num_epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "attention_backend": "flex_attention",
        "save_interval": 1000,
        "max_checkpoints": 2,
        "seed": settings.seed,
    }
    if settings.depth:
        training[_DEPTH_KEY[settings.method]] = settings.depth
    return {
        "model": model,
        "data": data,
        "training": training,
        "run_id": RUN_ID,
        "output_dir": OUTPUT,
        "deployment": _deployment(settings),
    }


def _deployment(settings: SpecForgeSettings) -> dict[str, object]:
    trainer = {"nnodes": 1, "nproc_per_node": settings.trainer_gpus}
    if not settings.online:
        return {"mode": "local_colocated", "trainer": trainer}
    devices = [str(number) for number in range(settings.capture_gpus + settings.trainer_gpus)]
    server = {
        "port": _CAPTURE_PORT,
        "cuda_visible_devices": devices[: settings.capture_gpus],
        "tp_size": settings.capture_gpus,
    }
    managed = {"trainer_cuda_visible_devices": devices[settings.capture_gpus :], "capture_servers": [server]}
    return {
        "mode": "disaggregated",
        "trainer": trainer,
        "disaggregated": {"control_dir": "control", "backend": "mooncake", "managed_local": managed},
    }


def _text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _rope(config: Mapping[str, object], *, scaled: bool) -> dict[str, object]:
    """The target's rotary base, and its scaling where SpecForge's draft has that kind (its P-EAGLE draft has none).

    transformers 5 writes `rope_parameters`, by kind of layer where they differ; before it `rope_theta` and `rope_scaling`.
    """
    text = _text_part(config)
    new, old = text.get("rope_parameters"), text.get("rope_scaling")
    parameters = new if isinstance(new, dict) else old if isinstance(old, dict) else {}
    inner = parameters.get("full_attention")
    parameters = inner if isinstance(inner, dict) else parameters
    kind = parameters.get("rope_type", parameters.get("type"))
    scaling = {key: value for key, value in parameters.items() if key not in ("rope_theta", "type")} | {
        "rope_type": kind
    }
    return {
        "rope_theta": parameters.get("rope_theta", text.get("rope_theta", 10000.0)),
        "rope_scaling": scaling if scaled and kind in _ROPE_TYPES else None,
    }

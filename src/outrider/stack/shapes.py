"""A model's shape without its weights: a folder with `config.json` and a stand-in tokenizer, which an engine loads with dummy
weights.

For a forecast: how long a step takes depends on the shape, not on what the weights say. `shaped` replaces a stack's models by
such folders in the cache, one folder per content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from outrider.core.errors import Problem, StackError
from outrider.stack.facts import FactsError, HubError
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.read_facts import parse_json
from outrider.stack.stand_in_tokenizer import tokenizer_files
from outrider.stack.weights import kind_of, local_folder
from outrider.stack.weights_cache import cache_folder, obtain

RECIPE = 1  # raise it when the same config makes another folder
Config = Mapping[str, object]

# FP8 as the published FP8-dynamic checkpoints store it: weights per channel, activations per token, the output layer left alone.
# Source: `quantization_config` of compressed-tensors 0.17, scheme FP8_DYNAMIC.
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
FP8_DYNAMIC: Config = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_FP8, "strategy": "channel", "dynamic": False, "observer": "minmax"},
            "input_activations": {**_FP8, "strategy": "token", "dynamic": True},
        }
    },
}


def shaped(stack: Stack, cache: Path | None = None) -> Stack:
    """The stack with its models replaced by shape folders; itself if it forecasts nothing, or with real weights.

    Raises:
        StackError: no `config.json` can be had for a model, or it does not say what is needed.
    """
    if not stack.dummy_weights:
        return stack
    target = dict(_config_of("target", stack.target.model, stack.target.revision))
    if stack.target.quantization == "fp8" and not target.get("quantization_config"):
        target["quantization_config"] = dict(FP8_DYNAMIC)
    changes: dict[str, object] = {
        "target": stack.target.model_copy(
            update={
                "model": str(shape_folder(target, cache)),
                "revision": None,
                "sha256": None,
                "served_name": stack.served_name,
            }
        )
    }
    if stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model:
        draft = dict(_config_of("draft", stack.draft.model, stack.draft.revision))
        if stack.draft.method == "p-eagle":
            draft = parallel(draft)
        changes["draft"] = stack.draft.model_copy(
            update={"model": str(shape_folder(draft, cache)), "revision": None}
        )
    return stack.model_copy(update=changes)


def parallel(head: Config) -> dict[str, object]:
    """A head's config as one that drafts in parallel; an EAGLE-3 head's gets a mask token, the last of its vocabulary.

    Source: vLLM 0.32 `v1/spec_decode/llm_base_proposer.py`: `pard_token`, `ptd_token_id`; Speculators: `mask_token_id`.
    """
    if any(head.get(name) is not None for name in ("ptd_token_id", "pard_token", "mask_token_id")):
        return dict(head)
    vocabulary = head.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        raise FactsError("the head's config.json does not say vocab_size")
    return {**head, "ptd_token_id": vocabulary - 1}


def shape_folder(config: Config, cache: Path | None = None) -> Path:
    """A folder that vLLM loads with ``--load-format dummy``: `config` and a tokenizer of its vocabulary's size.

    Made once for each content, under `cache` (default: the user's). Raises FactsError: no `vocab_size`; WeightsError: the
    cache cannot be written.
    """
    text = json.dumps(config, indent=1, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    vocabulary = _vocabulary_size(config)

    def make(folder: Path, scratch: Path) -> Mapping[str, object]:
        (folder / "config.json").write_text(text, encoding="utf-8")
        for name, content in tokenizer_files(vocabulary).items():
            (folder / name).write_text(content, encoding="utf-8")
        return {"source": "config.json", "weights": "none: a shape for dummy weights", "recipe": RECIPE}

    return obtain((cache or cache_folder()) / "shapes" / f"{digest}-r{RECIPE}", make, lambda message: None)


def _vocabulary_size(config: Config) -> int:
    for part in (config, config.get("text_config"), config.get("transformer_layer_config")):
        size = part.get("vocab_size") if isinstance(part, Mapping) else None
        if isinstance(size, int) and not isinstance(size, bool) and 16 <= size <= 2_000_000:
            return size
    raise FactsError("config.json does not say a usable vocab_size")


def _config_of(side: str, model: str, revision: str | None) -> Config:
    try:
        return read_config(model, revision)
    except (FactsError, OSError) as error:
        hint = error.hint if isinstance(error, HubError) else ""
        problem = Problem(
            f"no config.json to take the shape from: {error}",
            f"{side}.model",
            "forecast-shape",
            hint or "Name a hub id, a folder with a config.json, or the file itself (`./name.config.json`).",
        )
        raise StackError("This stack cannot be forecast; nothing was loaded.", (problem,)) from error


def read_config(model: str, revision: str | None = None) -> Config:
    """`config.json` of a hub id, a folder, a bare config file, or a package whose config ships with Outrider.

    Raises:
        FactsError, HubError: it is not there, or is no JSON object.
        WeightsError: `model` is no reference at all.
    """
    if model.endswith(".json"):
        return parse_json(Path(model).expanduser().read_bytes(), model)
    kind = kind_of(model)
    if kind in ("folder", "builtin"):
        path = local_folder(model) / "config.json"
        return parse_json(path.read_bytes(), str(path))
    if kind == "package":
        name, _, version = model.removeprefix("pypi:").partition("==")
        packaged = resources.files("outrider") / "data" / "stacks" / f"{name}-{version}.config.json"
        if packaged.is_file():
            return parse_json(packaged.read_bytes(), packaged.name)
    if kind in ("package", "gguf"):
        raise FactsError(f"{model} holds its shape inside the weights")
    from outrider.stack.hub import read_config as read_hub_config  # noqa: PLC0415  # 0.3 s to import

    return read_hub_config(model, revision)

"""The folder that the engine loads: config.json in Speculators' format and one safetensors file, both whole or neither.

What vLLM needs, read in 0.26.0 and 0.32.0 (`transformers_utils/configs/speculators/{base,algos}.py`, `models/llama_eagle3.py`,
`v1/spec_decode/llm_base_proposer.py`):

- `speculators_model_type` ``eagle3`` or ``peagle``; `transformer_layer_config` of a Llama or Qwen3; `speculators_config` with a
  proposal method and a verifier's name (any text: the stack says which target is served);
- for P-EAGLE `mask_token_id` (handed on as ``pard_token``) and the tensor ``mask_hidden``, refused without;
- `d2t` where the draft vocabulary is smaller; `t2d` is skipped (Speculators' own loader wants it, so it is written);
- `lm_head.weight` if it is not the target's whole one; no `embed_tokens`: the target's is shared then.

No `auto_map`, no code: nothing in the folder is run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import save

from outrider.core.files import placed
from outrider.train.trainer.head import written_tensors

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_NOT_WRITTEN = ("auto_map", "_name_or_path")


def head_config(head: Any) -> dict[str, Any]:
    """What its config.json holds."""
    config = json.loads(head.config.to_json_string(use_diff=True))
    for key in _NOT_WRITTEN:
        config.pop(key, None)
    layer = config["transformer_layer_config"]
    layer.pop("_attn_implementation", None)
    layer["model_type"] = "llama"
    return {**config, "architectures": [type(head).__name__], "dtype": "bfloat16"}


def export(head: Any, out: Path) -> int:
    """Write the head into `out`; the bytes of its weights.

    Both files are complete beside their places before an old config is taken away; then the weights move, and the config last:
    a folder with a config has the weights that belong to it. Raises OSError.
    """
    weights = save(written_tensors(head), metadata={"format": "pt"})
    config = json.dumps(head_config(head), indent=1, sort_keys=True) + "\n"
    with placed(out / CONFIG) as config_beside, placed(out / WEIGHTS) as weights_beside:
        _write(weights_beside, weights)
        _write(config_beside, config.encode())
        for name in (CONFIG, WEIGHTS):
            (out / name).unlink(missing_ok=True)
    return len(weights)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)

"""The frozen target: its states at three layers and before its last norm, and its choice of the next token.

Aux id i is the input of decoder layer i, as vLLM numbers them (transformers' ``hidden_states[i]``); id n, the last layer's
output, is refused: `last` is that already. `last` is the residual before the final norm: ``hidden_states[-1]`` of transformers
is after it. Rows are padded at their ends, which causal attention never sees.

Source: `get_eagle3_default_aux_hidden_state_layers` and the aux states of vLLM 0.32 `model_executor/models/llama.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.core.errors import TrainingError
from outrider.train.trainer.corpus import Corpus
from outrider.train.trainer.feed import Placed

CHUNK = 4096  # places whose logits over the whole vocabulary are held at a time


@dataclass(frozen=True, slots=True)
class Features:
    """What the head learns from: `aux` [rows, length, 3 × hidden], `last` [rows, length, hidden], bf16."""

    aux: Any
    last: Any


class Target:
    """The model, and the hooks that keep its states of the latest forward."""

    def __init__(self, folder: Path, device: str, dtype: Any) -> None:
        """Load it. Raises TrainingError: not a folder of a model that transformers knows, or built in another way."""
        try:
            self.model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise TrainingError(
                f"the target cannot be loaded: {reason}",
                hint="Name a folder with config.json and safetensors of a model that transformers knows.",
            ) from error
        self.model.to(device).eval().requires_grad_(False)
        self.base = self.model.base_model
        if not hasattr(self.base, "layers") or not hasattr(self.base, "norm"):
            kind = type(self.base).__name__
            raise TrainingError(
                f"{kind} has no `layers` and `norm` to read states from",
                hint="Heads are trained for models built like Llama and Qwen.",
            )
        self.config = self.model.config.get_text_config()
        self._kept: dict[int | str, Any] = {}
        self._hooks: list[Any] = []
        self.aux_layers: tuple[int, ...] = ()

    @property
    def embedding(self) -> Any:
        """Rows of its input tokens [vocabulary, hidden]."""
        return self.model.get_input_embeddings().weight

    @property
    def output_rows(self) -> Any:
        """Rows of its output [vocabulary, hidden]."""
        return self.model.get_output_embeddings().weight

    def watch(self, aux_layers: tuple[int, ...]) -> None:
        """Keep the inputs of these layers, and of the last norm. Raises TrainingError: layers that it does not have."""
        count = len(self.base.layers)
        if outside := [one for one in aux_layers if not 0 <= one < count]:
            raise TrainingError(
                f"the target has layers 0 to {count - 1}, not {', '.join(map(str, outside))}",
                hint="Name other aux layers.",
            )
        self.aux_layers = aux_layers
        watched: dict[int | str, Any] = {one: self.base.layers[one] for one in aux_layers}
        for key, module in {**watched, "last": self.base.norm}.items():
            self._hooks.append(module.register_forward_pre_hook(self._keeper(key), with_kwargs=True))

    def _keeper(self, key: int | str) -> Any:
        def keep(_module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._kept[key] = args[0] if args else named["hidden_states"]

        return keep

    def features(self, tokens: Any) -> Features:
        """Its states of `tokens` [rows, length]. `no_grad`, not `inference_mode`: the head's backward saves them."""
        with torch.no_grad():
            self.base(input_ids=tokens, use_cache=False)
            aux = torch.cat([self._kept[one] for one in self.aux_layers], dim=-1).to(torch.bfloat16)
            last = self._kept["last"].to(torch.bfloat16)
        self._kept.clear()
        return Features(aux, last)

    def normed(self, last: Any) -> Any:
        """After its own last norm, whatever that multiplies by."""
        with torch.no_grad():
            return self.base.norm(last.to(self.output_rows.dtype))

    def choices(self, last: Any) -> Any:
        """Its greedy next tokens [places] after states [places, hidden], over its whole vocabulary."""
        with torch.no_grad():
            parts = [(self.normed(part) @ self.output_rows.T).argmax(-1) for part in last.split(CHUNK)]
        return torch.cat(parts) if parts else last.new_zeros(0, dtype=torch.int64)


class FeatureStore:
    """The target's states of each batch, kept on the device after a row's first use if there is room (`cached`).

    8 × hidden size bytes a token. A kept row is as the target gave it, whichever rows it is beside later.
    """

    def __init__(self, target: Target, corpus: Corpus, cached: bool) -> None:
        self._target = target
        self._known = np.zeros(len(corpus.lengths), np.bool_)
        self._aux = self._last = None
        if cached:
            width, device = target.config.hidden_size, target.embedding.device
            size, layers = len(corpus.tokens), len(target.aux_layers)
            self._aux = torch.empty(size, layers * width, dtype=torch.bfloat16, device=device)
            self._last = torch.empty(size, width, dtype=torch.bfloat16, device=device)

    def of(self, placed: Placed) -> Features:
        """The states of a batch that is on the device."""
        if self._aux is None or self._last is None:
            return self._target.features(placed.tokens)
        rows = placed.batch.rows
        if self._known[rows].all():
            return self._kept(placed)
        made = self._target.features(placed.tokens)
        self._aux[placed.of_corpus] = made.aux.flatten(0, 1)[placed.real]
        self._last[placed.of_corpus] = made.last.flatten(0, 1)[placed.real]
        self._known[rows] = True
        return made

    def _kept(self, placed: Placed) -> Features:
        assert self._aux is not None and self._last is not None  # noqa: S101, PT018  (asked by `of`)
        lines, length = placed.tokens.shape
        aux = self._aux.new_zeros(lines * length, self._aux.shape[1])
        last = self._last.new_zeros(lines * length, self._last.shape[1])
        aux[placed.real] = self._aux[placed.of_corpus]
        last[placed.real] = self._last[placed.of_corpus]
        return Features(aux.view(lines, length, -1), last.view(lines, length, -1))


def feature_bytes(tokens: int, hidden_size: int, layers: int = 3) -> int:
    """Bytes of the kept states of so many tokens."""
    return tokens * hidden_size * (layers + 1) * 2


def tokenizer_sizes(folder: Path) -> tuple[int, tuple[int, ...]]:
    """How many tokens the tokenizer has, and the ids of those it adds beside its words. Raises TrainingError."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"the target's tokenizer cannot be loaded: {str(error).partition(chr(10))[0]}",
            hint="Put tokenizer.json beside its config.json.",
        ) from error
    return len(tokenizer), tuple(tokenizer.added_tokens_decoder)

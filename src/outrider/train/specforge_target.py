"""What SpecForge 0.2.0 is to train, and for which target; what it cannot do is refused here. Pure.

Source: SpecForge 0.2.0, `config/schema.py`, `algorithms/eagle3` and `algorithms/peagle` (providers, capabilities),
`algorithms/common/collation.py`, `modeling/target/target_head.py`, `modeling/draft/base.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from outrider.core.errors import TrainingError
from outrider.stack.facts import ModelFacts
from outrider.stack.pair_heads import default_aux_layers

VERSION = "0.2.0"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FLOATS = frozenset({"BF16", "F16", "F32"})


@dataclass(frozen=True, slots=True)
class SpecForgeSettings:
    """What to train there, and on what machine.

    `features`: "offline" keeps the target's states of all rows on disk first (EAGLE-3 alone, one GPU is enough); "online" has
    SGLang make them while the head trains (two GPUs at least). None: offline for EAGLE-3, online for P-EAGLE.
    `draft_vocab_size` 0: all of the target's. `depth`: tokens ahead that are trained; None: SpecForge's own (7; P-EAGLE 8).
    `mask_token`: what P-EAGLE reads where there is no token yet; None: one that no row holds.
    """

    method: Literal["eagle3", "p-eagle"] = "eagle3"
    features: Literal["offline", "online"] | None = None
    draft_vocab_size: int = 8192
    draft_layers: int = 1
    depth: int | None = None
    mask_token: int | None = None
    max_length: int = 2048
    epochs: int = 8
    batch_size: int = 1
    learning_rate: float = 1e-4
    seed: int = 0
    trainer_gpus: int = 1
    capture_gpus: int = 1

    @property
    def online(self) -> bool:
        """Whether SGLang makes the target's states while the head trains."""
        return self.features == "online" or (self.features is None and self.method == "p-eagle")


@dataclass(frozen=True, slots=True)
class SpecForgeTarget:
    """What is known of the target.

    `name`: what the machine that trains calls it, a hub id or a whole path; `revision`: of a hub id. `config`: its config.json.
    `weight_files`: its safetensors files; `index`: whether a file beside them says which tensor lies in which. `special`: tokens
    that no text has.
    """

    name: str
    revision: str
    facts: ModelFacts
    config: Mapping[str, object]
    chat_template: str
    weight_files: tuple[str, ...]
    index: bool
    special: tuple[int, ...]


def is_hub_id(name: str) -> bool:
    """Whether `name` is one of a hub's (`org/name`), which any machine can fetch."""
    return _HUB_ID.fullmatch(name) is not None


def refuse_settings(settings: SpecForgeSettings) -> None:
    """Raises TrainingError for what SpecForge 0.2.0 cannot do."""
    counts = {
        "max_length": settings.max_length,
        "epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "trainer_gpus": settings.trainer_gpus,
        "capture_gpus": settings.capture_gpus,
        "draft_layers": settings.draft_layers,
        "depth": 1 if settings.depth is None else settings.depth,
    }
    if settings.draft_vocab_size < 0:
        raise TrainingError(
            "draft_vocab_size is below 0", hint="Give a whole number; 0 means all of the target's."
        )
    if low := [name for name, value in counts.items() if value < 1]:
        raise TrainingError(f"{', '.join(low)} must be at least 1", hint="Give whole numbers from 1 up.")
    if settings.method == "p-eagle" and not settings.online:
        raise TrainingError(
            f"SpecForge {VERSION} trains P-EAGLE online only: it has no reader of kept states for it",
            hint="Leave `features` out (or say online), or train with Outrider's own trainer.",
        )
    if settings.online and settings.batch_size != 1:
        raise TrainingError(
            f"SpecForge {VERSION} trains online with one row a step and GPU, not {settings.batch_size}",
            hint="Set batch_size 1; more trainer GPUs make the batch larger.",
        )
    if settings.method == "eagle3" and settings.draft_layers != 1:
        raise TrainingError(
            f"SpecForge {VERSION} trains EAGLE-3 drafts of one layer, not {settings.draft_layers}",
            hint="Leave draft_layers out, or train with Outrider's own trainer.",
        )


def refuse_target(target: SpecForgeTarget) -> None:
    """Raises TrainingError for a target that SpecForge 0.2.0 cannot read."""
    own = "Train with Outrider's own trainer (leave --backend out)."
    if target.facts.multimodal:
        raise TrainingError(f"{target.name}: SpecForge {VERSION} trains drafts of text models only", hint=own)
    if not target.weight_files or (len(target.weight_files) > 1 and not target.index):
        raise TrainingError(
            f"{target.facts.source} holds no safetensors weights that SpecForge could read",
            hint="Name a folder with model.safetensors, or with parts and model.safetensors.index.json.",
        )
    for tensor in (embedding_key(target), lm_head_key(target)):
        if target.facts.tensors[tensor].dtype not in _FLOATS:
            raise TrainingError(
                f"{target.name}: {tensor} is stored as {target.facts.tensors[tensor].dtype}; SpecForge reads it as it stands",
                hint="Name an unquantised copy of the target.",
            )


def embedding_key(target: SpecForgeTarget) -> str:
    """The embedding's name among the target's tensors. Raises TrainingError."""
    names = [name for name in target.facts.tensors if name.endswith("embed_tokens.weight")]
    if len(names) != 1:
        raise TrainingError(
            f"{target.facts.source} has {len(names)} tensors named embed_tokens.weight, one is needed",
            hint="SpecForge takes the draft's embedding from it. Train with Outrider's own trainer (leave --backend out).",
        )
    return names[0]


def lm_head_key(target: SpecForgeTarget) -> str:
    """The output layer's name among the target's tensors: a tied target stores none of its own. Raises TrainingError."""
    names = [name for name in target.facts.tensors if name.endswith("lm_head.weight")]
    if len(names) == 1:
        return names[0]
    if not names and target.facts.tied_embeddings:
        return embedding_key(target)
    raise TrainingError(
        f"{target.facts.source} has {len(names)} tensors named lm_head.weight, one is needed",
        hint="SpecForge scores the draft with it. Is the download complete?",
    )


def aux_layers(target: SpecForgeTarget) -> tuple[int, ...]:
    """The layers whose *inputs* the draft reads, as vLLM counts them. Raises TrainingError where the target is too shallow."""
    layers = default_aux_layers(target.facts.layers)
    if layers[0] < layers[1] < layers[2]:
        return layers
    raise TrainingError(
        f"{target.name} has {target.facts.layers} layers: too few for the three that a draft reads",
        hint="Take a target of at least 8 layers.",
    )

"""What one training is told: a JSON file that the trainer process reads, and that a resumed run is held against.

Frozen pydantic models; unknown keys are refused. A field that is None takes a default that depends on the method or the device:
`settled` fills them in, and only settled jobs are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from outrider.core.errors import TrainingError

Method = Literal["eagle3", "p-eagle"]
Loss = Literal["kl_div", "rkl", "jsd", "ce", "tv", "nla", "lk_hybrid"]
Device = Literal["cpu", "cuda"]

VOCABULARY, TRAIN_LOG = "vocabulary.json", "train_log.jsonl"

# Of a job, but no settings: said elsewhere, or paths of this machine.
NOT_SETTINGS = frozenset({"method", "target", "target_name", "rows", "out", "work"})

# What may differ when a run goes on: where things lie, how they are computed, how often they are said or kept.
FREE = frozenset(
    {
        *("target", "rows", "out", "work", "device", "attention", "cache_features", "max_minutes"),
        *("checkpoint_every_s", "progress_every_s"),
    }
)

_DEPTH: dict[tuple[Method, Device], int] = {
    ("eagle3", "cuda"): 4,
    ("eagle3", "cpu"): 3,
    ("p-eagle", "cuda"): 6,
    ("p-eagle", "cpu"): 5,
}
_BATCH_TOKENS: dict[Device, int] = {"cuda": 16384, "cpu": 2048}
_EPOCHS: dict[Device, int] = {"cuda": 8, "cpu": 4}


class TrainJob(BaseModel):
    """One head for one target.

    Settings that are None in the file follow the method and the device, as their descriptions say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: Method = Field(description="`eagle3` drafts one token after another, `p-eagle` all in one pass.")
    target: Path = Field(description="Folder of the target: config.json, safetensors, tokenizer.")
    target_name: str = Field(
        min_length=1,
        max_length=256,
        pattern=r"^[^/\\\x00-\x1f\s][^\\\x00-\x1f]*$",
        description="What the head's config.json calls its target: a hub id or a served name, never a path.",
    )
    rows: tuple[Path, ...] = Field(
        min_length=1, description="Files of rows: token ids and loss mask of conversations, one JSON a line."
    )
    out: Path = Field(description="Folder that gets the head: config.json and model.safetensors.")
    work: Path = Field(
        description="Folder of the checkpoint, vocabulary.json and train_log.jsonl; a run goes on from it."
    )

    draft_vocab_size: int = Field(
        8192,
        ge=0,
        description="Tokens the head can draft, the most frequent ones of the answers; 0: all of the target's.",
    )
    layers: int = Field(1, ge=1, le=8, description="Decoder layers of the head.")
    intermediate_size: int | None = Field(
        None, ge=1, description="Width of the head's MLP; default: the target's. Sets the head's size."
    )
    aux_layers: tuple[int, int, int] | None = Field(
        None,
        description="The target's layers whose inputs the head sees; default: 2, n // 2 and n - 3 of its n layers.",
    )
    depth: int | None = Field(
        None,
        ge=1,
        le=16,
        description="Tokens ahead that are trained: rounds in which EAGLE-3 reads its own states (default 4; 3 on a CPU), or "
        "P-EAGLE's parallel places (default 6; 5 on a CPU).",
    )
    depth_weight: float = Field(
        1.0, gt=0, le=1, description="EAGLE-3: each round's loss weighs this much of the one before."
    )
    chain_share: float = Field(
        0.7,
        gt=0,
        le=1,
        description="P-EAGLE: share of the places whose chain of masked places goes one deeper.",
    )
    chain_floor: float = Field(
        0.2, ge=0, le=1, description="P-EAGLE: no depth is trained at fewer than this share of the places."
    )

    batch_tokens: int | None = Field(
        None, ge=64, description="Tokens a step, padding included; default 16384, on a CPU 2048."
    )
    max_row_tokens: int = Field(2048, ge=16, description="Longer rows are cut off here.")
    epochs: int | None = Field(
        None, ge=1, le=1000, description="Times that every row is seen; default 8, on a CPU 4."
    )
    max_minutes: float | None = Field(
        None,
        gt=0,
        description="Stop after this long, resumed parts included; the learning rate ends with it. "
        "A last look at held-out rows comes on top.",
    )
    optimizer: Literal["muon", "adamw"] = Field(
        "muon", description="`muon` for the matrices (the rest by AdamW), or `adamw` for all."
    )
    learning_rate: float = Field(1e-3, gt=0, description="AdamW's highest rate.")
    muon_learning_rate: float | None = Field(
        None,
        gt=0,
        description="Muon's highest rate; default: 0.006, or 3.5 over the target's hidden size where that is less.",
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's.")
    muon_weight_decay: float = Field(0.1, ge=0, description="Muon's.")
    warmup_steps: int = Field(
        100, ge=0, description="Steps until the highest rate; at most a twentieth of all."
    )
    clip_norm: float = Field(1.0, gt=0, description="Longer gradients are scaled down to this norm.")
    loss: Loss = Field(
        "kl_div",
        description="Distance of the head's distribution from the target's: `kl_div`, `rkl` (reversed), `jsd`, `ce` (the "
        "target's first choice), `tv`, `nla` (log of the acceptance rate) or `lk_hybrid` (KL first, then TV).",
    )
    held_out_ratio: float = Field(
        0.05, gt=0, lt=0.5, description="Share of the rows that is kept for measuring, 400 rows at most."
    )
    seed: int = Field(
        0, ge=0, lt=2**63, description="First weights, held-out rows, order of the rows, P-EAGLE's chains."
    )

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: cuda where there is one.")
    attention: Literal["auto", "cudnn", "math"] = Field(
        "auto",
        description="PyTorch's attention kernels. `auto`: flash where nothing but order is masked, memory-efficient elsewhere; "
        "`cudnn`: also cuDNN's, which plans every new shape; `math`: the plain one. None of them is compiled at start.",
    )
    cache_features: bool | None = Field(
        None,
        description="Keep the target's states of each row after their first use (8 × hidden size bytes a token, on the "
        "device); default: if they fit into 70 % of the free memory and there is a second epoch.",
    )
    checkpoint_every_s: float = Field(60.0, ge=0, description="Seconds between checkpoints; 0: each step.")
    progress_every_s: float = Field(2.0, ge=0, description="Seconds between progress events; 0: each step.")

    @model_validator(mode="after")
    def _aux_layers_differ(self) -> TrainJob:
        if self.aux_layers and len(set(self.aux_layers)) != len(self.aux_layers):
            raise ValueError("aux_layers must be three different layers")
        return self

    def settled(self, device: Device) -> SettledJob:
        """The job with nothing left open but what needs memory or the target.

        The target: `aux_layers`, `intermediate_size`, `muon_learning_rate`.
        """
        filled = {
            "depth": self.depth or _DEPTH[self.method, device],
            "batch_tokens": self.batch_tokens or _BATCH_TOKENS[device],
            "epochs": self.epochs or _EPOCHS[device],
        }
        return SettledJob.model_validate({**self.model_dump(), **filled, "device": device})

    def changes_from(self, before: dict[str, object]) -> tuple[str, ...]:
        """Names of the settings, other than FREE ones, in which another job's JSON differs from this one."""
        mine = self.model_dump(mode="json")
        return tuple(sorted(key for key in mine.keys() | before.keys() if _differ(key, mine, before)))


class SettledJob(TrainJob):
    """A job on its device."""

    depth: int = Field(ge=1, le=16)
    batch_tokens: int = Field(ge=64)
    epochs: int = Field(ge=1, le=1000)
    device: Device


def read_job(path: Path) -> TrainJob:
    """A job out of its file. Raises TrainingError, which names every wrong setting."""
    hint = "The file is written by `outrider train`; run that again."
    try:
        return TrainJob.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TrainingError(f"{path.name} cannot be read: {error.strerror or error}", hint=hint) from error
    except ValidationError as error:
        raise TrainingError(f"{path.name}: {in_words(error)}", hint=hint) from error


def checked_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Settings that somebody gave, each of its type; what is None follows the method and the device, and is left out.

    Raises TrainingError, which names every one that is wrong or is no setting.
    """
    hint = "docs/train-settings.md lists them."
    if foreign := sorted(given.keys() & NOT_SETTINGS):
        raise TrainingError(f"{', '.join(foreign)}: no setting of the trainer", hint=hint)
    here = Path()
    rest = {
        "method": "eagle3",
        "target": here,
        "target_name": "any",
        "rows": (here,),
        "out": here,
        "work": here,
    }
    try:
        job = TrainJob.model_validate({**given, **rest})
    except ValidationError as error:
        raise TrainingError(f"a setting is not right: {in_words(error)}", hint=hint) from error
    return job.model_dump(mode="json", include=set(given), exclude_none=True)


def in_words(error: ValidationError) -> str:
    """What is wrong with a job, in one line: each setting's name and why."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors(include_url=False)
    )


def _differ(key: str, mine: dict[str, object], before: dict[str, object]) -> bool:
    return key not in FREE and mine.get(key) != before.get(key)

"""What a trainer process says while it works: one JSON object a line on its standard output.

Times are seconds, rates tokens per second (padding not counted), accuracies the share of held-out places at which the head and
the target (greedy) agree on this and every earlier drafted token: what vLLM's counters call the rate of that position.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Planned:
    """Before the first step. `dtype` is what the head calculates in, `target_dtype` what the target does.

    Bytes are of bf16: `head_bytes` without what is the target's (embedding, lm_head rows), `file_bytes` of the file's tensors.
    `resumed_steps` were done by an earlier run. `notes`: what was decided by itself, in sentences.
    """

    method: str
    device: str
    dtype: str
    target_dtype: str
    rows: int
    held_out_rows: int
    tokens: int
    answer_tokens: int
    epochs: int
    steps: int
    resumed_steps: int
    depth: int
    aux_layers: tuple[int, ...]
    draft_vocab_size: int
    coverage: float
    mask_token: int | None
    trained_parameters: int
    head_bytes: int
    file_bytes: int
    optimizer: str
    loss: str
    loss_kernel: str
    attention: str
    cache_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progressed:
    """Every few seconds. `loss` is the mean since the last one; rates, shares and use are of the time since then too.

    `target_share`: of the step's time that the target's forward takes; `padding_share`: of the places that are padding.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    learning_rate: float
    tok_s: float
    seconds_left: float
    target_share: float | None = None
    padding_share: float | None = None
    gpu_use: float | None = None
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """After an epoch, and at the end: the head on held-out rows. `length`: 1 + the accuracies, vLLM's acceptance length.

    `loss`: mean of the epoch's steps of this run; None where it had none. `rate`: share of the settings' rates from here on."""

    epoch: int
    step: int
    loss: float | None
    held_out_loss: float
    accuracy: tuple[float, ...]
    length: float
    tok_s: float
    elapsed_s: float
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The head stands in its folder. `first_step_s`: from the start of this process to its first step's end (0: none)."""

    steps: int
    epochs: int
    tokens: int
    elapsed_s: float
    tok_s: float
    first_step_s: float
    target_share: float | None
    gpu_use: float | None
    peak_memory_bytes: int
    held_out_loss: float
    accuracy: tuple[float, ...]
    length: float
    file_bytes: int
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a run without a head. `kind`: interrupted, out-of-memory, disk-full, diverged, not-installed, refused, error."""

    kind: str
    message: str
    hint: str


TrainerEvent = Planned | Progressed | Evaluated | Finished | Failed

_KINDS: dict[str, type[Any]] = {
    "plan": Planned,
    "progress": Progressed,
    "epoch": Evaluated,
    "done": Finished,
    "error": Failed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_line(event: TrainerEvent) -> str:
    """One line of JSON, without its end."""
    return json.dumps({"event": _NAMES[type(event)], **asdict(event)})


def from_line(line: str) -> TrainerEvent | None:
    """The event of a line; None for a line that is none (a library's print)."""
    try:
        record = json.loads(line)
        kind = _KINDS[record.pop("event")]
        known = {one.name for one in fields(kind)}
        parts = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.items()
            if name in known
        }
        event: TrainerEvent = kind(**parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return event

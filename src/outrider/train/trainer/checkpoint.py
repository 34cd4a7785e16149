"""What a killed run goes on from: one file, written beside its place and moved there, read with `weights_only`.

No random state is kept, because none is carried on: first weights come from the seed, the order of rows and P-EAGLE's chains from
the seed and their number, so a place in the data is all that a run needs to go on as it would have.
"""

from __future__ import annotations

import io
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from outrider.core.errors import TrainingError
from outrider.core.files import placed
from outrider.train.job import SettledJob

FILE = Path("checkpoint") / "state.pt"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run is: steps done, the next batch (`batch` of `epoch`, both from 0), tokens seen, seconds spent.

    `first_step_s`: from the first start to the first step's end. `paced_tokens` took `paced_s` seconds of steps alone.
    `rate`: share of the settings' rates that is in use; `lowest_loss`: of the held-out rows, up to now.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    first_step_s: float = 0.0
    paced_tokens: int = 0
    paced_s: float = 0.0
    rate: float = 1.0
    lowest_loss: float = math.inf


def save(
    work: Path, job: SettledJob, data: dict[str, int], head: Any, optimizers: list[Any], at: Position
) -> None:
    """Write it whole or not at all, on the disk when it returns. Raises OSError; leaves the one before as it was."""
    moved = {name: one.detach() for name, one in head.named_parameters() if one.requires_grad}
    state = {
        "format": FORMAT,
        "job": job.model_dump(mode="json"),
        "data": data,
        "position": asdict(at),
        "head": moved,
        "optimizers": [one.state_dict() for one in optimizers],
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with placed(work / FILE) as beside, beside.open("wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def load(work: Path, job: SettledJob, data: dict[str, int], head: Any, optimizers: list[Any]) -> Position:
    """Set head and optimisers to where a run stopped; the beginning where none did.

    Raises:
        TrainingError: it was a run with other settings or rows (named), or the file cannot be read.
    """
    path = work / FILE
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return Position()
    except Exception as error:  # torch raises many kinds for a damaged file
        raise _unreadable(str(error)) from error
    try:
        return _restore(state, job, data, head, optimizers)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise _unreadable(f"it is no state of this training ({type(error).__name__}: {error})") from error


def _restore(
    state: dict[str, Any], job: SettledJob, data: dict[str, int], head: Any, optimizers: list[Any]
) -> Position:
    """Raises TrainingError: of another training. KeyError, TypeError, AttributeError, ValueError, RuntimeError: no state."""
    is_known = state["format"] == FORMAT
    changed = job.changes_from(state["job"]) if is_known else ("another format",)
    changed += tuple(f"data.{key}" for key in data if is_known and data[key] != state["data"].get(key))
    if changed:
        raise TrainingError(
            f"the folder holds a training with other settings: {', '.join(changed)}",
            hint="Train into another folder, or remove its `checkpoint` to begin anew.",
        )
    own = dict(head.named_parameters())
    with torch.no_grad():
        for name, value in state["head"].items():
            own[name].copy_(value)
    for one, kept in zip(optimizers, state["optimizers"], strict=True):
        one.load_state_dict(kept)
    return Position(**state["position"])


def _unreadable(reason: str) -> TrainingError:
    return TrainingError(
        f"{FILE} cannot be read: {reason.partition(chr(10))[0][:200]}",
        hint="Remove the folder `checkpoint`: the training begins anew.",
    )

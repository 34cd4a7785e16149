"""What moves the weights: Muon for matrices and AdamW for the rest, or AdamW alone; and the rate at each step.

Which weights go to Muon follows Speculators' trainer (two dimensions, no embedding and no output rows: those are frozen here).

Source: speculators 0.9.0 `train/optimizers.py` and its defaults; `torch.optim.Muon`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from outrider.train.job import SettledJob
from outrider.train.trainer.head import trained_parameters
from outrider.train.trainer.muon import Float32Muon

MUON_RATE, MUON_RATE_BY_WIDTH = (
    6e-3,
    3.5,
)  # over the width: a step then moves a sum over so many terms no further
LOWEST_SHARE = 0.02  # of the highest rate, at the end
WARMUP_SHARE = 0.05


def build_optimizers(head: Any, job: SettledJob, width: int, *, bf16: bool = True) -> list[Any]:
    """One or two optimisers, each group with its highest rate in ``peak``.

    `width`: the target's hidden size; `bf16`: whether the device multiplies it, as PyTorch's Muon does.
    """
    named = trained_parameters(head)
    matrices = [pair for pair in named if pair[1].ndim == 2] if job.optimizer == "muon" else []
    rest = [pair for pair in named if pair[1].ndim != 2] if job.optimizer == "muon" else named
    made: list[Any] = []
    if matrices:
        made.append(
            (torch.optim.Muon if bf16 else Float32Muon)(
                matrices,
                lr=job.muon_learning_rate or min(MUON_RATE, MUON_RATE_BY_WIDTH / width),
                momentum=0.95,
                weight_decay=job.muon_weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    if rest:
        made.append(torch.optim.AdamW(rest, lr=job.learning_rate, weight_decay=job.weight_decay))
    for one in made:
        for group in one.param_groups:
            group["peak"] = group["lr"]
    return made


def rate_share(step: int, steps: int, elapsed_share: float, warmup_steps: int) -> float:
    """Share of the highest rate at a step (from 0): a linear warm-up, then a cosine to 2 %.

    The cosine follows whichever is further on: steps, or `elapsed_share` of the time that the run may take.
    """
    warmup = max(1, min(warmup_steps, int(steps * WARMUP_SHARE)))
    progress = min(1.0, max(step / max(1, steps), elapsed_share))
    cosine = LOWEST_SHARE + (1 - LOWEST_SHARE) * 0.5 * (1 + math.cos(math.pi * progress))
    return min((step + 1) / warmup, cosine)


def set_rate(optimizers: list[Any], share: float) -> float:
    """Set every group's rate to a share of its highest; the first group's rate."""
    for one in optimizers:
        for group in one.param_groups:
            group["lr"] = group["peak"] * share
    return float(optimizers[0].param_groups[0]["lr"])

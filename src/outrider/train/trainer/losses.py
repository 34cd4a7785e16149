"""The distances that can be trained on: Speculators' Triton kernels where they run, its plain functions elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from speculators.losses import resolve_loss_config

from outrider.train.job import Loss


@dataclass(frozen=True, slots=True)
class Distance:
    """`of(logits, targets)`: the distance at each place [places], both [places, draft vocabulary]. `kernel`: fused or eager."""

    name: str
    kernel: str
    function: Callable[[Any, Any], Any]
    note: str = ""

    def of(self, logits: Any, targets: Any) -> Any:
        """Per place, float32."""
        return self.function(logits.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)


def choose_distance(name: Loss, device: str) -> Distance:
    """The fused kernel on a GPU if a first call of it, forward and backward, works; `note` says why it does not."""
    if device != "cuda":
        return Distance(name, "eager", resolve_loss_config(name, "eager")[name][0])
    try:
        fused = Distance(name, "fused", resolve_loss_config(name, "fused")[name][0])
        logits = torch.randn(4, 128, device=device, dtype=torch.bfloat16, requires_grad=True)
        fused.of(logits, torch.randn_like(logits)).sum().backward()
        torch.cuda.synchronize()
    except Exception as error:  # whatever Triton, its compiler or the driver raise
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        eager = resolve_loss_config(name, "eager")[name][0]
        return Distance(name, "eager", eager, f"The fused {name} kernel does not run here ({reason}).")
    return fused

"""Muon for a processor that does not multiply bf16: the same steps, each matrix made orthogonal in float32.

PyTorch's own casts to bf16 whatever the processor can. Without bf16 instructions its five rounds over the matrices of a head for
SmolLM2-135M take 25 s a step on two cores, in float32 under one.

Source: `torch.optim.Muon` of torch 2.13 (`_zeropower_via_newtonschulz`, `_adjust_lr` with ``match_rms_adamw``).
"""

from __future__ import annotations

from typing import Any

import torch


class Float32Muon(torch.optim.Muon):  # type: ignore[misc]  # torch is untyped here
    """`torch.optim.Muon` with Nesterov's momentum and ``match_rms_adamw``; its state and settings are the same."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            weights: list[Any] = []
            gradients: list[Any] = []
            moments: list[Any] = []
            self._init_group(group, weights, gradients, moments)
            for weight, gradient, moment in zip(weights, gradients, moments, strict=True):
                moment.lerp_(gradient, 1 - momentum)
                update = orthogonal(
                    gradient.lerp(moment, momentum), group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                weight.mul_(1 - rate * group["weight_decay"])
                weight.add_(update, alpha=-rate * 0.2 * max(weight.shape) ** 0.5)


def orthogonal(matrix: Any, coefficients: tuple[float, float, float], rounds: int, eps: float) -> Any:
    """The nearest matrix of the same shape with orthogonal rows or columns, roughly: Newton-Schulz in the matrix's own type."""
    a, b, c = coefficients
    upright = matrix.size(0) > matrix.size(1)
    found = matrix.T if upright else matrix
    found = found / found.norm().clamp(min=eps)
    for _ in range(rounds):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found.T if upright else found

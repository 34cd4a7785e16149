"""Two faults of vLLM's CPU build, mended in the worker process. Other platforms and versions are left alone.

1. `expand`: values per request are spread over its draft tokens into a copy that is thrown away, so sampled
   requests with a draft are verified with uninitialised temperature, top-k and top-p (vllm#55005).
2. `seeds`: after each part of a long prompt but the last, the runner rewinds the request's generator by an
   offset that only CUDA's have; on CPU that raises: one seeded sampled request ends the engine.

The worker calls the platform's `register_triton_kernel_overrides` after plugins are loaded and before it
imports its runner: there both mends are put in, so that no other process imports anything for them.

Source: vLLM 0.32.0 `v1/worker/worker_base.py` (init_worker), `platforms/cpu.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from outrider_vllm.faults import LOG, guarded

SEEN_IN = ((0, 32),)  # minor versions in which both faults were seen and the mends tried


def arm() -> None:
    """Have each worker of a CPU engine that has the faults put the mends in; harmless when repeated."""
    from vllm import __version__  # noqa: PLC0415
    from vllm.platforms import current_platform  # noqa: PLC0415

    if not current_platform.is_cpu() or not has_faults(__version__):
        return
    platform = type(current_platform)
    original = platform.register_triton_kernel_overrides
    if getattr(original, "outrider", False):
        return

    def register_triton_kernel_overrides(cls: type) -> None:
        guarded("expand", mend_expand)
        original()
        guarded("seeds", mend_seeds)

    register_triton_kernel_overrides.outrider = True  # type: ignore[attr-defined]
    platform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)


def has_faults(version: str) -> bool:
    """Whether the faults were seen in this version's minor release."""
    return minor(version) in SEEN_IN


def minor(version: str) -> tuple[int, ...]:
    """``0.32.1`` → (0, 32)"""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def mend_expand() -> None:
    """Replace the kernel's CPU implementation before the platform registers it."""
    from vllm.utils import cpu_triton_utils  # noqa: PLC0415

    plain = cpu_triton_utils._expand_kernel_impl
    if not getattr(plain, "outrider", False):
        cpu_triton_utils._expand_kernel_impl = expand_or(plain)
        LOG.info("outrider: mended the CPU build's expansion of sampling parameters (vllm#55005)")


def expand_or(plain: Callable[..., None]) -> Callable[..., None]:
    """`expand`, or the engine's own implementation if it fails."""

    def expanding(*args: Any, **kwargs: Any) -> None:
        if not guarded("expand", lambda: expand(*args, **kwargs)):
            plain(*args, **kwargs)

    expanding.outrider = True  # type: ignore[attr-defined]
    return expanding


def expand(
    output: torch.Tensor,
    values: torch.Tensor,
    cumulative: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,
) -> bool:
    """Fill `output` [tokens] with each of `values` [requests] as often as it has tokens; True.

    `cumulative` [requests] counts tokens up to and including each request; values equal to `replace_from`
    become `replace_to`.

    Source: vLLM 0.32.0 `v1/sample/rejection_sampler.py`, `expand_kernel`.
    """
    counts = torch.diff(cumulative, prepend=cumulative.new_zeros(1))
    replaced = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    output.copy_(torch.repeat_interleave(replaced, counts, output_size=output.shape[0]))
    return True


def mend_seeds() -> None:
    """Rewind the generators of unfinished prompts by their saved states instead of by an offset."""
    from vllm.v1.worker import cpu_worker  # noqa: PLC0415  (first: it prepares torch for the runner's import)

    runner = cpu_worker.CPUModelRunner
    if not getattr(runner._sample, "outrider", False):
        runner._sample = keep_states(runner._sample)
        runner._bookkeeping_sync = hide_generators(runner._bookkeeping_sync)
        LOG.info("outrider: mended the CPU build's handling of seeds in chunked prompts")


def unfinished(runner: Any) -> dict[int, torch.Generator]:
    """Generators, by row, of requests whose prompt this step does not finish: their sample is discarded."""
    batch = runner.input_batch
    rows = runner.discard_request_mask.np[: batch.num_reqs].nonzero()[0]
    return {int(row): batch.generators[int(row)] for row in rows if int(row) in batch.generators}


def keep_states(sample: Callable[..., Any]) -> Callable[..., Any]:
    """`_sample` that leaves the generators of discarded rows as they were before it."""

    @functools.wraps(sample)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = guarded("seeds", lambda: [(each, each.get_state()) for each in unfinished(self).values()])
        output = sample(self, *args, **kwargs)
        for generator, state in found or ():
            generator.set_state(state)
        return output

    keeping.outrider = True  # type: ignore[attr-defined]
    return keeping


def hide_generators(bookkeep: Callable[..., Any]) -> Callable[..., Any]:
    """`_bookkeeping_sync` that does not find the generators it would rewind."""

    @functools.wraps(bookkeep)
    def hiding(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = self.input_batch
        hidden = guarded("seeds", lambda: unfinished(self)) or {}
        for row in hidden:
            del batch.generators[row]
        try:
            return bookkeep(self, *args, **kwargs)
        finally:
            batch.generators.update(hidden)

    return hiding

"""What `target.dtype: auto` comes to on a CPU without bf16 instructions: float32. Pure.

vLLM's own `auto` is the checkpoint's type, bf16 as a rule. Where the processor does not multiply bf16, that is slower than
float32 and, what is worse, gains nothing from a batch: a verify pass of K + 1 tokens takes K + 1 plain steps, and no draft pays.

Source: flags of Linux' ``/proc/cpuinfo``; the same three that `torch.cpu.get_capabilities` tells the trainer.
"""

from __future__ import annotations

from outrider.stack.facts import ModelFacts
from outrider.stack.memory import quantization_in_force
from outrider.stack.models import Stack

_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86, x86, aarch64
_FLAGS = frozenset({"flags", "Features"})  # how x86 and aarch64 call their line
IN_FLOAT32 = "this CPU does not multiply bf16: float32, in place of `target.dtype: auto`"


def multiplies_bf16(cpuinfo: str) -> bool:
    """Whether the processor that this text of ``/proc/cpuinfo`` describes does; True where it lists no flags: nobody knows."""
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in _FLAGS:
            return not _BF16.isdisjoint(flags.split())
    return True


def with_arithmetic(stack: Stack, target: ModelFacts | None, *, bf16: bool) -> Stack:
    """The stack as it runs where bf16 is multiplied or not. A type that it names stays, and so does a quantised target's `auto`:
    the kernels of quantised weights know no float32. `target` None: its facts are not known.
    """
    label = quantization_in_force(stack, target) if target else stack.target.quantization or "none"
    if bf16 or stack.target.dtype != "auto" or label != "none":
        return stack
    return stack.model_copy(update={"target": stack.target.model_copy(update={"dtype": "float32"})})

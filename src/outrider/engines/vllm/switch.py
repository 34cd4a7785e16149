"""Whether an engine can give each request its own draft, which, and what its command says for it. Pure.

Inside the engine outrider-vllm does it (`outrider_vllm/switch.py`): tried on the CPU build, one rank.
"""

from __future__ import annotations

from outrider.engines.base import Install
from outrider.engines.vllm import versions
from outrider.governor.ladder import HEADS
from outrider.stack.models import Stack

TRIED = frozenset({("cpu", (0, 32))})

# What the head reads from the first token to the last; these requests share cached blocks among themselves only.
# The same as in outrider_vllm.drafts; a test holds them equal.
READ_BY_HEAD = frozenset({*HEADS, "mix", "warm"})
SALT = "outrider-head"


def why_not(stack: Stack, install: Install) -> str:
    """Why requests of this stack all have the stack's draft; '' if each can have its own."""
    if not stack.policy.enabled:
        return "the stack says `policy: off`"
    if stack.draft.method not in (*HEADS, "ngram"):
        return f"method {stack.draft.method} is not switched"
    if not install.plugin:
        return f"outrider-vllm is not installed beside {install.distribution}"
    if (install.device, versions.minor(install.version)) not in TRIED:
        return f"switching was not tried with vLLM {install.version} on {install.device}"
    if stack.engine.tensor_parallel > 1:
        return "switching was not tried with tensor parallelism"
    return ""


def drafts(stack: Stack, install: Install) -> tuple[str, ...]:
    """What a request can be stamped with, the stack's draft first; none if requests are not told apart."""
    method = stack.draft.method
    if why_not(stack, install):
        return ()
    return (method, "ngram", "mix", "warm", "off") if method in HEADS else (method, "off")


def arguments(stack: Stack, install: Install) -> list[str]:
    """Our classes in the engine's command: the worker that drafts by request, the scheduler that counts by draft."""
    if why_not(stack, install):
        return []
    return [
        "--worker-cls",
        "outrider_vllm.worker.SwitchWorker",
        "--scheduler-cls",
        "outrider_vllm.scheduler.CountingScheduler",
    ]


def environment(stack: Stack, install: Install) -> dict[str, str]:
    """What the plugin reads: that it is asked, and what n-grams look for."""
    if why_not(stack, install):
        return {}
    return {"OUTRIDER_VLLM_SWITCH": f"{stack.draft.ngram.min_tokens},{stack.draft.ngram.max_tokens}"}

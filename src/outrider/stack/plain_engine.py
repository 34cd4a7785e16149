"""The engines of a stack: one, or two that share its device, where `policy.plain_engine` asks for one without a draft. Pure."""

from __future__ import annotations

from outrider.stack.models import Draft, Stack
from outrider.stack.policy import Policy

DEFAULT_MEMORY_FRACTION = 0.9


def engines_of(stack: Stack) -> tuple[Stack, ...]:
    """A stack for each engine: of two, the one with the draft stands first, neither switches drafts itself, and each has half of
    an accelerator's memory."""
    if not stack.policy.plain_engine:
        return (stack,)
    engine = stack.engine.model_copy(update={"memory_fraction": memory_fraction(stack)})
    own = stack.model_copy(update={"engine": engine, "policy": Policy(enabled=False)})
    return own, own.model_copy(update={"draft": Draft(method="none")})


def memory_fraction(stack: Stack) -> float:
    """The share of an accelerator's memory that one engine of this stack may use."""
    whole = stack.engine.memory_fraction or DEFAULT_MEMORY_FRACTION
    return whole / 2 if stack.policy.plain_engine else whole


def without_plain(stack: Stack) -> Stack:
    """The stack with one engine."""
    return stack.model_copy(update={"policy": stack.policy.model_copy(update={"plain_engine": False})})

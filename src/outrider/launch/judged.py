"""The last look before anything is started: the engine found, the stack judged on it, every reason to refuse at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.errors import Problem, StackError
from outrider.engines.base import Engine, Install
from outrider.stack.arithmetic import IN_FLOAT32
from outrider.stack.find_facts import Source
from outrider.stack.manifest import PairManifest
from outrider.stack.models import Stack
from outrider.stack.preflight import examine


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found where nothing refuses: the stack with its arithmetic settled, the engine's install, and the manifest of the
    pair if it has one."""

    stack: Stack
    install: Install
    manifest: PairManifest | None = None


def judged(stack: Stack, engine: Engine, note: Callable[[str], None]) -> Judged:
    """The engine's install that this stack may be started on, and in which arithmetic; `note` is told that, and the warnings.

    A hub that cannot be reached is a warning here: the engine may have it all.

    Raises:
        StackError: with every reason at once.
        EngineError: the engine is not installed, or refused.
    """
    install = engine.find(stack)
    found = examine(stack, Source(need_hub=False), bf16=install.bf16)
    refused: list[Problem] = []
    for problem in (*engine.judge(stack, install), *found.problems):
        if problem.severity == "error":
            refused.append(problem)
        elif problem.severity == "warning":
            note(problem.render())
    if refused:
        raise StackError("This stack cannot be served; nothing was loaded.", tuple(refused))
    settled = found.stack or stack
    if settled.target.dtype != stack.target.dtype:
        note(f"[target] {IN_FLOAT32}")
    return Judged(settled, install, found.manifest)

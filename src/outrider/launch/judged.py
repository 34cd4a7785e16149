"""The last look before anything is started: the engine found, the stack judged on it, every reason to refuse at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.errors import Problem, StackError
from outrider.engines.base import Engine, Install
from outrider.stack.find_facts import Source
from outrider.stack.manifest import PairManifest
from outrider.stack.models import Stack
from outrider.stack.preflight import examine


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found where nothing refuses: the engine's install, and the manifest of the stack's pair if it has one."""

    install: Install
    manifest: PairManifest | None = None


def judged(stack: Stack, engine: Engine, note: Callable[[str], None]) -> Judged:
    """The engine's install that this stack may be started on; `note` is told the warnings.

    A hub that cannot be reached is a warning here: the engine may have it all.

    Raises:
        StackError: with every reason at once.
        EngineError: the engine is not installed, or refused.
    """
    install = engine.find(stack)
    found = examine(stack, Source(need_hub=False))
    refused: list[Problem] = []
    for problem in (*engine.judge(stack, install), *found.problems):
        if problem.severity == "error":
            refused.append(problem)
        elif problem.severity == "warning":
            note(problem.render())
    if refused:
        raise StackError("This stack cannot be served; nothing was loaded.", tuple(refused))
    return Judged(install, found.manifest)

"""The last look before anything is started: the engine found, the stack judged on it, every reason to refuse at once."""

from __future__ import annotations

from collections.abc import Callable

from outrider.core.errors import Problem, StackError
from outrider.engines.base import Engine, Install
from outrider.stack.models import Stack
from outrider.stack.preflight import preflight


def judged(stack: Stack, engine: Engine, note: Callable[[str], None]) -> Install:
    """The engine's install that this stack may be started on; `note` is told the warnings.

    Raises:
        StackError: with every reason at once.
        EngineError: the engine is not installed, or refused.
    """
    install = engine.find(stack)
    refused: list[Problem] = []
    for problem in (*engine.judge(stack, install), *preflight(stack)):
        if problem.severity == "error":
            refused.append(problem)
        elif problem.severity == "warning":
            note(problem.render())
    if refused:
        raise StackError("This stack cannot be served; nothing was loaded.", tuple(refused))
    return install

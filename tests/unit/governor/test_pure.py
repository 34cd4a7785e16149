"""The governor stays pure: nothing in it can look at a clock, a file, a network or chance."""

from __future__ import annotations

import ast
from pathlib import Path

import outrider.governor

SOURCES = sorted(Path(outrider.governor.__file__).parent.glob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "contextlib",
    "dataclasses",
    "difflib",
    "enum",
    "itertools",
    "json",
    "math",
    "typing",
    "outrider.core.acceptance",
    "outrider.core.errors",
}
CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def imported(tree: ast.AST) -> set[str]:
    """Modules that a source imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


def test_it_imports_what_computes_and_nothing_else() -> None:
    """A short list of the standard library, two modules of core, and itself; no `time`, `random`, `os`, `pathlib`, `pydantic`."""
    assert len(SOURCES) > 15
    for source in SOURCES:
        others = {
            name
            for name in imported(ast.parse(source.read_text()))
            if not name.startswith("outrider.governor")
        }
        assert others <= ALLOWED, source.name


def called(tree: ast.AST) -> set[str]:
    """Names of functions that a source calls."""
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_it_calls_nothing_that_reaches_outside() -> None:
    """Reading trace files is the command's; writing them the caller's."""
    for source in SOURCES:
        assert not called(ast.parse(source.read_text())) & CALLS, source.name

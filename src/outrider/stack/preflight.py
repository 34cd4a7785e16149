"""Everything that can be said of a stack before a byte of weights is loaded: facts, pair rules, memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import Problem
from outrider.stack.accelerators import (
    ACCELERATORS,
    Accelerator,
    find_accelerator,
    this_machine,
    unknown_accelerator,
)
from outrider.stack.arithmetic import IN_FLOAT32, with_arithmetic
from outrider.stack.content import hub_content
from outrider.stack.facts import FactsError, ModelFacts
from outrider.stack.find_facts import UNREACHABLE, Found, Source, find_both
from outrider.stack.manifest import PairManifest, pair_id
from outrider.stack.memory import Budget, judge_budget, make_budget
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.pair import judge_pair, pinned
from outrider.stack.pair_manifest import judge_manifest, pair_in_force

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found about `stack`, which is the one asked about with its arithmetic settled (None: it has no valid form).

    `budget` for the accelerator asked; `overview` of all when none was asked; `pair` '' where content is not known; `manifest`
    that of the pair, where there is one and nothing speaks against it.
    """

    problems: tuple[Problem, ...]
    budget: Budget | None = None
    overview: tuple[Budget, ...] = ()
    pair: str = ""
    stack: Stack | None = None
    manifest: PairManifest | None = None

    @property
    def refused(self) -> bool:
        """Whether the stack cannot be served."""
        return any(one.severity == "error" and one.rule != UNREACHABLE for one in self.problems)

    @property
    def unjudged(self) -> bool:
        """Whether a hub that was to be asked did not answer."""
        return any(one.severity == "error" and one.rule == UNREACHABLE for one in self.problems)


def preflight(stack: Stack) -> list[Problem]:
    """Every problem of the pair and its memory. A hub that cannot be reached is a warning here: the engine may have it all."""
    return list(examine(stack, Source(need_hub=False)).problems)


def examine(stack: Stack, source: Source, *, bf16: bool = True) -> Examination:
    """Find the facts, judge the pair, reckon the memory. `bf16`: whether what it is judged for multiplies bf16."""
    found = find_both(stack, source)
    problems = list(found.problems)
    asked, stack = stack, with_arithmetic(stack, found.target, bf16=bf16)
    if stack != asked:
        hint = "Name `bfloat16` to have it all the same."
        problems.append(Problem(IN_FLOAT32, "target.dtype", "arithmetic", hint, "note"))
    where, unknown = _accelerator(stack)
    problems += unknown
    if found.target is None:
        problems += judge_manifest(stack, None, found.draft)
        return Examination(in_order((*problems, *pinned(stack))), stack=stack)
    problems += judge_pair(stack, found.target, found.draft)
    problems += judge_manifest(stack, found.target, found.draft)
    if found.draft is None and stack.draft.method in METHODS_WITH_WEIGHTS:
        message = "the draft's memory was not judged: the sum is of the target alone"
        problems.append(Problem(message, "draft.model", "memory", severity="warning"))
    budget: Budget | None = None
    overview: tuple[Budget, ...] = ()
    try:
        if where:
            budget = make_budget(stack, found.target, found.draft, where)
            problems += judge_budget(stack, found.target, found.draft, budget)
        elif not unknown:
            overview = _overview(stack, found.target, found.draft)
    except FactsError as error:
        problems.append(Problem(f"memory not reckoned: {error}", rule="memory", severity="warning"))
    manifest = pair_in_force(stack, problems)
    name = manifest.id if manifest else _pair(found)
    return Examination(in_order(problems), budget, overview, name, stack, manifest)


def _overview(stack: Stack, target: ModelFacts, draft: ModelFacts | None) -> tuple[Budget, ...]:
    return tuple(make_budget(stack, target, draft, one) for one in ACCELERATORS.values())


def _accelerator(stack: Stack) -> tuple[Accelerator | None, list[Problem]]:
    """The one to reckon for; None: none was named."""
    name = stack.engine.accelerator
    if name is None:
        if stack.engine.device == "cpu":
            return this_machine(_memory_here()), []
        return None, []
    if unknown := unknown_accelerator(name):
        return None, [Problem(unknown[0], "engine.accelerator", "accelerator", unknown[1])]
    return find_accelerator(name), []


def _memory_here(limit: Path = CGROUP_LIMIT) -> int:
    """This machine's memory, or a container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return total


def _pair(found: Found) -> str:
    """The pair's name where both sides' content is known without hashing anything: hub models."""
    if not (found.target and found.draft and found.target.files and found.draft.files):
        return ""
    sides = (hub_content(facts.commit or "", facts.files) for facts in (found.target, found.draft))
    return pair_id(*sides)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Errors, then warnings, then notes, each kind in file order; each once."""
    rank = {"error": 0, "warning": 1}
    return tuple(sorted(dict.fromkeys(problems), key=lambda p: (rank.get(p.severity, 2), p.line, p.column)))

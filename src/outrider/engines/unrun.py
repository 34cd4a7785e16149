"""What the adapters of engines that were never run here have in common: they print a command, and nothing is started. Pure.

Their flags were read off the engine's own source or documentation (`docs/upstream-seams.md`). What cannot be said to such an
engine as the stack means it is refused, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from outrider.core.errors import Problem, UnsupportedFeature
from outrider.engines.base import Install, RequestAcceptance
from outrider.engines.vllm.extra_args import refused_extra_env
from outrider.stack.models import HEAD_METHODS, METHODS_WITH_WEIGHTS, Stack
from outrider.stack.weights import kind_of
from outrider.telemetry.scrape import Scrape


@dataclass(frozen=True, slots=True)
class Unrun:
    """One such engine: its name for people, the version that was read, its package, and the drafts it has.

    `methods`: the stack's draft methods -> the engine's own name. `lacking`: why it has not the others.
    """

    title: str
    version: str
    distribution: str
    methods: Mapping[str, str]
    lacking: Mapping[str, str]

    def install(self, stack: Stack) -> Install:
        """As if installed where the stack says: only a command is made of it."""
        return Install(
            self.version, self.distribution, "cuda", stack.engine.python or "python3", plugin=False
        )

    def judge(self, stack: Stack, install: Install) -> Iterator[Problem]:
        """What cannot be told to it, and that it was never run here."""
        yield self._never_run(install)
        yield from self._draft(stack)
        yield from self._weights(stack)
        yield from self._engine(stack)
        yield from refused_extra_env(stack.engine.extra_env)

    def _never_run(self, install: Install) -> Problem:
        other = "" if install.version == self.version else f", not of {install.version}"
        return Problem(
            f"{self.title} was never run here: its flags were read, of {self.version}{other}; memory is reckoned "
            "as for vLLM",
            "engine.name",
            "engine-not-run",
            "Try it before users come, and look at the acceptance of the first requests.",
            "warning",
        )

    def _draft(self, stack: Stack) -> Iterator[Problem]:
        draft = stack.draft
        if why := self.lacking.get(draft.method):
            known = ", ".join(self.methods)
            yield Problem(
                f"{self.title} has no {draft.method} drafts: {why}",
                "draft.method",
                "engine-feature",
                f"It has: {known}.",
            )
        if draft.draft_length_by_batch:
            yield Problem(
                f"{self.title} is not told a draft length by batch size: what it has means another thing",
                "draft.draft_length_by_batch",
                "engine-feature",
                "Give one `draft_length`.",
            )
        if draft.tensor_parallel not in (None, stack.engine.tensor_parallel):
            yield Problem(
                f"{self.title} shares the draft between as many accelerators as the target",
                "draft.tensor_parallel",
                "engine-feature",
                "Leave it out.",
            )
        if draft.method in HEAD_METHODS and draft.method in self.methods:
            yield Problem(
                f"{self.title} reads heads in the form of EAGLE's authors; whether this one is was not judged",
                "draft.model",
                "engine-head-form",
                "Heads that vLLM's Speculators made, Outrider's own too, are in another form.",
                "warning",
            )

    def _weights(self, stack: Stack) -> Iterator[Problem]:
        sides = [("target.model", stack.target.model)]
        if stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model:
            sides.append(("draft.model", stack.draft.model))
        for path, model in sides:
            if kind_of(model) not in ("hub", "folder"):
                yield Problem(
                    f"{model} is converted by vLLM's environment, for vLLM",
                    path,
                    "engine-weights",
                    "Name a hub model or a folder.",
                )
        if stack.forecast:
            yield Problem(
                "made-up weights and acceptance are served by vLLM alone",
                "forecast",
                "engine-feature",
                "Leave `forecast` out, or take vLLM.",
            )

    def _engine(self, stack: Stack) -> Iterator[Problem]:
        if stack.engine.device == "cpu":
            yield Problem(
                f"{self.title} on a CPU is not planned", "engine.device", "engine-feature", "Take vLLM there."
            )
        if stack.engine.kv_cache_gib:
            yield Problem(
                f"{self.title} is not told the size of its KV cache in GiB",
                "engine.kv_cache_gib",
                "engine-feature",
                "Leave it out.",
            )
        if stack.engine.extra_args:
            yield Problem(
                f"flags of {self.title} are not judged yet, so none is passed on",
                "engine.extra_args",
                "extra-arg-refused",
                "Leave them out, and add what you want to the command that is printed or rendered.",
            )


class UnrunEngine:
    """The part of `outrider.engines.base.Engine` that such engines share; `draft_length`: the stack's K, which their counters do
    not tell."""

    read: ClassVar[Unrun]

    def __init__(self, draft_length: int) -> None:
        self._draft_length = draft_length

    def find(self, stack: Stack) -> Install:
        """The version that was read, in the environment that the stack names; nothing is looked for."""
        return self.read.install(stack)

    def stamp(self, draft: str) -> Mapping[str, object]:
        """Nothing: all requests have the draft that it was started with."""
        return {}

    def request_acceptance(self, usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
        """Answers are not read for the acceptance of single requests."""
        return None

    def unknown_metrics(self, scrape: Scrape) -> Sequence[str]:
        """Not told: no page of it was seen here."""
        return ()


def refuse(problems: Sequence[Problem]) -> None:
    """Raises UnsupportedFeature with the first error among them."""
    for problem in problems:
        if problem.severity == "error":
            raise UnsupportedFeature(problem.message, hint=problem.hint)


def offline(*models: str | None) -> dict[str, str]:
    """Where all is in folders nothing is asked of a hub."""
    return {"HF_HUB_OFFLINE": "1"} if all(model.startswith("/") for model in models if model) else {}

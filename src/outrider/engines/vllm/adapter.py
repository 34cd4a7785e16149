"""vLLM behind the protocol of `engines.base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.core.errors import EngineVersionRefused, Problem, UnsupportedFeature
from outrider.engines.base import (
    LOOPBACK,
    EngineCounters,
    Install,
    LaunchPlan,
    RequestAcceptance,
    ResolvedModels,
)
from outrider.engines.vllm import find, judge, metrics, plan, switch
from outrider.stack.models import Stack
from outrider.telemetry.scrape import Scrape

STAMP = "outrider_draft"  # outrider_vllm.drafts.STAMP; a test holds the two equal


class VllmEngine:
    """Implements `outrider.engines.base.Engine`."""

    name = "vllm"
    metrics_path = "/metrics"

    def find(self, stack: Stack) -> Install:
        """The vLLM of `engine.python`, else of this environment. Raises EngineNotInstalled."""
        return find.find(stack.engine.python)

    def judge(self, stack: Stack, install: Install) -> Sequence[Problem]:
        """Version and feature problems of this stack on this install."""
        return judge.judge(stack, install)

    def plan(
        self, stack: Stack, install: Install, models: ResolvedModels, port: int, host: str = LOOPBACK
    ) -> LaunchPlan:
        """The launch plan, with the warnings of `judge`. Raises EngineVersionRefused or UnsupportedFeature."""
        problems = judge.judge(stack, install)
        for problem in problems:
            if problem.severity == "error":
                refused = EngineVersionRefused if problem.rule == "engine-version" else UnsupportedFeature
                raise refused(problem.message, hint=problem.hint)
        return plan.launch_plan(stack, install, models, (host, port), tuple(problems))

    def stamp(self, draft: str) -> Mapping[str, object]:
        """`vllm_xargs`, which reaches scheduler and workers with the request; a vLLM without our plugin ignores it.

        What the head reads from the first token on is cached apart (`cache_salt`): a head must not be given blocks of requests
        that it has not read.
        """
        salt = {"cache_salt": switch.SALT} if draft in switch.READ_BY_HEAD else {}
        return {"vllm_xargs": {STAMP: draft}, **salt}

    def request_acceptance(self, usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
        """Acceptance of one request, since vLLM 0.29."""
        return metrics.request_acceptance(usage_chunk)

    def counters(self, scrape: Scrape) -> EngineCounters:
        """Engine-neutral counters of one scrape."""
        return metrics.counters(scrape)

    def unknown_metrics(self, scrape: Scrape) -> Sequence[str]:
        """Families of vLLM that are neither read nor known."""
        return metrics.unknown_names(scrape)

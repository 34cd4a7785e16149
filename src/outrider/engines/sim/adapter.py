"""The adapter of the simulated engine: the protocol every engine stands behind, at its smallest."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from outrider.core.acceptance import SpecCounters
from outrider.core.errors import Problem
from outrider.engines.base import (
    LOOPBACK,
    EngineCounters,
    Install,
    LaunchPlan,
    RequestAcceptance,
    ResolvedModels,
)
from outrider.stack.models import Stack
from outrider.telemetry.scrape import Scrape


class SimEngine:
    """Implements `outrider.engines.base.Engine` for `outrider.engines.sim.server`."""

    name = "sim"
    metrics_path = "/metrics"

    def find(self, stack: Stack) -> Install:
        """Always here: it is part of Outrider."""
        return Install(
            version="1", distribution="outrider", device="cpu", python=sys.executable, plugin=False
        )

    def judge(self, stack: Stack, install: Install) -> Sequence[Problem]:
        """Nothing to refuse."""
        return ()

    def plan(
        self, stack: Stack, install: Install, models: ResolvedModels, port: int, host: str = LOOPBACK
    ) -> LaunchPlan:
        """The command of the simulated engine under the stack's served name."""
        module = "outrider.engines.sim.server"
        drain = str(max(0.0, stack.engine.shutdown_grace_s - 2))  # as vLLM's: its end comes before ours
        door = ("--host", host, "--port", str(port), "--drain-s", drain)
        argv = (install.python, "-m", module, *door, "--model", stack.served_name)
        return LaunchPlan(
            argv=argv,
            env={},
            host=host,
            port=port,
            key_variable="OUTRIDER_SIM_KEY",
            health_path="/health",
            metrics_path=self.metrics_path,
        )

    def stamp(self, draft: str) -> Mapping[str, object]:
        """The same members as vLLM's."""
        return {"vllm_xargs": {"outrider_draft": draft}}

    def request_acceptance(self, usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
        """Acceptance out of `metrics.speculative_decoding`; in the simulation every step after the first has a draft."""
        metrics = usage_chunk.get("metrics")
        spec = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(spec, dict):
            return None
        names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
        counts = [count for name in names if isinstance(count := spec.get(name), int)]
        if len(counts) < len(names):
            return None
        drafts, proposed, accepted = counts
        return RequestAcceptance(drafts, drafts, proposed_tokens=proposed, accepted_tokens=accepted)

    def counters(self, scrape: Scrape) -> EngineCounters:
        """The simulation's counters in engine-neutral terms."""
        values = {sample.name: sample.value for sample in scrape.samples}
        spec = SpecCounters(
            drafts=values.get("sim:drafts_total", 0.0),
            proposed=values.get("sim:draft_tokens_total", 0.0),
            accepted=values.get("sim:accepted_tokens_total", 0.0),
            per_position=tuple(
                sample.value
                for sample in sorted(
                    scrape.named("sim:accepted_tokens_per_pos_total"),
                    key=lambda sample: int(sample.label("position") or 0),
                )
            ),
        )
        return EngineCounters(
            spec=spec,
            by_draft={},
            models=(),
            generation_tokens=values.get("sim:generation_tokens_total"),
            prompt_tokens=values.get("sim:prompt_tokens_total"),
            first_tokens=values.get("sim:first_tokens_total"),
            steps=values.get("sim:steps_total"),
            running=values.get("sim:requests_running"),
        )

    def unknown_metrics(self, scrape: Scrape) -> Sequence[str]:
        """None: both sides are ours."""
        return ()

"""SGLang behind the protocol of `engines.base`: its command from the same stack; never run here.

Source: SGLang 0.5.23 `srt/arg_groups/fields/*.py`, `srt/arg_groups/speculative_hook.py`, `srt/utils/auth.py`,
`srt/observability/metrics_collector.py`, `srt/managers/tokenizer_manager.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.acceptance import SpecCounters
from outrider.core.errors import Problem
from outrider.engines.base import (
    LOOPBACK,
    EngineCounters,
    Install,
    LaunchPlan,
    ResolvedModels,
)
from outrider.engines.unrun import Unrun, UnrunEngine, offline, refuse
from outrider.stack.models import Draft, Stack
from outrider.telemetry.scrape import Scrape

SGLANG = Unrun(
    title="SGLang",
    version="0.5.23",
    distribution="sglang",
    methods={"ngram": "NGRAM", "draft-model": "STANDALONE", "eagle3": "EAGLE3"},
    lacking={
        "p-eagle": "it has no algorithm for heads that draft in parallel like that",
        "suffix": "its n-grams are a trie of another kind",
    },
)
KEY_VARIABLE = "SGLANG_API_KEY"  # ours: SGLang takes its key as a flag, which names this variable


class SglangEngine(UnrunEngine):
    """Implements `outrider.engines.base.Engine`."""

    name = "sglang"
    read = SGLANG
    metrics_path = "/metrics"

    def judge(self, stack: Stack, install: Install) -> Sequence[Problem]:
        """What SGLang cannot be told of this stack."""
        return [*SGLANG.judge(stack, install), *_ngram(stack.draft)]

    def plan(
        self, stack: Stack, install: Install, models: ResolvedModels, port: int, host: str = LOOPBACK
    ) -> LaunchPlan:
        """The launch plan, with the warnings of `judge`. Raises UnsupportedFeature."""
        problems = self.judge(stack, install)
        refuse(problems)
        argv = [install.python, "-m", "sglang.launch_server", "--model-path", models.target]
        argv += ["--host", host, "--port", str(port), "--served-model-name", stack.served_name]
        # In a pod Kubernetes puts the variable's value here. At level info SGLang writes all its arguments into its log.
        argv += ["--api-key", f"$({KEY_VARIABLE})", "--log-level", "warning", "--enable-metrics"]
        argv += [*_target(stack, models), *_resources(stack), *_draft(stack.draft, models)]
        return LaunchPlan(
            argv=tuple(argv),
            env=offline(models.target, models.draft) | stack.engine.extra_env,
            host=host,
            port=port,
            key_variable=KEY_VARIABLE,
            health_path="/health",
            metrics_path=self.metrics_path,
            warnings=tuple(problems),
            notes={"drafts": "SGLang is started with one draft for all"},
        )

    def counters(self, scrape: Scrape) -> EngineCounters:
        """SGLang counts verify steps and tokens when a request ends; what was proposed and accepted follows from them.

        A request's tokens are its first, and for each verify step the accepted ones and one of the target's own.
        """
        tokens, requests = (
            scrape.total((f"sglang:{name}_total",)) for name in ("generation_tokens", "num_requests")
        )
        drafts = scrape.total(("sglang:spec_verify_calls_total",)) or 0.0
        accepted = max((tokens or 0.0) - (requests or 0.0) - drafts, 0.0) if drafts else 0.0
        return EngineCounters(
            spec=SpecCounters(drafts, drafts * self._draft_length, accepted),
            by_draft={},
            models=(),
            generation_tokens=tokens,
            prompt_tokens=scrape.total(("sglang:prompt_tokens_total",)),
            first_tokens=requests,
            steps=drafts or max((tokens or 0.0) - (requests or 0.0), 0.0),
            running=scrape.total(("sglang:num_running_reqs",)),
            waiting=scrape.total(("sglang:num_queue_reqs",)),
        )


def _target(stack: Stack, models: ResolvedModels) -> list[str]:
    target = stack.target
    arguments = ["--load-format", "safetensors", "--dtype", target.dtype]
    arguments += ["--kv-cache-dtype", {"fp8": "fp8_e4m3"}.get(target.kv_cache_dtype, target.kv_cache_dtype)]
    if models.target_revision:
        arguments += ["--revision", models.target_revision]
    if target.max_context_tokens:
        arguments += ["--context-length", str(target.max_context_tokens)]
    if target.chat_template:
        arguments += ["--chat-template", target.chat_template]
    return arguments


def _resources(stack: Stack) -> list[str]:
    engine = stack.engine
    arguments = ["--max-running-requests", str(engine.max_running_requests)]
    if not engine.prefix_cache:
        arguments += ["--disable-radix-cache"]
    if engine.tensor_parallel > 1:
        arguments += ["--tp-size", str(engine.tensor_parallel)]
    if engine.memory_fraction:
        arguments += ["--mem-fraction-static", str(engine.memory_fraction)]
    if engine.enforce_eager:
        for phase in ("decode", "prefill"):
            arguments += [f"--cuda-graph-backend-{phase}", "disabled"]
    return arguments


def _draft(draft: Draft, models: ResolvedModels) -> list[str]:
    """One chain of K tokens; SGLang counts the target's own token among those that are verified."""
    if draft.method == "none":
        return []
    arguments = ["--speculative-algorithm", SGLANG.methods[draft.method]]
    if models.draft:
        arguments += ["--speculative-draft-model-path", models.draft]
    if models.draft_revision:
        arguments += ["--speculative-draft-model-revision", models.draft_revision]
    if draft.method == "ngram":
        arguments += ["--speculative-ngram-max-bfs-breadth", "1"]
    else:
        arguments += ["--speculative-num-steps", str(draft.length), "--speculative-eagle-topk", "1"]
    return [*arguments, "--speculative-num-draft-tokens", str(draft.length + 1)]


def _ngram(draft: Draft) -> list[Problem]:
    if draft.method != "ngram":
        return []
    shared = Problem(
        "SGLang looks n-grams up in the texts of all requests together",
        "draft.method",
        "engine-ngram",
        "How fast an answer comes can tell one client what another asked: not for clients who do not trust one another.",
        "warning",
    )
    if "ngram" not in draft.model_fields_set:
        return [shared]
    asked = Problem(
        "SGLang is not told how long a match must be",
        "draft.ngram",
        "engine-feature",
        "Leave it out: SGLang takes the longest match that it has.",
    )
    return [shared, asked]

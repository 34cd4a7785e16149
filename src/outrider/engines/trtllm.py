"""TensorRT-LLM behind the protocol of `engines.base`: `trtllm-serve` and its YAML from the same stack; never run here.

Source: TensorRT-LLM's documentation: `trtllm-serve` of 1.3.0rc7; `TorchLlmArgs`, `KvCacheConfig`, `Eagle3DecodingConfig` and
`NGramDecodingConfig` of 1.4.0rc4, speculative decoding of the main branch; `llmapi/llm_args.py`, `serve/openai_server.py`,
`metrics/collector.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

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
from outrider.engines.unrun import Unrun, no_acceptance, offline, refuse
from outrider.stack.models import Draft, Stack
from outrider.telemetry.scrape import Scrape

TRTLLM = Unrun(
    title="TensorRT-LLM",
    version="1.4.0rc4",
    distribution="tensorrt-llm",
    methods={"ngram": "NGram", "draft-model": "Draft_Target", "eagle3": "Eagle3"},
    lacking={
        "p-eagle": "what it has for parallel drafts (PARD, DFlash) takes other heads",
        "suffix": "its suffix automaton is another method",
    },
)
CONFIG = "trtllm.yaml"


class TrtllmEngine:
    """Implements `outrider.engines.base.Engine`; `draft_length`: the stack's K, which its counters do not tell."""

    name = "tensorrt-llm"
    metrics_path = "/prometheus/metrics"

    def __init__(self, draft_length: int) -> None:
        self._draft_length = draft_length

    def find(self, stack: Stack) -> Install:
        """The version whose options were read, in the environment that the stack names; nothing is looked for."""
        return TRTLLM.install(stack)

    def judge(self, stack: Stack, install: Install) -> Sequence[Problem]:
        """What TensorRT-LLM cannot be told of this stack."""
        return [*TRTLLM.judge(stack, install), *_own(stack)]

    def plan(
        self, stack: Stack, install: Install, models: ResolvedModels, port: int, host: str = LOOPBACK
    ) -> LaunchPlan:
        """The launch plan, with the warnings of `judge`. Raises UnsupportedFeature."""
        problems = list(self.judge(stack, install))
        refuse(problems)
        if models.draft_revision:
            problems.append(_no_revision(models.draft_revision))
        python = Path(install.python)
        program = "trtllm-serve" if python.name == install.python else str(python.with_name("trtllm-serve"))
        argv = [program, "serve", models.target, "--host", host, "--port", str(port)]
        argv += ["--served_model_name", stack.served_name]
        if models.target_revision:
            argv += ["--revision", models.target_revision]
        if stack.target.chat_template:
            argv += ["--chat_template", stack.target.chat_template]
        return LaunchPlan(
            argv=(*argv, "--config", CONFIG),
            env={
                "TRTLLM_NO_USAGE_STATS": "1",
                **offline(models.target, models.draft),
                **stack.engine.extra_env,
            },
            host=host,
            port=port,
            key_variable="",
            health_path="/health",
            metrics_path=self.metrics_path,
            warnings=tuple(problems),
            notes={"drafts": "TensorRT-LLM is started with one draft for all"},
            files={CONFIG: yaml.safe_dump(options(stack, models), sort_keys=False)},
        )

    def stamp(self, draft: str) -> Mapping[str, object]:
        """Nothing: all requests have the draft that it was started with."""
        return {}

    def request_acceptance(self, usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
        """Not read."""
        return no_acceptance(usage_chunk)

    def counters(self, scrape: Scrape) -> EngineCounters:
        """Its totals of all positions (`…_num_…`), not the near-twins by position; steps follow from K, which is fixed."""
        proposed, accepted = (
            scrape.total((f"trtllm_spec_decode_num_{name}_tokens_total",)) or 0.0
            for name in ("draft", "accepted")
        )
        drafts = proposed / self._draft_length if self._draft_length else 0.0
        return EngineCounters(
            spec=SpecCounters(drafts, proposed, accepted),
            by_draft={},
            models=(),
            generation_tokens=scrape.total(("trtllm_generation_tokens_total",)),
            prompt_tokens=scrape.total(("trtllm_prompt_tokens_total",)),
            first_tokens=scrape.total(("trtllm_time_to_first_token_seconds_count",)),
            running=scrape.total(("trtllm_num_requests_running",)),
            waiting=scrape.total(("trtllm_num_requests_waiting",)),
        )

    def unknown_metrics(self, scrape: Scrape) -> Sequence[str]:
        """Not told: no page of it was seen here."""
        return ()


def options(stack: Stack, models: ResolvedModels) -> dict[str, object]:
    """Members of `TorchLlmArgs`, as the file of ``--config`` has them."""
    target, engine, draft = stack.target, stack.engine, stack.draft
    config: dict[str, object] = {
        "tensor_parallel_size": engine.tensor_parallel,
        "dtype": target.dtype,
        "max_batch_size": engine.max_running_requests,
    }
    if target.max_context_tokens:
        config["max_seq_len"] = target.max_context_tokens
    config["kv_cache_config"] = {"dtype": target.kv_cache_dtype, "enable_block_reuse": engine.prefix_cache}
    if engine.enforce_eager:
        config["cuda_graph_config"] = None
    config["return_perf_metrics"] = True  # the page of metrics
    config["enable_iter_perf_stats"] = True  # its counters of drafts
    if draft.method != "none":
        config["speculative_config"] = speculative_config(draft, models)
    if draft.method in ("ngram", "draft-model"):
        config["disable_overlap_scheduler"] = True  # as its documentation starts both
    return config


def speculative_config(draft: Draft, models: ResolvedModels) -> dict[str, object]:
    """TensorRT-LLM's own configuration of a draft that is not `none`."""
    config: dict[str, object] = {
        "decoding_type": TRTLLM.methods[draft.method],
        "max_draft_len": draft.length,
    }
    if models.draft:
        config["speculative_model"] = models.draft
    if draft.method == "ngram":
        # A pool for each request: in a common one a client could read off the speed what others asked.
        config |= {"max_matching_ngram_size": draft.ngram.max_tokens, "is_public_pool": False}
    return config


def _own(stack: Stack) -> list[Problem]:
    problems = [
        Problem(
            "trtllm-serve asks for no key: whoever reaches its port may use it",
            "engine.name",
            "engine-no-key",
            "Bind it to an address that only the front reaches; the chart's NetworkPolicy does that in a cluster.",
            "warning",
        )
    ]
    if stack.engine.memory_fraction:
        problems.append(
            Problem(
                "TensorRT-LLM takes a share of what the weights leave free, not of the accelerator's memory",
                "engine.memory_fraction",
                "engine-feature",
                "Leave it out: it takes 0.9 of what is free.",
            )
        )
    if "min_tokens" in stack.draft.ngram.model_fields_set and stack.draft.method == "ngram":
        problems.append(
            Problem(
                "TensorRT-LLM is told the longest match alone",
                "draft.ngram.min_tokens",
                "engine-feature",
                "Leave `min_tokens` out.",
            )
        )
    return problems


def _no_revision(revision: str) -> Problem:
    return Problem(
        f"TensorRT-LLM takes no revision of the draft: the command holds it to none, not to {revision}",
        "draft.revision",
        "engine-draft-revision",
        "Name a folder with the draft (`outrider weights STACK --into FOLDER`); the chart does that.",
        "warning",
    )

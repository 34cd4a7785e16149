"""The engine's command: what a stack turns into, and what never stands in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.engines.base import Install, LaunchPlan, ResolvedModels
from outrider.engines.vllm import switch
from outrider.engines.vllm.adapter import VllmEngine
from outrider.engines.vllm.extra_args import refused_extra_args
from outrider_vllm import drafts
from tests.unit.engines.vllm_stacks import CPU, CUDA, FOLDER, FOLDERS, stack

HUB = ResolvedModels("org/target", "c0ffee", "org/head", "beef")


def value(plan: LaunchPlan, flag: str) -> str:
    """The value of a flag that stands in the plan exactly once."""
    assert plan.argv.count(flag) == 1
    return plan.argv[plan.argv.index(flag) + 1]


def speculative(plan: LaunchPlan) -> dict[str, object]:
    """The speculative configuration of a plan."""
    config: dict[str, object] = json.loads(value(plan, "--speculative-config"))
    return config


def test_whole_command_of_the_embedded_kind() -> None:
    """A CPU stack with n-grams: every argument and variable, in order."""
    asked = stack(
        target={"model": "/models/target", "served_name": "m", "max_context_tokens": 2048},
        draft={"method": "ngram"},
        engine={"cpu_kv_cache_gib": 0.5, "max_running_requests": 8},
    )
    plan = VllmEngine().plan(asked, CPU, FOLDER, 1234)
    assert plan.argv == (
        *("/env/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/target"),
        *("--host", "127.0.0.1", "--port", "1234", "--served-model-name", "m"),
        *("--disable-uvicorn-access-log", "--shutdown-timeout", "8"),
        *("--load-format", "safetensors", "--dtype", "auto", "--kv-cache-dtype", "auto"),
        *("--max-model-len", "2048", "--max-num-seqs", "8", "--enable-prefix-caching", "--enforce-eager"),
        *("--kv-cache-memory-bytes", str(2**29)),
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}',
        *("--per-request-spec-decode-metrics", "summary"),
        *("--worker-cls", "outrider_vllm.worker.SwitchWorker"),
        *("--scheduler-cls", "outrider_vllm.scheduler.CountingScheduler"),
    )
    assert plan.env == {
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OUTRIDER_VLLM": "1",
        "OUTRIDER_VLLM_SWITCH": "2,4",
    }
    assert plan.drafts == ("ngram", "off")
    assert (plan.base_url, plan.health_path, plan.metrics_path) == (
        "http://127.0.0.1:1234",
        "/health",
        "/metrics",
    )


def test_a_shared_accelerator_gets_its_share_and_its_cache() -> None:
    """Both flags: vLLM looks at the share when it starts and takes the cache as it is named."""
    plan = VllmEngine().plan(stack(engine={"memory_fraction": 0.2, "kv_cache_gib": 16}), CUDA, FOLDER, 1)
    assert (value(plan, "--gpu-memory-utilization"), value(plan, "--kv-cache-memory-bytes")) == (
        "0.2",
        str(2**34),
    )


def test_no_draft_no_speculation() -> None:
    """`none` gives no speculative flag at all: vLLM refuses its metrics flag without one."""
    plan = VllmEngine().plan(stack(), CPU, FOLDER, 1)
    assert not any("spec" in argument for argument in plan.argv)


@pytest.mark.parametrize(
    ("draft", "config"),
    [
        ({"method": "suffix"}, {"method": "suffix", "num_speculative_tokens": 3}),
        (
            {"method": "ngram", "ngram": {"min_tokens": 1, "max_tokens": 6}, "draft_length": 4},
            {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 6},
        ),
        (
            {"method": "draft-model", "model": "x"},
            {"method": "draft_model", "num_speculative_tokens": 3, "model": "/models/draft"},
        ),
        (
            {"method": "eagle3", "model": "x", "draft_length": 2},
            {"method": "eagle3", "num_speculative_tokens": 2, "model": "/models/draft"},
        ),
        (
            {"method": "p-eagle", "model": "x", "tensor_parallel": 1},
            {
                "method": "eagle3",
                "num_speculative_tokens": 5,
                "model": "/models/draft",
                "parallel_drafting": True,
                "draft_tensor_parallel_size": 1,
            },
        ),
    ],
)
def test_each_method_in_the_engines_words(draft: dict[str, object], config: dict[str, object]) -> None:
    """Each method becomes exactly the keys that vLLM takes for it."""
    models = FOLDERS if "model" in draft else FOLDER
    assert speculative(VllmEngine().plan(stack(draft=draft), CPU, models, 1)) == config


@pytest.mark.parametrize(("length", "engine_length"), [(None, 5), (6, 6)])
def test_batch_schedule_and_its_longest_draft(length: int | None, engine_length: int) -> None:
    """The schedule is passed as it is; the engine's K is the stack's, else the schedule's longest."""
    schedule = [[1, 16, 5], [17, 64, 3], [65, 512, 0]]
    draft: dict[str, object] = {"method": "ngram", "draft_length_by_batch": schedule}
    if length:
        draft["draft_length"] = length
    config = speculative(VllmEngine().plan(stack(draft=draft), CPU, FOLDER, 1))
    assert config["num_speculative_tokens"] == engine_length
    assert config["num_speculative_tokens_per_batch_size"] == schedule


def test_hub_pair_on_cuda_is_pinned_and_may_ask_the_hub() -> None:
    """Hub ids carry their commits, tensor parallelism and memory share are set, and the hub is not shut off."""
    asked = stack(
        target={"model": "org/target", "dtype": "bfloat16", "kv_cache_dtype": "fp8", "quantization": "fp8"},
        draft={"method": "eagle3", "model": "org/head"},
        engine={"tensor_parallel": 4, "memory_fraction": 0.85, "prefix_cache": False, "shutdown_grace_s": 1},
    )
    plan = VllmEngine().plan(asked, CUDA, HUB, 1)
    wanted = {"--revision": "c0ffee", "--tensor-parallel-size": "4", "--gpu-memory-utilization": "0.85"}
    wanted |= {"--dtype": "bfloat16", "--kv-cache-dtype": "fp8", "--shutdown-timeout": "0"}
    assert {flag: value(plan, flag) for flag in wanted} == wanted
    assert (speculative(plan)["model"], speculative(plan)["revision"]) == ("org/head", "beef")
    assert "--no-enable-prefix-caching" in plan.argv
    assert not {"--enforce-eager", "--kv-cache-memory-bytes", "--per-request-spec-decode-metrics"} & set(
        plan.argv
    )
    assert plan.env == {"VLLM_NO_USAGE_STATS": "1"}


@pytest.mark.parametrize(
    ("asked", "install", "eager"), [(True, CUDA, True), (False, CPU, False), (None, CPU, True)]
)
def test_eager_as_asked_else_on_cpu(asked: bool | None, install: object, eager: bool) -> None:
    """`enforce_eager` is the stack's word; without one it is true on CPU alone."""
    plan = VllmEngine().plan(stack(engine={"enforce_eager": asked}), install, FOLDER, 1)  # type: ignore[arg-type]
    assert ("--enforce-eager" in plan.argv) == eager


def test_the_key_is_not_in_the_plan() -> None:
    """The plan names the variable of the launch key; neither key nor flag stands in argv or env."""
    plan = VllmEngine().plan(stack(), CPU, FOLDER, 1)
    assert plan.key_variable == "VLLM_API_KEY"
    assert plan.key_variable not in plan.env
    assert "--api-key" not in plan.argv


def test_no_remote_code_and_no_pickles() -> None:
    """No plan trusts remote code, and every plan loads safetensors only."""
    plan = VllmEngine().plan(stack(), CUDA, HUB, 1)
    assert "--trust-remote-code" not in plan.argv
    assert value(plan, "--load-format") == "safetensors"


def every_plan() -> Sequence[LaunchPlan]:
    """Plans that together write every flag that Outrider can write."""
    full: dict[str, object] = {"model": "org/t", "max_context_tokens": 64, "chat_template": "t.jinja"}
    on_gpu: dict[str, object] = {"tensor_parallel": 2, "memory_fraction": 0.5, "prefix_cache": False}
    return (
        VllmEngine().plan(
            stack(target=full, draft={"method": "eagle3", "model": "h"}, engine=on_gpu), CUDA, HUB, 1
        ),
        VllmEngine().plan(stack(draft={"method": "ngram"}), CPU, FOLDER, 1),
    )


def test_what_outrider_sets_is_refused_as_extra() -> None:
    """Every flag of every plan is refused as `engine.extra_args`, so no plan has one twice."""
    flags = {argument for plan in every_plan() for argument in plan.argv if argument.startswith("--")}
    assert len(flags) > 15
    for flag in flags:
        assert refused_extra_args({flag.removeprefix("--"): "x"}), flag


def test_extra_args_and_env_come_last() -> None:
    """The user's flags follow ours, and the user's environment is set beside ours."""
    engine = {"extra_args": {"max-num-batched-tokens": 256}, "extra_env": {"VLLM_LOGGING_LEVEL": "DEBUG"}}
    plan = VllmEngine().plan(stack(engine=engine), CPU, FOLDER, 1)
    assert plan.argv[-1] == "--max-num-batched-tokens=256"
    assert plan.env["VLLM_LOGGING_LEVEL"] == "DEBUG"


def test_the_stamp_is_the_plugins() -> None:
    """The adapter stamps under the very key that the plugin reads."""
    assert VllmEngine().stamp("ngram") == {"vllm_xargs": {drafts.STAMP: "ngram"}}


def test_what_the_head_reads_is_cached_apart() -> None:
    """The stamps of drafts that the head reads carry the salt, the others none; which and what are the plugin's."""
    assert switch.READ_BY_HEAD == drafts.READ_BY_HEAD
    assert switch.SALT == drafts.SALT
    salted = {name for name in drafts.NAMES if VllmEngine().stamp(name).get("cache_salt") == drafts.SALT}
    assert salted == drafts.READ_BY_HEAD
    assert all("cache_salt" not in VllmEngine().stamp(name) for name in drafts.NAMES - salted)


@pytest.mark.parametrize("method", ["eagle3", "p-eagle", "draft-model", "ngram"])
def test_requests_can_be_stamped_with_what_the_plugin_answers(method: str) -> None:
    """The plan's drafts are those that the plugin answers on a server of this method, the stack's first."""
    model = {} if method == "ngram" else {"model": "x"}
    plan = VllmEngine().plan(stack(draft={"method": method, **model}), CPU, FOLDERS, 1)
    assert plan.drafts[0] == method
    assert set(plan.drafts) == drafts.answered(method)
    assert dict(plan.notes) == {}


@pytest.mark.parametrize(
    ("sections", "install", "why"),
    [
        ({"policy": {"enabled": False}}, CPU, "policy: off"),
        ({"draft": {"method": "none"}}, CPU, "method none"),
        ({"draft": {"method": "suffix"}}, CPU, "method suffix"),
        ({"engine": {"tensor_parallel": 2}}, CPU, "tensor parallelism"),
        ({}, replace(CPU, version="0.31.0"), "0.31.0"),
        ({}, CUDA, "0.26.0"),
        ({}, replace(CUDA, plugin=True), "0.26.0"),
    ],
)
def test_without_the_switch_the_command_knows_nothing_of_it(
    sections: dict[str, dict[str, object]], install: Install, why: str
) -> None:
    """Off, untried or impossible: the engine's plain classes, no variable, no drafts to choose from, and a word why."""
    asked = stack(**{"draft": {"method": "ngram"}, **sections})
    plan = VllmEngine().plan(asked, install, FOLDER, 1)
    assert not any("outrider_vllm" in argument for argument in plan.argv)
    assert "OUTRIDER_VLLM_SWITCH" not in plan.env
    assert plan.drafts == ()
    assert plan.notes["drafts"]
    if install.plugin:
        assert why in plan.notes["drafts"]


def test_the_length_of_n_grams_reaches_the_plugin() -> None:
    """A head's server looks for the n-grams that the stack describes."""
    draft: dict[str, object] = {"method": "eagle3", "model": "x", "ngram": {"min_tokens": 3, "max_tokens": 7}}
    assert VllmEngine().plan(stack(draft=draft), CPU, FOLDERS, 1).env["OUTRIDER_VLLM_SWITCH"] == "3,7"

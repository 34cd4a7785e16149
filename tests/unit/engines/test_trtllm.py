"""TensorRT-LLM's command and YAML out of a stack, what is refused, and its counters in engine-neutral terms."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from outrider.core.errors import UnsupportedFeature
from outrider.engines.base import LaunchPlan, ResolvedModels
from outrider.engines.choose import engine_of
from outrider.engines.trtllm import CONFIG, TrtllmEngine
from outrider.telemetry.scrape import parse
from tests.unit.engines.vllm_stacks import FOLDER, FOLDERS, rules, stack

ENGINE: dict[str, object] = {"name": "tensorrt-llm"}
HEAD: dict[str, object] = {"method": "eagle3", "model": "org/head"}


def planned(
    draft: dict[str, object],
    models: ResolvedModels = FOLDERS,
    engine: dict[str, object] = ENGINE,
    **target: object,
) -> LaunchPlan:
    """The plan of a stack."""
    asked = stack(target={"model": "org/target", "served_name": "m", **target}, draft=draft, engine=engine)
    adapter = engine_of(asked)
    assert isinstance(adapter, TrtllmEngine)
    return adapter.plan(asked, adapter.find(asked), models, 1234)


def config(plan: LaunchPlan) -> dict[str, Any]:
    """What its one file says."""
    ((name, text),) = plan.files.items()
    assert plan.argv[-2:] == ("--config", name)
    return dict(yaml.safe_load(text))


def test_whole_command_and_file() -> None:
    """A head on a hub and everything that a stack can say: every argument and the file, in order."""
    plan = planned(
        {**HEAD, "draft_length": 5},
        ResolvedModels("org/target", "c0ffee", "org/head"),
        {
            **ENGINE,
            "python": "/env/bin/python",
            "tensor_parallel": 2,
            "max_running_requests": 64,
            "prefix_cache": False,
            "enforce_eager": True,
            "extra_env": {"NCCL_DEBUG": "WARN"},
        },
        max_context_tokens=16384,
        kv_cache_dtype="fp8",
        dtype="bfloat16",
        chat_template="chat.jinja",
    )
    assert plan.argv == (
        *("/env/bin/trtllm-serve", "serve", "org/target", "--host", "127.0.0.1", "--port", "1234"),
        *("--served_model_name", "m", "--revision", "c0ffee", "--chat_template", "chat.jinja"),
        *("--config", "trtllm.yaml"),
    )
    assert plan.files == {
        CONFIG: """\
tensor_parallel_size: 2
dtype: bfloat16
max_batch_size: 64
max_seq_len: 16384
kv_cache_config:
  dtype: fp8
  enable_block_reuse: false
cuda_graph_config: null
return_perf_metrics: true
enable_iter_perf_stats: true
speculative_config:
  decoding_type: Eagle3
  max_draft_len: 5
  speculative_model: org/head
"""
    }
    assert plan.env == {"TRTLLM_NO_USAGE_STATS": "1", "NCCL_DEBUG": "WARN"}
    assert (plan.key_variable, plan.health_path, plan.metrics_path) == ("", "/health", "/prometheus/metrics")


@pytest.mark.parametrize(
    ("draft", "models", "members"),
    [
        ({"method": "none"}, FOLDER, {}),
        (
            {"method": "draft-model", "model": "org/small"},
            FOLDERS,
            {
                "speculative_config": {
                    "decoding_type": "Draft_Target",
                    "max_draft_len": 3,
                    "speculative_model": "/models/draft",
                },
                "disable_overlap_scheduler": True,
            },
        ),
        (
            {"method": "ngram", "ngram": {"max_tokens": 6}},
            FOLDER,
            {
                "speculative_config": {
                    "decoding_type": "NGram",
                    "max_draft_len": 3,
                    "max_matching_ngram_size": 6,
                    "is_public_pool": False,
                },
                "disable_overlap_scheduler": True,
            },
        ),
    ],
)
def test_each_draft(draft: dict[str, object], models: ResolvedModels, members: dict[str, object]) -> None:
    """Beside what is always there; n-grams of one request are none of another's."""
    plan = planned(draft, models)
    assert plan.argv[0] == "trtllm-serve"
    assert config(plan) == {
        "tensor_parallel_size": 1,
        "dtype": "auto",
        "max_batch_size": 16,
        "kv_cache_config": {"dtype": "auto", "enable_block_reuse": True},
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
        **members,
    }


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"draft": {"method": "p-eagle", "model": "org/head"}}, "no p-eagle drafts"),
        ({"draft": {"method": "suffix"}}, "no suffix drafts"),
        ({"draft": {**HEAD, "draft_length_by_batch": [[1, 8, 3], [9, 64, 0]]}}, "draft length by batch size"),
        ({"draft": {"method": "ngram", "ngram": {"min_tokens": 1}}}, "longest match alone"),
        ({"engine": {**ENGINE, "memory_fraction": 0.8}}, "what the weights leave free"),
        ({"engine": {**ENGINE, "device": "cpu"}}, "on a CPU"),
    ],
)
def test_what_it_cannot_be_told_is_refused(sections: dict[str, dict[str, object]], said: str) -> None:
    """In a sentence, with what to do; the rest is refused as for SGLang."""
    asked = stack(**{"engine": ENGINE, **sections})
    adapter = engine_of(asked)
    install = adapter.find(asked)
    (problem,) = (one for one in adapter.judge(asked, install) if one.severity == "error")
    assert said in problem.message
    assert problem.hint
    with pytest.raises(UnsupportedFeature):
        adapter.plan(asked, install, FOLDERS, 1)


def test_what_it_says_beside_the_command() -> None:
    """Never run, no key; of a draft on a hub, that no revision holds it."""
    hub = ResolvedModels("org/target", None, "org/head", "beef")
    found = rules(list(planned(HEAD, hub).warnings), "warning")
    assert found == ["engine-not-run", "engine-head-form", "engine-no-key", "engine-draft-revision"]
    assert "engine-draft-revision" not in rules(list(planned(HEAD).warnings), "warning")


PAGE = """
trtllm_spec_decode_num_draft_tokens_total{model_name="undefined"} 480.0
trtllm_spec_decode_num_accepted_tokens_total{model_name="undefined"} 240.0
trtllm_spec_decode_accepted_tokens_total{model_name="undefined",token_position="0"} 130.0
trtllm_spec_decode_drafted_tokens_total{model_name="undefined",token_position="0"} 160.0
trtllm_generation_tokens_total{model_name="undefined"} 410.0
trtllm_prompt_tokens_total{model_name="undefined"} 50.0
trtllm_time_to_first_token_seconds_count{model_name="undefined"} 10.0
trtllm_num_requests_running{model_name="undefined"} 3.0
trtllm_num_requests_waiting{model_name="undefined"} 1.0
"""


def test_counters_are_the_totals_not_their_near_twins() -> None:
    """480 tokens proposed by threes are 160 drafts."""
    found = TrtllmEngine(3).counters(parse(PAGE))
    assert (found.spec.drafts, found.spec.proposed, found.spec.accepted) == (160, 480, 240)
    assert (found.generation_tokens, found.prompt_tokens, found.first_tokens) == (410, 50, 10)
    assert (found.running, found.waiting, found.steps) == (3, 1, None)
    assert TrtllmEngine(0).counters(parse("")).spec.drafts == 0

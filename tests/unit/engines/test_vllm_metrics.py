"""vLLM's metrics page and usage chunks in engine-neutral terms."""

from __future__ import annotations

import pytest

from outrider.core.acceptance import SpecCounters
from outrider.engines.base import RequestAcceptance
from outrider.engines.vllm.metrics import counters, request_acceptance, unknown_names
from outrider.telemetry.scrape import lean, parse

PAGE = """
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 300
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 900
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 130
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 330
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="10"} 5
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 210
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 120
vllm:generation_tokens_total{engine="0",model_name="m"} 500
vllm:generation_tokens_total{engine="1",model_name="m"} 700
vllm:prompt_tokens_total{engine="0",model_name="m"} 50
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 400
vllm:num_requests_running{engine="0",model_name="m"} 2
vllm:num_requests_running{engine="1",model_name="m"} 3
vllm:num_requests_waiting{engine="0",model_name="m"} 1
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.4
"""


def test_engines_are_summed_and_shares_averaged() -> None:
    """Counts and requests of two engines add up, per position by number; the cache's share is their mean."""
    found = counters(parse(PAGE))
    assert found.spec == SpecCounters(400, 1200, 460, (290, 120, 0, 0, 0, 0, 0, 0, 0, 0, 5))
    assert (found.generation_tokens, found.prompt_tokens, found.first_tokens, found.steps) == (
        1200,
        50,
        10,
        400,
    )
    assert (found.running, found.waiting, found.models, found.by_draft) == (5, 1, ("m",), {})
    assert found.kv_cache_usage_ratio == pytest.approx(0.3)


def test_old_names_are_read_where_new_ones_are_absent() -> None:
    """A page with only the older names gives the same figures."""
    page = """
vllm:spec_decode_draft_tokens_total{model_name="m"} 30
vllm:spec_decode_accepted_tokens_total{model_name="m"} 12
vllm:time_per_output_token_seconds_count{model_name="m"} 7
vllm:gpu_cache_usage_perc{model_name="m"} 0.41
"""
    found = counters(parse(page))
    assert (found.spec.proposed, found.spec.accepted, found.steps) == (30, 12, 7)
    assert found.kv_cache_usage_ratio == 0.41


def test_old_and_new_are_never_summed() -> None:
    """Where both names stand, the new one counts alone, before and after `_total`."""
    page = """
vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 10
vllm:spec_decode_accepted_tokens_total{model_name="m"} 10
vllm:inter_token_latency_seconds_count{model_name="m"} 5
vllm:time_per_output_token_seconds_count{model_name="m"} 5
"""
    found = counters(parse(page))
    assert (found.spec.accepted, found.steps) == (10, 5)


def test_absent_is_none_and_no_speculation_is_zero() -> None:
    """An empty page says nothing: None for gauges and totals, zero drafts."""
    found = counters(parse(""))
    assert found.spec == SpecCounters()
    assert (found.generation_tokens, found.steps, found.running, found.kv_cache_usage_ratio) == (None,) * 4
    assert found.models == ()


def test_unknown_names_are_listed_once() -> None:
    """A family that is neither read nor known is listed once, whatever its samples; known ones are not."""
    page = """
# TYPE vllm:brand_new_seconds histogram
vllm:brand_new_seconds_bucket{le="1.0"} 1
vllm:brand_new_seconds_bucket{le="+Inf"} 1
vllm:brand_new_seconds_sum 1
vllm:brand_new_seconds_count 1
vllm:request_success_total{finished_reason="stop"} 1
vllm:iteration_tokens_total_bucket{le="+Inf"} 1
python_info 1
"""
    assert unknown_names(parse(page + PAGE)) == ("vllm:brand_new_seconds",)


CHUNK = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 120, "total_tokens": 129},
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 1.96,
            "draft_acceptance_rate": 0.32,
            "acceptance_histogram": [12, 7, 1, 5],
            "num_spec_steps": 25,
            "num_accepted_draft_tokens": 24,
            "num_draft_tokens": 75,
            "num_spec_tokens": 3,
        }
    },
}


def test_acceptance_of_one_request() -> None:
    """120 tokens, 24 of them accepted: the first, then 95 steps, 25 of which had a draft."""
    assert request_acceptance(CHUNK) == RequestAcceptance(95, 25, 75, 24)


def test_steps_are_never_less_than_drafts() -> None:
    """A stop in mid-draft leaves fewer tokens than were accepted; the steps with a draft still happened."""
    stopped = {**CHUNK, "usage": {"completion_tokens": 40}}
    assert request_acceptance(stopped) == RequestAcceptance(25, 25, 75, 24)


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"metrics": None},
        {"metrics": {"speculative_decoding": None}},
        {"metrics": {"speculative_decoding": {"num_spec_steps": "9"}}},
        {"metrics": {"speculative_decoding": {"num_spec_steps": 9}}},
        {"metrics": [1]},
    ],
)
def test_no_acceptance_where_the_engine_is_silent(chunk: dict[str, object]) -> None:
    """Null, missing or malformed metrics are None, not zeros."""
    assert request_acceptance(chunk) is None


def test_the_plugins_counters_are_by_draft() -> None:
    """The page that the plugin writes is read back: counts and positions of each draft under its name, nothing of vLLM's."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from prometheus_client import CollectorRegistry, generate_latest

    from outrider_vllm.counters import Counts, Page

    registry = CollectorRegistry()
    with TemporaryDirectory() as folder:
        registry.register(Page(Path(folder)))  # type: ignore[arg-type]
        assert counters(parse(generate_latest(registry))).by_draft == {}
        one, other = (Counts(Path(folder) / f"{name}.counts", create=True) for name in "ab")
        one.add("eagle3", 5, 3)
        one.add("eagle3", 5, 0)
        other.add("eagle3", 4, 1)
        other.add("ngram", 2, 2)
        found = counters(parse(lean(generate_latest(registry))))
    assert found.by_draft == {
        "eagle3": SpecCounters(3, 14, 4, (2, 1, 1)),
        "ngram": SpecCounters(1, 2, 2, (1, 1)),
    }
    assert found.spec == SpecCounters()
    assert unknown_names(parse(generate_latest(registry))) == ()

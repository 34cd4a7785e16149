"""vLLM's Prometheus page in engine-neutral terms, and the acceptance that its answers carry.

Names that vLLM renamed are alternatives: the first that is present is taken, they are never summed. Samples of
several engines (label ``engine``) are summed.

Source: vLLM 0.32.0 `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`, `entrypoints/generate/base/protocol.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outrider.core.acceptance import SpecCounters
from outrider.engines.base import EngineCounters, RequestAcceptance
from outrider.telemetry.scrape import Sample, Scrape

DRAFTS = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts")
PROPOSED = (
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_draft_tokens_total",
)
ACCEPTED = (
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:spec_decode_accepted_tokens_total",
)
PER_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
)
GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
PROMPT = ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
FIRST_TOKENS = ("vllm:time_to_first_token_seconds_count",)
# One observation for each output of a request after its first: a decode step of that request.
STEPS = ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count")
RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")

# The plugin's, label `draft`: outrider_vllm/counters.py.
BY_DRAFT = (
    "outrider_vllm_drafts_total",
    "outrider_vllm_draft_tokens_total",
    "outrider_vllm_accepted_tokens_total",
)
BY_DRAFT_PER_POSITION = "outrider_vllm_accepted_tokens_per_position_total"

READ = (
    DRAFTS,
    PROPOSED,
    ACCEPTED,
    PER_POSITION,
    GENERATED,
    PROMPT,
    FIRST_TOKENS,
    STEPS,
    RUNNING,
    WAITING,
    KV_USAGE,
)
_FAMILY_ENDS = ("_total", "_bucket", "_count", "_sum")
# Families of 0.26 to 0.32 that Outrider does not read.
_OTHERS = """
admission_rejections cache_config_info corrupted_requests e2e_request_latency_seconds engine_sleep_state
estimated_flops_per_gpu estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu external_prefix_cache_hits
external_prefix_cache_queries iteration_tokens_total kv_block_idle_before_evict_seconds kv_block_lifetime_seconds
kv_block_reuse_gap_seconds lora_requests_info mm_cache_hits mm_cache_queries num_preemptions
num_requests_kv_fetch_by_stage num_requests_waiting_by_reason prefix_cache_hits prefix_cache_queries
prompt_tokens_by_source prompt_tokens_cached prompt_tokens_cached_by_source request_decode_time_seconds
request_generation_tokens request_inference_time_seconds request_max_num_generation_tokens
request_num_preemptions request_params_max_tokens request_params_n request_prefill_kv_computed_tokens
request_prefill_time_seconds request_prompt_tokens request_queue_time_seconds request_success
request_time_per_output_token_seconds watermark_requests tool_call_parser_invocations
"""
KNOWN = frozenset(f"vllm:{name}" for name in _OTHERS.split())


def counters(scrape: Scrape) -> EngineCounters:
    """Engine-neutral counters of one scrape; `by_draft` is empty without the plugin's: vLLM counts drafts in sum."""
    return EngineCounters(
        spec=SpecCounters(
            drafts=scrape.total(DRAFTS) or 0.0,
            proposed=scrape.total(PROPOSED) or 0.0,
            accepted=scrape.total(ACCEPTED) or 0.0,
            per_position=_per_position(scrape.first_named(PER_POSITION)),
        ),
        by_draft=_by_draft(scrape),
        models=_models(scrape),
        generation_tokens=scrape.total(GENERATED),
        prompt_tokens=scrape.total(PROMPT),
        first_tokens=scrape.total(FIRST_TOKENS),
        steps=scrape.total(STEPS),
        running=scrape.total(RUNNING),
        waiting=scrape.total(WAITING),
        kv_cache_usage_ratio=_mean(scrape, KV_USAGE),
    )


def unknown_names(scrape: Scrape) -> tuple[str, ...]:
    """vLLM's families on this page that are neither read nor known: a renamed one would be among them."""
    read = {_family(name) for names in READ for name in names}
    found = {_family(sample.name) for sample in scrape.samples if sample.name.startswith("vllm:")}
    return tuple(sorted(found - read - KNOWN))


def request_acceptance(usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
    """Acceptance out of a usage chunk or a whole answer; None where vLLM says nothing (old, n > 1, not asked).

    vLLM counts the steps that had a draft. A request's tokens after its first are made one a step plus the accepted
    ones, so its steps are completion tokens - 1 - accepted; a stop in mid-draft makes that less, never less than the
    steps with a draft.
    """
    spec = _member(_member(usage_chunk, "metrics"), "speculative_decoding")
    drafts, proposed, accepted = (
        _whole(spec, name) for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    )
    if drafts is None or accepted is None:
        return None
    tokens = _whole(_member(usage_chunk, "usage"), "completion_tokens")
    steps = None if tokens is None else max(tokens - 1 - accepted, drafts)
    return RequestAcceptance(steps=steps, drafts=drafts, proposed_tokens=proposed, accepted_tokens=accepted)


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _whole(value: object, name: str) -> int | None:
    found = _member(value, name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _by_draft(scrape: Scrape) -> dict[str, SpecCounters]:
    """The plugin's counters; a draft is on the page once it was verified."""
    found: dict[str, SpecCounters] = {}
    for draft in sorted({sample.label("draft") or "" for sample in scrape.first_named(BY_DRAFT[:1])} - {""}):
        drafts, proposed, accepted = (
            sum(one.value for one in scrape.first_named((name,)) if one.label("draft") == draft)
            for name in BY_DRAFT
        )
        positions = scrape.first_named((BY_DRAFT_PER_POSITION,))
        by_position = _per_position([one for one in positions if one.label("draft") == draft])
        found[draft] = SpecCounters(drafts, proposed, accepted, by_position)
    return found


def _per_position(samples: Iterable[Sample]) -> tuple[float, ...]:
    by_position: dict[int, float] = {}
    for sample in samples:
        position = sample.label("position") or ""
        if position.isdigit():
            by_position[int(position)] = by_position.get(int(position), 0.0) + sample.value
    return tuple(by_position.get(position, 0.0) for position in range(max(by_position, default=-1) + 1))


def _models(scrape: Scrape) -> tuple[str, ...]:
    names = {sample.label("model_name") for sample in scrape.samples if sample.name.startswith("vllm:")}
    return tuple(sorted(name for name in names if name))


def _mean(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """A share is averaged over engines, not summed."""
    found = scrape.first_named(names)
    return sum(sample.value for sample in found) / len(found) if found else None


def _family(name: str) -> str:
    return next((name.removesuffix(end) for end in _FAMILY_ENDS if name.endswith(end)), name)

"""Every metric Outrider emits, in one table: the registry, the docs and a test are made from it.

Prefix ``outrider_``, base units, except the gauge ``queue_wait_ms`` that the autoscaler reads. `source` says who sets
it: the front from its own requests, or control from the engine's counters, put in engine-neutral terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

QUEUE_WAIT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60)
TPOT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
E2E_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: full name as scraped, kind, unit, labels, what it says, who sets it."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    source: Literal["front", "control"] = "front"


REQUESTS = Metric(
    "outrider_requests_total",
    "counter",
    "requests",
    "Requests ended. Outcomes: ok, refused (the client's mistake, found here or by the engine), queue_full, "
    "queue_timeout, deadline, client_gone, engine_error.",
    ("lane", "outcome"),
)
RUNNING = Metric(
    "outrider_requests_running", "gauge", "requests", "Requests dispatched to an engine and not ended."
)
WAITING = Metric(
    "outrider_requests_waiting", "gauge", "requests", "Requests in the front's queue.", ("lane",)
)
CONNECTIONS = Metric("outrider_client_connections", "gauge", "connections", "Open client connections.")
QUEUE_WAIT = Metric(
    "outrider_queue_wait_seconds",
    "histogram",
    "seconds",
    "From arrival at the front to dispatch to an engine.",
    ("lane",),
    QUEUE_WAIT_BUCKETS_S,
)
QUEUE_WAIT_MS = Metric(
    "queue_wait_ms",
    "gauge",
    "milliseconds",
    "The larger of the p90 queue wait of requests dispatched in the last 60 s and the age of the oldest one waiting.",
)
LANE_QUEUE_WAIT = Metric(
    "outrider_lane_queue_wait_seconds",
    "gauge",
    "seconds",
    "As queue_wait_ms, of one lane: what a lane with engines of its own is scaled by.",
    ("lane",),
)
LANE_RUNNING = Metric(
    "outrider_lane_requests_running",
    "gauge",
    "requests",
    "Requests of the lane dispatched to an engine and not ended.",
    ("lane",),
)
ENGINES_READY = Metric(
    "outrider_engines_ready",
    "gauge",
    "engines",
    "Engines that the lane's requests may be sent to.",
    ("lane",),
)
TTFT = Metric(
    "outrider_time_to_first_token_seconds",
    "histogram",
    "seconds",
    "From arrival at the front to the first output token of a stream.",
    ("lane",),
    TTFT_BUCKETS_S,
)
TPOT = Metric(
    "outrider_time_per_output_token_seconds",
    "histogram",
    "seconds",
    "Mean time per output token after the first, of one stream.",
    ("lane",),
    TPOT_BUCKETS_S,
)
E2E = Metric(
    "outrider_request_duration_seconds",
    "histogram",
    "seconds",
    "From arrival at the front to the last output token, of requests that ended well.",
    ("lane",),
    E2E_BUCKETS_S,
)
PROMPT_TOKENS = Metric(
    "outrider_prompt_tokens_total", "counter", "tokens", "Prompt tokens of ended requests."
)
OUTPUT_TOKENS = Metric(
    "outrider_output_tokens_total", "counter", "tokens", "Output tokens of ended requests."
)
KEY_OUTPUT_TOKENS = Metric(
    "outrider_key_output_tokens_total",
    "counter",
    "tokens",
    "Output tokens by API key, by its name.",
    ("key",),
)
THROUGHPUT = Metric(
    "outrider_output_tokens_per_second",
    "gauge",
    "tokens per second",
    "Output tokens per second in the last minute.",
)
DRAFT_IN_FORCE = Metric(
    "outrider_draft_in_force", "gauge", "1", "1 for the draft new requests are stamped with.", ("draft",)
)
DRAFT_SWITCHES = Metric(
    "outrider_draft_switches_total",
    "counter",
    "switches",
    "Changes of the draft in force, by why. Reasons: broken, acceptance, load, trial, trial-over, recovered, pinned, released.",
    ("from", "to", "reason"),
    source="control",
)
DRAFT_ALERT = Metric(
    "outrider_draft_alert",
    "gauge",
    "1",
    "1 while something is wrong with a draft. Kinds: broken, numerical, collapse, drift, under-baseline, worthless-baseline.",
    ("draft", "kind"),
    source="control",
)
DRAFTS = Metric(
    "outrider_drafts_total",
    "counter",
    "drafts",
    "Engine steps with a draft, of ended requests that tell.",
    ("draft",),
)
PROPOSED = Metric(
    "outrider_draft_tokens_proposed_total",
    "counter",
    "tokens",
    "Draft tokens proposed, likewise.",
    ("draft",),
)
ACCEPTED = Metric(
    "outrider_draft_tokens_accepted_total",
    "counter",
    "tokens",
    "Draft tokens accepted, likewise.",
    ("draft",),
)
ACCEPTANCE_RATE = Metric(
    "outrider_acceptance_rate_ratio",
    "gauge",
    "ratio",
    "Accepted / proposed draft tokens of requests ended in the last minute; absent without any.",
    ("draft",),
)
ACCEPTANCE_LENGTH = Metric(
    "outrider_acceptance_length_tokens",
    "gauge",
    "tokens",
    "1 + accepted / drafts of requests ended in the last minute (the bonus token is included); absent without any.",
    ("draft",),
)
READY = Metric("outrider_ready", "gauge", "1", "1 when /readyz is good.")
DRAFT_BROKEN = Metric(
    "outrider_draft_broken",
    "gauge",
    "1",
    "1 when the start-up probe saw drafts proposed and none accepted.",
    source="control",
)
RESTARTS = Metric(
    "outrider_engine_restarts_total", "counter", "restarts", "Engine restarts.", source="control"
)
ENGINE_RUNNING = Metric(
    "outrider_engine_requests_running",
    "gauge",
    "requests",
    "Requests the engine runs.",
    ("engine",),
    source="control",
)
ENGINE_WAITING = Metric(
    "outrider_engine_requests_waiting",
    "gauge",
    "requests",
    "Requests waiting inside the engine.",
    ("engine",),
    source="control",
)
ENGINE_KV_CACHE = Metric(
    "outrider_engine_kv_cache_usage_ratio",
    "gauge",
    "ratio",
    "Share of the engine's KV cache in use.",
    ("engine",),
    source="control",
)
ENGINE_TOKENS = Metric(
    "outrider_engine_generation_tokens_total",
    "counter",
    "tokens",
    "Tokens the engine generated.",
    ("engine",),
    source="control",
)
ENGINE_DRAFTS = Metric(
    "outrider_engine_drafts_total",
    "counter",
    "drafts",
    "Steps with a draft, as the engine counts.",
    ("engine", "draft"),
    source="control",
)
ENGINE_PROPOSED = Metric(
    "outrider_engine_draft_tokens_proposed_total",
    "counter",
    "tokens",
    "Draft tokens proposed, as the engine counts.",
    ("engine", "draft"),
    source="control",
)
ENGINE_ACCEPTED = Metric(
    "outrider_engine_draft_tokens_accepted_total",
    "counter",
    "tokens",
    "Draft tokens accepted, as the engine counts.",
    ("engine", "draft"),
    source="control",
)

TABLE: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def markdown() -> str:
    """The table as a Markdown page's body, for docs/metrics.md."""
    rows = ["| metric | kind | unit | labels | set by | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for metric in TABLE:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        rows.append(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.source} | {metric.help} |"
        )
    return "\n".join(rows) + "\n"

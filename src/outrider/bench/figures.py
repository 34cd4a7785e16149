"""From the records and counters of a cell to its figures, by the definitions of `outrider.measure` and `outrider.core`.

Percentiles are over requests that ended as they should; failures stand beside them. Throughput, peak, running requests and step
time are of the steady window. One trial or several: samples are pooled, counts added, windows joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from outrider.bench.acceptance import UNTRUSTWORTHY, Counted, acceptance, counted
from outrider.bench.document import Acceptance, Figures, Gpu, Quantiles
from outrider.bench.quantiles import of_histogram, of_values
from outrider.bench.window import GPU_RULE, SteadyRule, Window, running_mean, steady_window
from outrider.core.errors import MeasurementError
from outrider.core.latency import percentile
from outrider.cost.price import usd_per_million_output_tokens
from outrider.measure.counters import CounterTrace
from outrider.measure.load import LoadResult
from outrider.measure.records import RequestRecord

QUEUE_WAIT_NOTE = "queue waits are upper bounds: the front counts them in buckets"
NO_OUTPUT = "no-output"
CLOCK = "clock-jumped"
_SAME_MOMENT_S = 1e-3  # generators round their moments; more than this backwards is a clock that jumped
_COARSE = 1.5  # a chunk that holds this many times the tokens a step can make is not one step
_COVERED = 0.95  # drafts in fewer steps than this: AL says more than the arm earned


@dataclass(frozen=True, slots=True)
class CellPrice:
    """What is paid: USD per accelerator and hour, and how many."""

    usd_per_hour: float
    accelerators: int = 1


@dataclass(frozen=True, slots=True)
class CellData:
    """One trial of one cell as it was measured. `draft_length` is the arm's K, 0 for the baseline."""

    load: LoadResult
    counters: CounterTrace
    concurrency: int
    draft_length: int = 0


@dataclass(frozen=True, slots=True)
class FigureRules:
    """What is believed: the steady window's rule, and the share of failed requests (0 to 1) above which a cell is invalid."""

    steady: SteadyRule = GPU_RULE
    error_limit: float = 0.01


@dataclass(frozen=True, slots=True)
class _Trial:
    """One trial taken apart: finished records, failures by kind, window, counts."""

    data: CellData
    finished: tuple[RequestRecord, ...]
    failures: Counter[str]
    window: Window
    counts: Counted


@dataclass(frozen=True, slots=True)
class _Rates:
    """Window figures over all trials."""

    window_s: float = 0.0
    running: float | None = None
    tok_s: float | None = None
    peak: float | None = None
    steps_s: list[float] = field(default_factory=list)
    step_tokens: int = 0
    per_chunk: float | None = None


def figures(
    cells: Sequence[CellData], price: CellPrice | None = None, rules: FigureRules | None = None
) -> Figures:
    """The figures of one cell over one trial or several (pooled). Raises MeasurementError without a single request."""
    rules = rules or FigureRules()
    trials = [_taken_apart(cell, rules.steady) for cell in cells if cell.load.records]
    if not trials:
        raise MeasurementError(
            "the load generator recorded no request",
            hint="look at its own log beside the records; is the server up?",
        )
    finished = [record for trial in trials for record in trial.finished]
    failures: Counter[str] = sum((trial.failures for trial in trials), Counter())
    rates = _rates(trials)
    drafts = acceptance([trial.counts for trial in trials])
    tpot = _ms(record.timing.tpot_s for record in finished)
    queue = of_histogram([trial.data.counters.queue_waits_s for trial in trials])
    coarse = _coarse(trials[0].data.draft_length, rates.per_chunk, drafts)
    step = _step_ms(rates, drafts, bool(coarse))
    reasons = dict.fromkeys(trial.window.reason for trial in trials if trial.window.reason)
    usages = [reading.counters.kv_cache_usage_ratio for t in trials for reading in t.data.counters.readings]
    return Figures(
        requests=sum(len(trial.data.load.records) for trial in trials),
        ok=len(finished),
        failures=dict(sorted(failures.items())),
        output_tokens=sum(_tokens(record) for record in finished),
        window_s=rates.window_s,
        steady=all(trial.window.steady for trial in trials),
        steady_reason="; ".join(reasons),
        running_mean=rates.running,
        output_tok_s=rates.tok_s,
        peak_tok_s=rates.peak,
        user_tok_s=percentile([1e3 / value for value in tpot], 50) if tpot and min(tpot) > 0 else None,
        ttft_ms=of_values(_ms(record.timing.ttft_s for record in finished)),
        tpot_ms=of_values(tpot),
        token_itl_ms=of_values([gap * 1e3 for record in finished for gap in record.token_itl_s()]),
        step_gap_ms=of_values([gap * 1e3 for record in finished for gap in record.step_gaps_s()]),
        e2e_ms=of_values(_ms(record.timing.e2e_s for record in finished)),
        queue_wait_ms=queue,
        first_text_ms=of_values(_ms(_first_text_s(record) for record in finished)),
        step_ms=step,
        tokens_per_chunk=rates.per_chunk,
        acceptance=drafts,
        gpu=_gpu(cells),
        kv_cache_peak_ratio=max((usage for usage in usages if usage is not None), default=None),
        usd_per_million_output_tokens=_usd(price, rates.tok_s),
        warnings=_warnings(trials, rates, drafts, coarse, queue),
    )


def verdict(found: Figures, rules: FigureRules | None = None) -> str:
    """Why this cell must not be believed, or empty: too many failures, nothing finished, the engine restarted."""
    limit = (rules or FigureRules()).error_limit
    failed = sum(found.failures.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.failures.items())
    if not found.ok:
        return f"no request finished ({kinds})"
    if failed > limit * found.requests:
        return f"{failed} of {found.requests} requests failed ({kinds}): more than {limit:.1%}"
    return found.acceptance.void if found.acceptance.void in UNTRUSTWORTHY else ""


def _taken_apart(cell: CellData, rule: SteadyRule) -> _Trial:
    finished, failures = [], Counter[str]()
    sound = []
    for record in cell.load.records:
        moments = [record.started_s, *(event.at_s for event in record.events), record.ended_s]
        if any(after < before - _SAME_MOMENT_S for before, after in pairwise(moments)):
            failures[CLOCK] += 1
            continue
        sound.append(record)
        if not record.ok:
            failures[record.outcome] += 1
        elif not record.events:
            failures[NO_OUTPUT] += 1
        else:
            finished.append(record)
    return _Trial(
        cell,
        tuple(finished),
        failures,
        steady_window(sound or cell.load.records, cell.concurrency, rule),
        counted(cell.counters, cell.load.began_s),
    )


def _rates(trials: Sequence[_Trial]) -> _Rates:
    """Window figures: seconds and tokens are summed, the peak is the best of all trials."""
    seconds = sum(trial.window.length_s for trial in trials)
    steps, held, tokens, peak = [], 0.0, 0, 0.0
    step_tokens = chunk_tokens = chunks = 0
    for trial in trials:
        events = [event for record in trial.finished for event in record.events]
        inside = [(event.at_s, event.tokens) for event in events if trial.window.holds(event.at_s)]
        tokens += sum(count for _, count in inside)
        peak = max(peak, peak_tok_s(inside, trial.window))
        held += (running_mean(trial.data.load.records, trial.window) or 0.0) * trial.window.length_s
        for record in trial.finished:
            for gap, event in zip(record.step_gaps_s(), record.events[1:], strict=True):
                chunks += 1
                chunk_tokens += event.tokens
                if trial.window.holds(event.at_s):
                    steps.append(gap)
                    step_tokens += event.tokens
    if seconds <= 0:
        return _Rates()
    return _Rates(
        seconds,
        held / seconds,
        tokens / seconds,
        peak,
        steps,
        step_tokens,
        chunk_tokens / chunks if chunks else None,
    )


def says_too_much(drafts: Acceptance) -> bool:
    """Whether AL counts too few of the steps to say what an arm earned."""
    return drafts.draft_coverage is not None and drafts.draft_coverage < _COVERED


def peak_tok_s(events: Sequence[tuple[float, int]], window: Window) -> float:
    """The best whole second by *tokens*: (moment in seconds, tokens) counted second by second from the window's begin.

    The last bin takes the rest of the window (1 to 2 s) and counts by its length, so the bins tile the window and the
    best of them cannot be below the mean. Source: sglang#33193 (a peak of chunks, printed below the mean of tokens).
    """
    if window.length_s <= 0:
        return 0.0
    bins = [0] * max(1, int(window.length_s))
    for at_s, tokens in events:
        bins[min(int(at_s - window.began_s), len(bins) - 1)] += tokens
    last = bins[-1] / (window.length_s - (len(bins) - 1))
    return max([*bins[:-1], last])


def _step_ms(rates: _Rates, drafts: Acceptance, coarse: bool) -> float | None:
    """Mean time of a step. Coarse chunks hide its edges, not its mean: time per token × the engine's tokens a step."""
    if not rates.steps_s:
        return None
    gap = fmean(rates.steps_s) * 1e3
    if not coarse:
        return gap
    if not rates.step_tokens or drafts.tokens_per_step is None:
        return None
    return gap * len(rates.steps_s) / rates.step_tokens * drafts.tokens_per_step


def _coarse(draft_length: int, per_chunk: float | None, drafts: Acceptance) -> str:
    """A warning where one chunk holds more than one engine step; its gaps say nothing of steps then."""
    most = drafts.tokens_per_step or draft_length + 1.0
    if per_chunk is None or per_chunk <= _COARSE * most:
        return ""
    return (
        f"chunk gaps are coarse: a chunk holds {per_chunk:.1f} tokens where a step makes {most:.1f}; "
        "read token ITL and TPOT, not the step gap"
    )


def _warnings(
    trials: Sequence[_Trial], rates: _Rates, drafts: Acceptance, coarse: str, queue: Quantiles
) -> list[str]:
    found = [warning for trial in trials for warning in trial.data.load.warnings]
    if coarse:
        found.append(coarse)
    if drafts.tokens_per_step and says_too_much(drafts):
        found.append(
            f"AL {drafts.length:.2f} counts only steps with a draft ({drafts.draft_coverage:.0%} of all); "
            f"tokens per step {drafts.tokens_per_step:.2f} is what the arm earned"
        )
    asked = trials[0].data.concurrency
    if rates.running is not None and rates.running < 0.9 * asked and all(t.window.steady for t in trials):
        found.append(f"{rates.running:.1f} requests were under way on average, not {asked}")
    waiting = [r.counters.waiting for t in trials for r in t.data.counters.readings if r.counters.waiting]
    readings = sum(len(trial.data.counters.readings) for trial in trials)
    if readings and sum(waiting) / readings > 0.5:
        found.append(f"{sum(waiting) / readings:.1f} requests waited inside the engine on average")
    untold = sum(record.output_tokens is None for trial in trials for record in trial.finished)
    if untold:
        found.append(f"{untold} requests came without a token count: no TPOT for them")
    if queue.n:
        found.append(QUEUE_WAIT_NOTE)
    return list(dict.fromkeys([*found, *drafts.flags]))


def _tokens(record: RequestRecord) -> int:
    """N as the server told it; the sum of its events where it told none."""
    return (
        sum(event.tokens for event in record.events) if record.output_tokens is None else record.output_tokens
    )


def _first_text_s(record: RequestRecord) -> float | None:
    return None if record.first_text_s is None else record.first_text_s - record.started_s


def _ms(seconds: Iterable[float | None]) -> list[float]:
    return [value * 1e3 for value in seconds if value is not None]


def _gpu(cells: Sequence[CellData]) -> Gpu | None:
    uses = [cell.load.gpu for cell in cells if cell.load.gpu]
    if not uses:
        return None
    power = [use.power_mean_w for use in uses if use.power_mean_w is not None]
    return Gpu(
        name=uses[0].name,
        utilisation_mean=sum(use.utilisation_mean for use in uses) / len(uses),
        memory_peak_bytes=max(use.memory_peak_bytes for use in uses),
        power_mean_w=sum(power) / len(power) if power else None,
    )


def _usd(price: CellPrice | None, tok_s: float | None) -> float | None:
    if price is None or tok_s is None:
        return None
    return usd_per_million_output_tokens(price.usd_per_hour, price.accelerators, tok_s)

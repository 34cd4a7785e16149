"""Figures of a bench run made by a small model of an engine: T(b, K) rises with b and K, acceptance falls with position.

Every figure follows from the same few assumptions, so the numbers of a document agree with each other as a real run's do.
Pure and seeded: the same call gives the same document.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from outrider.bench.document import (
    BASELINE,
    Acceptance,
    Cell,
    Cost,
    Counts,
    Crossover,
    Figures,
    Gpu,
    Interval,
    LatencyDifference,
    NaturalEnd,
    Quantiles,
    Speedup,
    StepCost,
    TextDifference,
    Trial,
)

GRID = (1, 2, 4, 8, 16, 32, 64)
HARD = {"humaneval": 1.0, "gsm8k": 0.93, "mt-bench": 0.8}
USD_PER_HOUR = 4.0


@dataclass(frozen=True, slots=True)
class Model:
    """An arm of the modelled engine: first-position acceptance, its decay, the cost of one proposed token, coverage of steps."""

    method: str
    k: int
    first: float = 0.0
    decay: float = 0.0
    fixed: float = 0.0
    per_token: float = 0.0
    coverage: float = 1.0


ARMS = {
    BASELINE: Model("none", 0),
    "eagle3-k3": Model("eagle3", 3, 0.80, 0.80, 0.10, 0.0045),
    "eagle3-k7": Model("eagle3", 7, 0.80, 0.80, 0.22, 0.0045),
    "p-eagle-k5": Model("p-eagle", 5, 0.82, 0.86, 0.06, 0.0060),
    "ngram-k3": Model("ngram", 3, 0.42, 0.75, 0.01, 0.0045, 0.35),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to model: `step_ms` is T(1, 0), `slope_ms` what each further running request adds."""

    arms: Sequence[str] = tuple(ARMS)
    sets: Sequence[str] = tuple(HARD)
    grid: Sequence[int] = GRID
    trials: int = 3
    requests_each: int = 6
    tokens: int = 256
    step_ms: float = 20.5
    slope_ms: float = 0.12
    gpu: str = "NVIDIA H200"
    gpu_missing_for: Sequence[str] = ("p-eagle-k5",)
    priced: bool = True
    seed: int = 7


def quantiles(values: Sequence[float]) -> Quantiles:
    """Nearest-rank percentiles under the document's rules."""
    ranked, n = sorted(values), len(values)
    if not n:
        return Quantiles(n=0)

    def at(p: float) -> float:
        return round(ranked[max(math.ceil(p * n / 100), 1) - 1], 4)

    return Quantiles(
        n=n,
        mean=round(sum(ranked) / n, 4),
        p50=at(50),
        p95=at(95) if n >= 72 else None,
        p99=at(99) if n >= 368 else None,
        worst=round(ranked[-1], 4),
        curve=[at(p) for p in range(1, 100)] if n >= 20 else [],
    )


def positions(arm: Model, prompt_set: str) -> list[float]:
    """Unconditional acceptance of each position."""
    first = arm.first * HARD[prompt_set]
    return [round(first ** (i + 1) * arm.decay ** (i * (i - 1) / 4), 4) for i in range(arm.k)]


def step(plan: Plan, arm: Model, running: float) -> float:
    """T(b, K) in milliseconds."""
    base = plan.step_ms + plan.slope_ms * running
    return base * (1 + arm.fixed + arm.coverage * arm.per_token * arm.k * running)


def tokens_per_step(arm: Model, prompt_set: str) -> float:
    """Output tokens of a step."""
    return 1 + arm.coverage * sum(positions(arm, prompt_set))


def acceptance(arm: Model, prompt_set: str, output_tokens: float) -> Acceptance:
    """What the engine's counters say for so many tokens."""
    steps = output_tokens / tokens_per_step(arm, prompt_set)
    if not arm.k:
        return Acceptance(tokens_per_step=1.0, draft_coverage=0.0, counts=Counts(steps=steps))
    rates = positions(arm, prompt_set)
    drafts = round(steps * arm.coverage)
    per_position = [round(drafts * rate) for rate in rates]
    accepted = sum(per_position)
    return Acceptance(
        rate=accepted / (drafts * arm.k),
        length=1 + accepted / drafts,
        positions=[count / drafts for count in per_position],
        position_notes=[""] * arm.k,
        effective_k=float(arm.k),
        tokens_per_step=1 + accepted / steps,
        draft_coverage=drafts / steps,
        counts=Counts(
            drafts=drafts,
            proposed=drafts * arm.k,
            accepted=accepted,
            per_position=per_position,
            steps=round(steps),
            generation_tokens=output_tokens,
            first_tokens=output_tokens / 256,
        ),
    )


def figures(plan: Plan, name: str, prompt_set: str, running: int, trials: int) -> Figures:
    """A cell's figures over so many trials."""
    arm = ARMS[name]
    chance = random.Random(f"{plan.seed} {name} {prompt_set} {running} {trials}")  # noqa: S311  (a model, no secret)
    n = max(plan.requests_each * running, 16) * trials
    gap, per_step = step(plan, arm, running), tokens_per_step(arm, prompt_set)
    tpot = [gap / per_step * chance.lognormvariate(0, 0.06 if arm.k else 0.02) for _ in range(n)]
    ttft = [(25 + 1.3 * running) * chance.lognormvariate(0, 0.25) for _ in range(n)]
    gaps = [
        gap * chance.lognormvariate(0, 0.05) + (60 if chance.random() < 0.012 else 0) for _ in range(n * 12)
    ]
    itl = [one / max(1, min(arm.k + 1, round(chance.gauss(per_step, 0.8)))) for one in gaps]
    rate = running * 1000 * per_step / gap * 0.97
    failed = {"cut stream": 1} if (name, running) == ("ngram-k3", 32) else {}
    return Figures(
        requests=n + len(failed),
        ok=n,
        failures=failed,
        output_tokens=n * plan.tokens,
        window_s=n * plan.tokens / rate,
        steady=running > 1,
        steady_reason="" if running > 1 else "window of 22 s, 30 s are needed",
        running_mean=round(running * 0.965, 3),
        output_tok_s=rate,
        peak_tok_s=rate * 1.08,
        user_tok_s=1000 / sorted(tpot)[n // 2],
        ttft_ms=quantiles(ttft),
        tpot_ms=quantiles(tpot),
        token_itl_ms=quantiles(itl),
        step_gap_ms=quantiles(gaps),
        e2e_ms=quantiles([a + b * (plan.tokens - 1) for a, b in zip(ttft, tpot, strict=True)]),
        queue_wait_ms=quantiles([abs(chance.gauss(0, 0.4 + running / 40)) for _ in range(n)]),
        first_text_ms=quantiles(ttft),
        step_ms=gap,
        tokens_per_chunk=per_step,
        acceptance=acceptance(arm, prompt_set, n * plan.tokens),
        gpu=None
        if not plan.gpu or name in plan.gpu_missing_for
        else Gpu(
            name=plan.gpu,
            utilisation_mean=min(0.99, 0.7 + running / 200),
            memory_peak_bytes=int(126e9 + 2e9 * bool(arm.k)),
            power_mean_w=330 + 4.0 * running,
        ),
        kv_cache_peak_ratio=min(0.9, 0.01 * running),
        usd_per_million_output_tokens=USD_PER_HOUR / (rate * 3600) * 1e6 if plan.priced else None,
    )


def cell(plan: Plan, arm: str, prompt_set: str, running: int) -> Cell:
    """A cell that stands."""
    trials = [
        Trial(
            trial=i + 1,
            order=i * len(plan.arms) + 1,
            started="2026-11-29T20:00:00Z",
            figures=figures(plan, arm, prompt_set, running, 1),
        )
        for i in range(plan.trials)
    ]
    pooled = figures(plan, arm, prompt_set, running, plan.trials)
    return Cell(arm=arm, prompt_set=prompt_set, concurrency=running, state="ok", trials=trials, pooled=pooled)


def interval(value: float, half: float, trials: int) -> Interval:
    """A value with its interval, where there are trials enough for one."""
    if trials < 2:
        return Interval(value=value, n=trials)
    return Interval(value=value, low=value * (1 - half), high=value * (1 + half), n=trials)


def pairs(cells: Sequence[Cell]) -> list[tuple[Figures, Figures, Cell]]:
    """(baseline, arm, arm's cell) where both stand."""
    base = {
        (one.prompt_set, one.concurrency): one.pooled
        for one in cells
        if one.arm == BASELINE and one.state == "ok"
    }
    found = []
    for one in cells:
        under = base.get((one.prompt_set, one.concurrency))
        if one.arm != BASELINE and one.state == "ok" and one.pooled and under:
            found.append((under, one.pooled, one))
    return found


def speedups(plan: Plan, cells: Sequence[Cell]) -> list[Speedup]:
    """Output tok/s over the baseline's."""
    return [
        Speedup(
            arm=one.arm,
            prompt_set=one.prompt_set,
            concurrency=one.concurrency,
            running=arm.running_mean or 0.0,
            ratio=interval((arm.output_tok_s or 0.0) / (base.output_tok_s or 1.0), 0.03, plan.trials),
            steady=arm.steady and base.steady,
        )
        for base, arm, one in pairs(cells)
    ]


def differences(plan: Plan, cells: Sequence[Cell]) -> list[LatencyDifference]:
    """p99 of the step gap and of E2E, where both have one."""
    found = []
    for base, arm, one in pairs(cells):
        for field in ("step_gap_ms", "e2e_ms"):
            a, b = getattr(arm, field).p99, getattr(base, field).p99
            if a is None or b is None or one.concurrency not in (1, 8, 32):
                continue
            found.append(
                LatencyDifference(
                    arm=one.arm,
                    prompt_set=one.prompt_set,
                    concurrency=one.concurrency,
                    figure=f"{field}.p99",
                    baseline_ms=b,
                    arm_ms=a,
                    difference_ms=Interval(
                        value=a - b, low=a - b - 0.03 * b, high=a - b + 0.03 * b, n=plan.trials
                    ),
                )
            )
    return found


def step_costs(plan: Plan) -> list[StepCost]:
    """T(b, K) of each arm with a draft on the grid."""
    found = []
    for name in plan.arms:
        arm = ARMS[name]
        for running in plan.grid if arm.k else ():
            b = running * 0.965
            base, with_draft = step(plan, ARMS[BASELINE], b), step(plan, arm, b)
            length = sum(tokens_per_step(arm, one) for one in plan.sets) / len(plan.sets)
            found.append(
                StepCost(
                    arm=name,
                    method=arm.method,
                    draft_length=arm.k,
                    running=b,
                    concurrency=running,
                    step_ms=with_draft,
                    baseline_step_ms=base,
                    break_even_length=with_draft / base,
                    acceptance_length=length,
                    predicted_speedup=length * base / with_draft,
                )
            )
    return found


def crossovers(plan: Plan, found: Sequence[Speedup]) -> list[Crossover]:
    """Where each arm meets 1, by a straight line between two points of log2."""
    answers = []
    for name in plan.arms:
        for prompt_set in plan.sets:
            line = sorted(
                (one.running, one.ratio.value)
                for one in found
                if (one.arm, one.prompt_set) == (name, prompt_set)
            )
            if not line:
                continue
            where: tuple[str, Interval | None] = ("none" if line[-1][1] >= 1 else "below", None)
            for (x0, y0), (x1, y1) in pairwise(line):
                if y0 >= 1 > y1:
                    at = 2 ** (math.log2(x0) + (y0 - 1) / (y0 - y1) * math.log2(x1 / x0))
                    where = ("at", interval(at, 0.1, plan.trials))
            answers.append(
                Crossover(arm=name, prompt_set=prompt_set, kind=where[0], running=where[1], up_to=line[-1][0])  # type: ignore[arg-type]
            )
    return answers


def costs(cells: Sequence[Cell], sets: Sequence[str]) -> list[Cost]:
    """Own cost of each cell, and two list prices."""
    found = [
        Cost(
            name=one.arm,
            prompt_set=one.prompt_set,
            concurrency=one.concurrency,
            usd_per_million_output_tokens=one.pooled.usd_per_million_output_tokens,
            within_slo_ratio=max(0.6, 1 - one.concurrency / 400),
            source="4.00 USD per accelerator hour, the stack's price",
        )
        for one in cells
        if one.pooled and one.pooled.usd_per_million_output_tokens
    ]
    for prompt_set in sets:
        for name, price in (("Claude Sonnet tier", 15.9), ("GPT-5.4", 15.75)):
            found.append(
                Cost(
                    name=name,
                    prompt_set=prompt_set,
                    usd_per_million_output_tokens=price,
                    source="list price, third-party page, April 2026",
                    commercial=True,
                )
            )
    return found


def natural_end(plan: Plan) -> list[NaturalEnd]:
    """The acceptance table; one arm's texts differ from the baseline's on one set."""
    found = []
    for prompt_set in plan.sets:
        for name in plan.arms:
            differs = name.startswith("ngram") and prompt_set == plan.sets[-1]
            found.append(
                NaturalEnd(
                    arm=name,
                    prompt_set=prompt_set,
                    state="ok",
                    requests=80,
                    output_tokens=80 * 210,
                    acceptance=acceptance(ARMS[name], prompt_set, 80 * 210),
                    compared_texts=0 if name == BASELINE else 80,
                    different=[TextDifference(prompt_id=f"{prompt_set}/12", at_character=431, at_token=96)]
                    if differs
                    else [],
                )
            )
    return found

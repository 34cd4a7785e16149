"""Times and throughput in two runs: of each arm over its loads, of all arms together, and of each load by itself.

A load is a prompt set at a concurrency. One trial of one cell is one value, its logarithm is compared. A percentile takes part
where each trial bears it (p99: 368 values, else p95: 72, the rule of `outrider.bench.quantiles`); where it does not, the load is
named as not gated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.bench.comparable import Pair
from outrider.bench.document import Cell, Figures
from outrider.bench.gates import ALL, FEWER, LONGER, Change, Part, Scale, Spread, spread
from outrider.bench.quantiles import P95_N, P99_N
from outrider.bench.standing import trials_of

Logs = tuple[Mapping[int, float], Mapping[int, float]]  # reference, candidate: trial → log of its value
Load = tuple[str, int]
_LEAST_TRIALS = 2


@dataclass(frozen=True, slots=True)
class TimeFigure:
    """One figure of a trial, and the name under which it is switched; `rather`: taken where a trial does not bear this one."""

    name: str
    of: Callable[[Figures], float | None]
    switch: str
    unit: str = "ms"
    scale: Scale = LONGER
    rather: TimeFigure | None = None


TPOT = TimeFigure("TPOT", lambda one: one.tpot_ms.p50, "tpot")
OTHERS = (
    TimeFigure("output tok/s", lambda one: one.output_tok_s, "tok_s", "", FEWER),
    TimeFigure("TTFT p50", lambda one: one.ttft_ms.p50, "ttft"),
    TimeFigure(
        "TTFT p99",
        lambda one: one.ttft_ms.p99,
        "ttft_tail",
        rather=TimeFigure("TTFT p95", lambda one: one.ttft_ms.p95, "ttft_tail"),
    ),
    TimeFigure(
        "E2E p99",
        lambda one: one.e2e_ms.p99,
        "e2e_tail",
        rather=TimeFigure("E2E p95", lambda one: one.e2e_ms.p95, "e2e_tail"),
    ),
    TimeFigure(
        "step gap p99",
        lambda one: one.step_gap_ms.p99,
        "step_gap",
        rather=TimeFigure("step gap p95", lambda one: one.step_gap_ms.p95, "step_gap"),
    ),
)


@dataclass(slots=True)
class TimeChanges:
    """What is to be judged: arms as a whole (all arms together among them), and single loads; and what is not gated, in words."""

    whole: list[Change] = field(default_factory=list)
    loads: list[Change] = field(default_factory=list)
    not_gated: list[str] = field(default_factory=list)


def time_changes(pairs: Sequence[Pair], figure: TimeFigure, tolerance: float) -> TimeChanges:
    """One figure of all pairs, and of the pairs that do not bear it the one that is taken instead."""
    found = TimeChanges()
    rest: Sequence[Pair] = pairs
    one: TimeFigure | None = figure
    while one is not None and rest:
        borne = {(pair.arm, pair.load): logs for pair in rest if (logs := _logs(pair, one))}
        found.whole += _whole(borne, one, tolerance)
        found.loads += _loads(borne, one, tolerance)
        rest = [pair for pair in rest if (pair.arm, pair.load) not in borne]
        one = one.rather
    if rest:
        found.not_gated.append(_not_gated(figure, rest, len(pairs)))
    return found


def _logs(pair: Pair, figure: TimeFigure) -> Logs | None:
    """None where fewer than two trials of either run bear the figure."""
    sides = _by_trial(pair.reference, figure), _by_trial(pair.candidate, figure)
    return sides if min(map(len, sides)) >= _LEAST_TRIALS else None


def _by_trial(cell: Cell, figure: TimeFigure) -> dict[int, float]:
    return {
        trial: math.log(value)
        for trial, figures in trials_of(cell).items()
        if (value := figure.of(figures) or 0.0) > 0
    }


def _whole(borne: Mapping[tuple[str, Load], Logs], figure: TimeFigure, tolerance: float) -> list[Change]:
    """One an arm, the mean over its loads; and one over all arms, which sees what slows them alike.

    The spread is pooled over arms; for an arm that shows more, it is the mean of its own and the pooled one.
    """
    arms: dict[str, tuple[list[float], list[float]]] = {}
    for arm in dict.fromkeys(arm for arm, _ in borne):
        loads = [logs for (name, _), logs in borne.items() if name == arm]
        sides = _means([logs[0] for logs in loads]), _means([logs[1] for logs in loads])
        if min(map(len, sides)) >= _LEAST_TRIALS:
            arms[arm] = sides
    noise = spread([side for sides in arms.values() for side in sides])
    if noise is None:
        return []
    found = [
        _change(figure, Part(figure.name, arm), sides, _leaning(noise, spread(sides)), tolerance)
        for arm, sides in arms.items()
    ]
    if len(arms) > 1:
        both = tuple(_together([sides[side] for sides in arms.values()]) for side in (0, 1))
        everywhere = spread(both)
        if everywhere is not None and min(map(len, both)) >= _LEAST_TRIALS:
            # Arms are started one by one, so their trials are independent, unless the spread of their mean says otherwise.
            mean = Spread(max(noise.variance / len(arms), everywhere.variance), noise.freedom)
            found.append(_change(figure, Part(figure.name, ALL), (both[0], both[1]), mean, tolerance))
    return found


def _leaning(pooled: Spread, own: Spread | None) -> Spread:
    """Half way to an arm's own spread where that is the larger one: few trials do not tell it by themselves."""
    own_variance = own.variance if own else 0.0
    return Spread(max(pooled.variance, (pooled.variance + own_variance) / 2), pooled.freedom)


def _loads(borne: Mapping[tuple[str, Load], Logs], figure: TimeFigure, tolerance: float) -> list[Change]:
    """One a load of each arm that has several.

    Its variance is the larger of what all loads show and what this load shows over all arms: some loads are noisier than others,
    and few trials do not tell by themselves. The degrees of freedom are those of server starts, whose noise the loads share.
    """
    sides = {key: (list(logs[0].values()), list(logs[1].values())) for key, logs in borne.items()}
    overall = spread([side for both in sides.values() for side in both])
    if overall is None:
        return []
    found = []
    for (arm, load), both in sides.items():
        if sum(name == arm for name, _ in sides) < 2:
            continue
        here = spread([side for (_, other), values in sides.items() if other == load for side in values])
        variance = max(overall.variance, here.variance if here else 0.0)
        noise = Spread(variance, min(overall.freedom, _starts(borne)))
        found.append(_change(figure, Part(figure.name, arm, *load), both, noise, tolerance))
    return found


def _starts(borne: Mapping[tuple[str, Load], Logs]) -> int:
    """Degrees of freedom that the server's starts leave: of each arm and run the trials less one."""
    trials: dict[tuple[str, int], set[int]] = {}
    for (arm, _), logs in borne.items():
        for side in (0, 1):
            trials.setdefault((arm, side), set()).update(logs[side])
    return sum(len(one) - 1 for one in trials.values())


def _change(
    figure: TimeFigure,
    part: Part,
    logs: tuple[Sequence[float], Sequence[float]],
    noise: Spread,
    tolerance: float,
) -> Change:
    """Worse is longer, of a rate it is less."""
    before, after = (math.fsum(values) / len(values) for values in logs)
    error = math.sqrt(noise.variance * sum(1 / len(values) for values in logs))
    worse = after - before if figure.scale is LONGER else before - after
    part = Part(part.figure, part.arm, part.prompt_set, part.concurrency, figure.unit)
    return Change(
        part, math.exp(before), math.exp(after), worse, error, noise.freedom, tolerance, figure.scale
    )


def _means(loads: Sequence[Mapping[int, float]]) -> list[float]:
    """Mean over loads, for the trials that every load has: one value a trial, in trial order."""
    shared = sorted(set.intersection(*(set(load) for load in loads)))
    return [math.fsum(load[trial] for load in loads) / len(loads) for trial in shared]


def _together(arms: Sequence[Sequence[float]]) -> list[float]:
    """Mean over arms, trial by trial, as far as all have them."""
    return [math.fsum(values) / len(values) for values in zip(*arms, strict=False)]


def _not_gated(figure: TimeFigure, rest: Sequence[Pair], total: int) -> str:
    """Which figure, where, and why not."""
    first = rest[0]
    where = f"{first.arm} on {first.load[0]} at {first.load[1]} at once"
    where += f" and {len(rest) - 1} more of {total} cells" if len(rest) > 1 else f", 1 of {total} cells"
    why = "fewer than two trials with a value"
    if figure.rather:
        why = f"fewer than two trials have the {P95_N} values of a p95, let alone the {P99_N} of a p99"
    return f"{figure.name}: {where} ({why})"

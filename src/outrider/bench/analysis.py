"""What follows from the cells of a run: speed-ups, differences of latency, step costs, crossovers, costs, answers.

`analyse` fills the derived parts of a document and changes nothing else; `follow` those of them that follow from cells alone.
A cell that is invalid, failed or missing takes part in nothing; where the baseline's cell does not stand, its arms get no
speed-up there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outrider.bench.answers import answers
from outrider.bench.costs import Served, commercial_costs, own_costs, served
from outrider.bench.crossover import Pair, Point, crossover
from outrider.bench.document import (
    BASELINE,
    Arm,
    Crossover,
    Figures,
    LatencyDifference,
    RunDocument,
    Speedup,
)
from outrider.bench.quantiles import P95_N, P99_N
from outrider.bench.standing import standing, tok_s_by_trial
from outrider.bench.statistics import Sample, nearest_rank, percentile_difference, ratio_interval, sample
from outrider.bench.steps import step_costs
from outrider.cost.prices import ListPrice, read_prices
from outrider.measure.records import RequestRecord

RecordsOf = Callable[[str, str, int, int], Sequence[RequestRecord]]  # arm, prompt set, concurrency, trial
COMPARED = ("ttft_ms", "step_gap_ms", "tpot_ms", "e2e_ms")


def analyse(
    document: RunDocument,
    records_of: RecordsOf | None = None,
    prices: Sequence[ListPrice] | None = None,
) -> RunDocument:
    """The document with speedups, latency_differences, steps, crossovers, costs and answers filled in.

    `records_of(arm, prompt_set, concurrency, trial)` gives the records of one trial (empty where there are none); without it
    there are no latency differences and no commercial costs. `prices`: list prices, Outrider's own by default.
    """
    latency, served_by = _from_records(document, records_of) if records_of else ([], {})
    paid = document.price or {}
    source = f"{paid.get('accelerators', 1)} × {paid.get('usd_per_hour')} USD/hour"
    if paid.get("source"):
        source += f", {paid['source']}"
    costs = [
        *own_costs(document.cells, served_by, source),
        *commercial_costs(served_by, read_prices() if prices is None else prices),
    ]
    return follow(document.model_copy(update={"latency_differences": latency, "costs": costs}))


def follow(document: RunDocument) -> RunDocument:
    """The document with speed-ups, steps, crossovers and answers made of its cells; latency differences and costs stay."""
    filled = document.model_copy(
        update={
            "speedups": speedups_of(document),
            "steps": step_costs(document.cells, document.arms),
            "crossovers": crossovers_of(document),
        }
    )
    return filled.model_copy(update={"answers": answers(filled)})


@dataclass(frozen=True, slots=True)
class _Both:
    """Two cells of one prompt set and concurrency, and their ratios by trial."""

    mine: Figures
    theirs: Figures
    concurrency: int
    arm: dict[int, float]
    other: dict[int, float]

    @property
    def point(self) -> Point:
        """On the crossover's curve: x is what ran on average in both."""
        running = [figures.running_mean or self.concurrency for figures in (self.mine, self.theirs)]
        shared = sorted(self.arm.keys() & self.other.keys())
        return Point(sum(running) / 2, {trial: self.arm[trial] / self.other[trial] for trial in shared})


def _pairs(document: RunDocument, arm: str, other: str, prompt_set: str) -> Iterator[_Both]:
    for concurrency in sorted({cell.concurrency for cell in document.cells}):
        mine = standing(document, arm, prompt_set, concurrency)
        theirs = standing(document, other, prompt_set, concurrency)
        if mine is None or theirs is None or mine.pooled is None or theirs.pooled is None:
            continue
        both = _Both(mine.pooled, theirs.pooled, concurrency, tok_s_by_trial(mine), tok_s_by_trial(theirs))
        if both.arm.keys() & both.other.keys():
            yield both


def speedups_of(document: RunDocument) -> list[Speedup]:
    """Every arm over the baseline, where both stand."""
    return [
        Speedup(
            arm=arm.name,
            prompt_set=prompts.name,
            concurrency=both.concurrency,
            running=both.point.running,
            ratio=ratio_interval(both.arm, both.other),
            steady=both.mine.steady and both.theirs.steady,
        )
        for arm in document.arms
        if arm.name != BASELINE
        for prompts in document.prompt_sets
        for both in _pairs(document, arm.name, BASELINE, prompts.name)
    ]


def rivals(arms: Sequence[Arm]) -> list[tuple[str, str]]:
    """P-EAGLE arms against EAGLE-3 arms, each with each: (arm, against)."""
    return [
        (mine.name, theirs.name)
        for mine in arms
        if mine.method == "p-eagle"
        for theirs in arms
        if theirs.method == "eagle3"
    ]


def crossovers_of(document: RunDocument) -> list[Crossover]:
    """Every arm against the baseline, P-EAGLE against EAGLE-3, per prompt set."""
    pairs = [(arm.name, BASELINE, True) for arm in document.arms if arm.name != BASELINE]
    pairs += [(mine, theirs, False) for mine, theirs in rivals(document.arms)]
    return [
        crossover(
            Pair(arm, prompts.name, against, falling),
            [both.point for both in _pairs(document, arm, against, prompts.name)],
        )
        for arm, against, falling in pairs
        for prompts in document.prompt_sets
    ]


def _from_records(
    document: RunDocument, records_of: RecordsOf
) -> tuple[list[LatencyDifference], dict[tuple[str, str, int], Served]]:
    """One pass over the raw records, a prompt set and concurrency at a time: two arms in memory at most."""
    differences: list[LatencyDifference] = []
    served_by: dict[tuple[str, str, int], Served] = {}
    for prompts in document.prompt_sets:
        for concurrency in sorted({cell.concurrency for cell in document.cells}):
            base: list[tuple[int, RequestRecord]] = []
            for arm in sorted(document.arms, key=lambda arm: arm.name != BASELINE):
                cell = standing(document, arm.name, prompts.name, concurrency)
                if cell is None:
                    continue
                records = [
                    (trial, record)
                    for trial in tok_s_by_trial(cell)
                    for record in records_of(arm.name, prompts.name, concurrency, trial)
                ]
                key = (arm.name, prompts.name, concurrency)
                served_by[key] = served([record for _, record in records], document.slo)
                if arm.name == BASELINE:
                    base = records
                elif base and records:
                    differences += _differences(key, records, base)
    return differences, served_by


def _differences(
    key: tuple[str, str, int],
    mine: Sequence[tuple[int, RequestRecord]],
    base: Sequence[tuple[int, RequestRecord]],
) -> list[LatencyDifference]:
    """Percentile differences of the prompts both arms answered in the trials both have, where both have the percentile's n."""
    shared = {trial for trial, _ in mine} & {trial for trial, _ in base}
    mine, base = ([one for one in side if one[0] in shared] for side in (mine, base))
    both = {record.prompt_id for _, record in mine if record.ok} & {
        record.prompt_id for _, record in base if record.ok
    }
    ids = {prompt: place for place, prompt in enumerate(sorted(both))}
    found = []
    for figure in COMPARED:
        arm, baseline = (_sample(records, figure, ids) for records in (mine, base))
        for percent in _percents(min(len(arm.values), len(baseline.values)), figure):
            values = [nearest_rank(side.values, percent) for side in (arm, baseline)]
            found.append(
                LatencyDifference(
                    arm=key[0],
                    prompt_set=key[1],
                    concurrency=key[2],
                    figure=f"{figure}.p{percent}",
                    baseline_ms=values[1],
                    arm_ms=values[0],
                    difference_ms=percentile_difference(arm, baseline, percent),
                )
            )
    return found


def _percents(n: int, figure: str) -> list[int]:
    """The highest percentile that n values bear, and the median (of step gaps it is the step time of `steps` already)."""
    tail = [99] if n >= P99_N else [95] if n >= P95_N else []
    return [*([50] if n and figure != "step_gap_ms" else []), *tail]


def _sample(records: Sequence[tuple[int, RequestRecord]], figure: str, ids: dict[str, int]) -> Sample:
    return sample(
        [(record.prompt_id, trial, _values_ms(record, figure)) for trial, record in records if record.ok], ids
    )


def _values_ms(record: RequestRecord, figure: str) -> list[float]:
    timing = record.timing
    if figure == "step_gap_ms":
        return [gap * 1e3 for gap in record.step_gaps_s()]
    value = {"ttft_ms": timing.ttft_s, "tpot_ms": timing.tpot_s, "e2e_ms": timing.e2e_s}[figure]
    return [] if value is None else [value * 1e3]

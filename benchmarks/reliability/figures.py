"""From the cells to the figures of every phase and arm, and the ratios between arms with their intervals. Pure, repeatable.

A ratio is of two arms that were sent the same requests at the same moments of a phase. Requests that follow each other share a
queue and a batch, so they are no samples of their own: the bootstrap draws *slices* of ten seconds (by when a request was due),
the same ones for both arms. Source: block bootstrap, Davison & Hinkley, Bootstrap Methods and their Application, ch. 8.2.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from benchmarks.reliability.blocks import Cell
from benchmarks.reliability.plan import ARMS, GOVERNED, PHASES
from outrider.bench.document import Interval, PromptSetInfo, Quantiles
from outrider.bench.quantiles import needed, of_values
from outrider.core.latency import percentile
from outrider.measure.records import RequestRecord

SLICE_S = 10.0
RESAMPLES = 2000
Values = Mapping[tuple[int, int, int], Sequence[float]]
"""Of one arm: slice (round, phase, ten seconds) → its values."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Figures(_Strict):
    """One arm in one phase, all rounds; latencies in ms of answered open-loop requests.

    tok_s: output tokens of open-loop answers over the time from the part's begin to its last answer; closed_tok_s: tokens that
    came within the closed-loop part over its length. acceptance_length: with the bonus token, over requests that were drafted;
    drafted: their share. failures: of both parts, by kind, of `sent` requests.
    """

    sent: int
    failures: dict[str, int]
    ttft_ms: Quantiles
    e2e_ms: Quantiles
    tpot_ms: Quantiles
    tok_s: float | None
    closed_tok_s: float | None
    acceptance_length: float | None
    drafted: float | None


class Ratio(_Strict):
    """The governed arm over another, one figure: ``e2e_ms.mean``, ``e2e_ms.p99``, ``ttft_ms.mean``, … , ``closed_tok_s``."""

    over: str
    figure: str
    ratio: Interval


class SwitchInfo(_Strict):
    """A change of the draft in force; `after_s` from the cell's begin."""

    round: int
    after_s: float
    before: str
    after: str
    reason: str
    why: str


class PhaseFigures(_Strict):
    """One phase. `begins_with`: the draft in force at its begin, by round (governed arm)."""

    name: str
    arms: dict[str, Figures]
    ratios: list[Ratio]
    switches: list[SwitchInfo]
    begins_with: list[str]


class CellInfo(_Strict):
    """How one cell went. Seconds; `tok_s` of every `bin_s` seconds from its begin, for the picture."""

    round: int
    phase: str
    arm: str
    began_s: float
    closed_after_s: float
    took_s: float
    load: float
    tok_s: list[float]


class ReliabilityRun(_Strict):
    """`run.json`. `rate_s`: base load, requests a second; times in seconds, `minutes` of traffic an arm. `plain_engine`: the
    governed arm has a second engine without a draft. `streams`: of the closed loop at the base load."""

    schema_: Literal["outrider/reliability/v1"] = Field("outrider/reliability/v1", alias="schema")
    provenance: dict[str, JsonValue]
    engine: str
    plain_engine: bool = False
    head: dict[str, JsonValue]
    minutes: float
    rounds: int
    rate_s: float
    streams: int
    output_tokens: int
    stale_noise: float
    seed: int
    prompt_sets: list[PromptSetInfo]
    phases: list[PhaseFigures]
    overall: PhaseFigures
    bin_s: float
    cells: list[CellInfo]


BIN_S = 5.0


def phase_figures(name: str, cells: Sequence[Cell]) -> PhaseFigures:
    """All arms of these cells: one phase, or all of them together."""
    by_arm = {arm: [cell for cell in cells if cell.arm == arm] for arm in ARMS}
    governed = by_arm[GOVERNED]
    return PhaseFigures(
        name=name,
        arms={arm: figures(mine) for arm, mine in by_arm.items()},
        ratios=[one for arm in ARMS if arm != GOVERNED for one in ratios(governed, by_arm[arm], arm)],
        switches=[
            SwitchInfo(
                round=cell.round,
                after_s=round(one.after_s, 1),
                before=one.before,
                after=one.after,
                reason=one.reason,
                why=one.why,
            )
            for cell in governed
            for one in cell.switches
        ],
        begins_with=[cell.draft for cell in governed],
    )


def figures(cells: Sequence[Cell]) -> Figures:
    """One arm over these cells."""
    sent = [one for cell in cells for one in cell.records]
    answered = [one for cell in cells for one in cell.open_records if one.ok]
    open_s = sum(cell.closed_s - cell.began_s for cell in cells)
    closed_s = sum(cell.closed_until_s - cell.closed_s for cell in cells)
    drafted = [one for one in sent if one.drafts]
    drafts, accepted = sum(one.drafts or 0 for one in drafted), sum(one.accepted or 0 for one in drafted)
    return Figures(
        sent=len(sent),
        failures=dict(Counter(one.outcome for one in sent if not one.ok)),
        ttft_ms=_quantiles(one.timing.ttft_s for one in answered),
        e2e_ms=_quantiles(one.timing.e2e_s for one in answered),
        tpot_ms=_quantiles(one.timing.tpot_s for one in answered),
        tok_s=sum(one.output_tokens or 0 for one in answered) / open_s if open_s else None,
        closed_tok_s=sum(map(_closed_tokens, cells)) / closed_s if closed_s else None,
        acceptance_length=1 + accepted / drafts if drafts else None,
        drafted=len(drafted) / len(sent) if sent else None,
    )


def _quantiles(seconds: Iterable[float | None]) -> Quantiles:
    """In ms, without the curve: nothing draws it."""
    found = of_values([one * 1e3 for one in seconds if one is not None])
    return found.model_copy(update={"curve": []})


def _closed_tokens(cell: Cell) -> int:
    return sum(
        event.tokens
        for one in cell.closed_records
        for event in one.events
        if event.at_s <= cell.closed_until_s
    )


def ratios(governed: Sequence[Cell], other: Sequence[Cell], name: str) -> list[Ratio]:
    """The governed arm over another: times of pairs of requests that both arms answered, and closed-loop throughput."""
    found = []
    for figure, of in (("e2e_ms", lambda one: one.timing.e2e_s), ("ttft_ms", lambda one: one.timing.ttft_s)):
        mine, theirs = paired(governed, other, of)
        n = sum(map(len, mine.values()))
        statistics: dict[str, Callable[[Sequence[float]], float]] = {"mean": _mean}
        for percent in (95, 99):
            if n >= needed(percent):
                statistics[f"p{percent}"] = _percentile(percent)
        for word, statistic in statistics.items():
            ratio = bootstrap(mine, theirs, statistic, n)
            if ratio is not None:
                found.append(Ratio(over=name, figure=f"{figure}.{word}", ratio=ratio))
    mine, theirs = closed_slices(governed), closed_slices(other)
    ratio = bootstrap(mine, theirs, _mean, len(mine))
    return [*found, Ratio(over=name, figure="closed_tok_s", ratio=ratio)] if ratio else found


def paired(
    one: Sequence[Cell], other: Sequence[Cell], of: Callable[[RequestRecord], float | None]
) -> tuple[Values, Values]:
    """A figure of the open-loop requests that both arms answered, by slice; both sides have the same slices and lengths."""
    ours, theirs = _by_request(one, of), _by_request(other, of)
    mine: defaultdict[tuple[int, int, int], list[float]] = defaultdict(list)
    yours: defaultdict[tuple[int, int, int], list[float]] = defaultdict(list)
    for key in ours.keys() & theirs.keys():
        due_s, value = ours[key]
        place = (key[0], key[1], int(due_s // SLICE_S))
        mine[place].append(value)
        yours[place].append(theirs[key][1])
    return mine, yours


def _by_request(
    cells: Sequence[Cell], of: Callable[[RequestRecord], float | None]
) -> dict[tuple[int, int, str], tuple[float, float]]:
    """(round, phase, request) → when it was due in its cell, its figure."""
    return {
        (cell.round, cell.phase, one.id): (one.started_s - cell.began_s, value)
        for cell in cells
        for one in cell.open_records
        if one.ok and (value := of(one)) is not None
    }


def closed_slices(cells: Sequence[Cell]) -> Values:
    """Tokens a second of each whole slice of the closed-loop parts, a value a slice; of a part shorter than one, its whole."""
    found = {}
    for cell in cells:
        length_s = cell.closed_until_s - cell.closed_s
        count = max(int(length_s // SLICE_S), 1)
        width_s = length_s / count
        tokens = [0] * count
        for event in (event for one in cell.closed_records for event in one.events):
            place = int((event.at_s - cell.closed_s) // width_s)
            if 0 <= place < count:
                tokens[place] += event.tokens
        for place, made in enumerate(tokens):
            found[cell.round, cell.phase, place] = [made / width_s]
    return found


def bootstrap(
    mine: Values, theirs: Values, statistic: Callable[[Sequence[float]], float], n: int, seed: int = 1
) -> Interval | None:
    """mine / theirs of a statistic, with a 95 % interval over slices; None without values, no bounds for a single slice."""
    keys = sorted(mine.keys() & theirs.keys())
    if not keys or not statistic(_drawn(theirs, keys)):
        return None
    value = statistic(_drawn(mine, keys)) / statistic(_drawn(theirs, keys))
    if len(keys) < 2:
        return Interval(value=value, n=n)
    draw, found = random.Random(seed), []  # noqa: S311  (resampling, not secrets)
    for _ in range(RESAMPLES):
        taken = draw.choices(keys, k=len(keys))
        if below := statistic(_drawn(theirs, taken)):
            found.append(statistic(_drawn(mine, taken)) / below)
    found.sort()
    return Interval(value=value, low=percentile(found, 2.5), high=percentile(found, 97.5), n=n)


def _drawn(values: Values, keys: Iterable[tuple[int, int, int]]) -> list[float]:
    return [one for key in keys for one in values[key]]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _percentile(percent: float) -> Callable[[Sequence[float]], float]:
    return lambda values: percentile(values, percent)


def cell_info(cell: Cell) -> CellInfo:
    """How one cell went."""
    took_s = cell.ended_s - cell.began_s
    tokens = [0] * math.ceil(took_s / BIN_S)
    for event in (event for one in cell.records for event in one.events):
        after_s = event.at_s - cell.began_s
        if 0 <= after_s < took_s:
            tokens[int(after_s // BIN_S)] += event.tokens
    return CellInfo(
        round=cell.round,
        phase=PHASES[cell.phase].name,
        arm=cell.arm,
        began_s=round(cell.began_s, 3),
        closed_after_s=round(cell.closed_s - cell.began_s, 3),
        took_s=round(took_s, 3),
        load=round(cell.load, 2),
        tok_s=[round(made / min(BIN_S, took_s - place * BIN_S), 1) for place, made in enumerate(tokens)],
    )

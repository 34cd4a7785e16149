"""From the measured map to the engine's schedule: which draft length at which batch, and which method for which lane.

Rows are the engine's own form: [first, last, K], running requests, inclusive, starting at 1, without gaps, K 0 = no draft, K at
most the draft length. A schedule is a proposal until both sides of each of its edges were measured with it and none is slower
than no draft: `edges`, then `accept`.

Source: vLLM 0.32 `num_speculative_tokens_per_batch_size`; vllm#49548 (throughput collapsed at the edge of [[1,4,2],[5,512,0]]).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from outrider.bench.document import BASELINE, Interval, RunDocument, Speedup
from outrider.bench.evidence import pays
from outrider.bench.words import at_once, listed, with_interval
from outrider.core.errors import MeasurementError

Row = tuple[int, int, int]
LAST = 512
OFF = 0
NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class Worth:
    """A draft length at one batch: its speed-up over no draft, with its interval, all prompt sets taken together."""

    running: int
    draft_length: int
    ratio: Interval


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schedule is not accepted at one batch: measured slower than no draft, or not measured (ratio None)."""

    running: int
    reason: str
    ratio: float | None = None


def worths(document: RunDocument, method: str, prompt_sets: Sequence[str] | None = None) -> list[Worth]:
    """Every draft length of a method at every concurrency at which it stood on all the prompt sets asked for.

    The ratio is the geometric mean over prompt sets, the worst set's where they disagree on its sign: a schedule holds for all
    traffic of a lane, and must not make any of it slower. A draft with a schedule of its own is no measurement of one K.
    """
    wanted = list(prompt_sets or [one.name for one in document.prompt_sets])
    found = []
    for arm in document.arms:
        if arm.method != method or arm.draft.get("draft_length_by_batch"):
            continue
        for concurrency in sorted({one.concurrency for one in document.speedups if one.arm == arm.name}):
            ratios = {
                one.prompt_set: one.ratio
                for one in document.speedups
                if (one.arm, one.concurrency) == (arm.name, concurrency) and one.prompt_set in wanted
            }
            if len(ratios) == len(wanted):
                found.append(Worth(concurrency, arm.draft_length, _together(list(ratios.values()))))
    return found


def _together(ratios: Sequence[Interval]) -> Interval:
    worst = min(ratios, key=lambda one: one.value)
    if worst.value < 1:
        return worst
    lows = [one.low for one in ratios if one.low is not None]
    highs = [one.high for one in ratios if one.high is not None]
    known = len(lows) == len(highs) == len(ratios)
    return Interval(
        value=math.exp(math.fsum(math.log(one.value) for one in ratios) / len(ratios)),
        low=min(lows) if known else None,
        high=max(highs) if known else None,
        n=min(one.n for one in ratios),
    )


def propose(found: Sequence[Worth], draft_length: int, last: int = LAST) -> list[Row]:
    """Rows from 1 to `last`: at each measured batch the K with the largest sure speed-up, 0 where none is sure.

    A batch between two measured ones takes the K of the one above it, where drafts are worth less: so every batch runs with a
    K that was shown to pay in a fuller one. Beyond the largest batch measured the draft is off.

    Raises MeasurementError without any measurement or with a K above `draft_length`.
    """
    if not found:
        raise MeasurementError(
            "there is nothing to make a schedule of: no speed-up of this method was measured",
            hint="Bench the stack with --arm METHOD:k=2+3+5 and a --grid of loads first.",
        )
    if longest := max((one.draft_length for one in found if one.draft_length > draft_length), default=0):
        raise MeasurementError(
            f"a draft of {longest} tokens was measured, but the stack allows {draft_length}",
            hint=f"Set draft.draft_length: {longest}, or leave that arm out.",
        )
    rows: list[Row] = []
    first = 1
    for running in sorted({one.running for one in found}):
        if first > last:
            break
        best = best_at(found, running)
        rows.append((first, min(running, last), best.draft_length if best else OFF))
        first = running + 1
    if first <= last:
        rows.append((first, last, OFF))
    return merged(rows)


def best_at(found: Sequence[Worth], running: int) -> Worth | None:
    """The draft length with the largest speed-up among those that surely pay at this batch; None where none does.

    Of two with the same speed-up, the shorter.
    """
    sure = [one for one in found if one.running == running and pays(one.ratio)]
    return max(sure, key=lambda one: (one.ratio.value, -one.draft_length), default=None)


def merged(rows: Sequence[Row]) -> list[Row]:
    """Neighbours with the same K as one row."""
    out: list[Row] = []
    for first, last, length in rows:
        if out and out[-1][2] == length:
            out[-1] = (out[-1][0], last, length)
        else:
            out.append((first, last, length))
    return out


def check_rows(rows: Sequence[Row], draft_length: int) -> None:
    """Raises MeasurementError unless the rows are what the engine takes: from 1, no gaps or overlaps, 0 ≤ K ≤ draft length."""
    wrong = ""
    if not rows or rows[0][0] != 1:
        wrong = "it must start at 1"
    elif any(first > last for first, last, _ in rows):
        wrong = "a range ends before it starts"
    elif any(after[0] != before[1] + 1 for before, after in pairwise(rows)):
        wrong = "its ranges must follow each other without gaps"
    elif any(not 0 <= length <= draft_length for _, _, length in rows):
        wrong = f"each K must lie between 0 and the draft length, {draft_length}"
    if wrong:
        raise MeasurementError(
            f"the schedule {[list(row) for row in rows]} is not valid: {wrong}",
            hint="Rows are [first, last, K], such as [[1, 4, 3], [5, 512, 0]].",
        )


def length_for(rows: Sequence[Row], running: int) -> int:
    """K at a batch; 0 beyond the last row."""
    return next((length for first, last, length in rows if first <= running <= last), OFF)


def edges(rows: Sequence[Row], largest: int | None = None) -> list[int]:
    """The batches to measure with the schedule in force: both sides of each edge, and twice the edge.

    Right at an edge the batch swings over it, so the far side is measured too, where the engine should have settled. None above
    `largest` (what the stack lets run at once). [[1, 4, 2], [5, 512, 0]] → 4, 5, 8. A schedule of one row has no edge: its
    first and last batch are what must be measured, the last at most `largest` or 8.
    """
    top = largest or rows[-1][1]
    if len(rows) == 1:
        return sorted({1, min(rows[0][1], largest or 8)})
    wanted = {batch for row in rows[:-1] for batch in (row[1], row[1] + 1, 2 * row[1])}
    return sorted(batch for batch in wanted if 1 <= batch <= top)


def accept(
    rows: Sequence[Row],
    measured: Mapping[int, Interval],
    largest: int | None = None,
    tolerance: float = 0.03,
) -> list[Refusal]:
    """Empty if the schedule may be written; else why not. `measured`: batch → output tok/s with the schedule / without a draft.

    Refused: an edge that was not measured; one that is slower than no draft. Slower is a ratio whose interval lies under 1, or
    whose value is under 1 - `tolerance` (a collapse seen in one trial is a collapse). Where the schedule itself says 0 the same
    holds: switching off must not cost anything either.
    """
    refused = []
    for batch in edges(rows, largest):
        ratio = measured.get(batch)
        if ratio is None:
            refused.append(Refusal(batch, f"{batch} running requests were not measured with this schedule"))
        elif ratio.value < 1 - tolerance or (ratio.high is not None and ratio.high < 1):
            refused.append(
                Refusal(
                    batch,
                    f"at {batch} running requests (K = {length_for(rows, batch)}) it makes {ratio.value:.2f}× "
                    "the tok/s of no draft",
                    ratio.value,
                )
            )
    return refused


def measured_at(document: RunDocument, arm: str, prompt_set: str | None = None) -> dict[int, Interval]:
    """Batch → speed-up of an arm that ran with the schedule, for `accept`; of several prompt sets the worst."""
    found: dict[int, Interval] = {}
    for one in document.speedups:
        if one.arm != arm or prompt_set not in (None, one.prompt_set):
            continue
        known = found.get(one.concurrency)
        if known is None or one.ratio.value < known.value:
            found[one.concurrency] = one.ratio
    return found


def best_method(
    document: RunDocument, prompt_sets: Sequence[str] | None = None, at_most: int | None = None
) -> tuple[str, str]:
    """The arm for a lane and why: largest sure speed-up over the lane's prompt sets and loads; (``none``, why) if none pays.

    Interactive lane: `at_most` its usual load, small batches; batch lane: all loads. An arm is judged by its worst load and set;
    one with a cell that failed where another stands is not judged: its worst may be there.
    """
    wanted = set(prompt_sets or [one.name for one in document.prompt_sets])
    measured: dict[str, list[Speedup]] = {
        arm.name: [
            one
            for one in document.speedups
            if one.arm == arm.name
            and one.prompt_set in wanted
            and (at_most is None or one.concurrency <= at_most)
        ]
        for arm in document.arms
        if arm.name != BASELINE
    }
    loads = {one.concurrency for mine in measured.values() for one in mine}
    cells = set(product(wanted, loads))
    whole = {
        name: mine
        for name, mine in measured.items()
        if mine and {(one.prompt_set, one.concurrency) for one in mine} == cells
    }
    judged = {name: mine for name, mine in whole.items() if all(pays(one.ratio) for one in mine)}
    names = ", ".join(sorted(wanted))
    if not loads:
        return (
            NO_DRAFT,
            f"no speed-up was measured{f' up to {at_most} at once' if at_most else ''} on {names}",
        )
    load = f"at {_loads(loads)}, the loads measured{f' up to {at_most}' if at_most else ''}"
    if not judged:
        holes = sorted(name for name, mine in measured.items() if mine and name not in whole)
        partly = f"; not measured everywhere: {', '.join(holes)}" if holes else ""
        return NO_DRAFT, f"no arm surely pays {load}, on {names}{partly}"
    worst = {name: min(mine, key=lambda one: one.ratio.value) for name, mine in judged.items()}
    best = max(worst, key=lambda name: worst[name].ratio.value)
    return best, f"{best} makes at least {with_interval(worst[best].ratio)} the tok/s of no draft {load}"


def _loads(measured: Iterable[int]) -> str:
    return (
        at_once(max(found))
        if len(found := sorted(measured)) == 1
        else f"{listed([*map(str, found)])} at once"
    )

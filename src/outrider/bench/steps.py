"""The model behind the speed-up: a step at batch b with draft length K takes T(b, K).

speed-up = tokens per step · T(b, 0)/T(b, K); with a draft in every step, tokens per step is AL(K). T depends on the machine and
is measured once per (b, K); AL depends on traffic. From both: the AL that just pays (break-even), the best K per batch.

Source: measurement method of this project; AL from unconditional position rates, `outrider.core.acceptance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.bench.acceptance import Counted, acceptance
from outrider.bench.document import BASELINE, Acceptance, Arm, Cell, RunDocument, StepCost
from outrider.bench.standing import trials_of
from outrider.core.acceptance import SpecCounters, acceptance_length_of


def step_costs(cells: Sequence[Cell], arms: Sequence[Arm]) -> list[StepCost]:
    """T(b, K) against T(b, 0) for every arm and concurrency, over all prompt sets that both ran (cells of state ``ok``).

    Of each set, in the trials that both have: a moment of the machine that one of them alone met is no cost of the other's.
    Step times and running requests are averaged over sets, counts added. An arm that drafts in a part of its steps is
    predicted by its tokens per step, not by its AL. Cells without a step time (coarse chunks, steps not counted) are left out.
    """
    found = []
    standing = {(cell.arm, cell.prompt_set, cell.concurrency): cell for cell in cells if cell.state == "ok"}
    for arm in arms:
        for concurrency in sorted({cell.concurrency for cell in cells}):
            sides = [
                _sides(mine, base)
                for (name, prompts, running), mine in standing.items()
                if name == arm.name != BASELINE
                and running == concurrency
                and (base := standing.get((BASELINE, prompts, concurrency))) is not None
            ]
            if kept := [side for side in sides if side is not None]:
                found.append(_cost(arm, concurrency, kept))
    return found


@dataclass(frozen=True, slots=True)
class _Sides:
    """A cell and the baseline's, over the trials that both have: step times in ms, running requests, what was accepted."""

    step_ms: float
    baseline_step_ms: float
    running: float
    acceptance: Acceptance


def _sides(mine: Cell, base: Cell) -> _Sides | None:
    """None where either has no step time in those trials."""
    told = [trials_of(cell) for cell in (mine, base)]
    shared = sorted(told[0].keys() & told[1].keys())
    if told[0].keys() == told[1].keys():
        both = [[cell.pooled] if cell.pooled else [] for cell in (mine, base)]
    else:
        both = [[figures[trial] for trial in shared] for figures in told]
    steps = [[one.step_ms for one in side if one.step_ms] for side in both]
    if not all(steps):
        return None
    return _Sides(
        step_ms=_mean(steps[0]),
        baseline_step_ms=_mean(steps[1]),
        running=_mean([one.running_mean or mine.concurrency for one in both[0]]),
        acceptance=pooled_acceptance([one.acceptance for one in both[0]]),
    )


def _cost(arm: Arm, concurrency: int, sides: Sequence[_Sides]) -> StepCost:
    step = _mean([one.step_ms for one in sides])
    base = _mean([one.baseline_step_ms for one in sides])
    drafts = pooled_acceptance([one.acceptance for one in sides])
    per_step = drafts.tokens_per_step or drafts.length
    return StepCost(
        arm=arm.name,
        method=arm.method,
        draft_length=arm.draft_length,
        running=_mean([one.running for one in sides]),
        concurrency=concurrency,
        step_ms=step,
        baseline_step_ms=base,
        break_even_length=step / base,
        acceptance_length=drafts.length,
        predicted_speedup=None if per_step is None else per_step * base / step,
    )


def earned(one: StepCost) -> float | None:
    """The tokens of a step that pay for it: what `predicted_speedup` is made of, AL only where every step has a draft."""
    return None if one.predicted_speedup is None else one.predicted_speedup * one.break_even_length


def steps_of_set(document: RunDocument, prompt_set: str) -> list[StepCost]:
    """`step_costs` of one prompt set alone: what pays on code need not pay on chat.

    A forecast whose speed-ups are reckoned has the document's own steps: its acceptance is stated, not counted in cells.
    """
    if document.forecast is not None and not document.forecast.synthetic:
        return list(document.steps)
    return step_costs([cell for cell in document.cells if cell.prompt_set == prompt_set], document.arms)


def reckoned(document: RunDocument, arm: str, prompt_set: str, concurrency: int) -> float | None:
    """Tokens per step × T(b, 0)/T(b, K) of one cell: the gain that its own steps explain; None without step times.

    A step that verifies a draft is no shorter than one without: a T(b, K) below T(b, 0) is noise and counts as T(b, 0).
    """
    for one in steps_of_set(document, prompt_set):
        if (one.arm, one.concurrency) == (arm, concurrency):
            tokens = earned(one)
            return None if tokens is None else tokens / max(one.break_even_length, 1.0)
    return None


def pooled_acceptance(parts: Sequence[Acceptance]) -> Acceptance:
    """Figures over several windows out of their counts; void ones are left out."""
    return acceptance(
        [
            Counted(
                SpecCounters(
                    part.counts.drafts,
                    part.counts.proposed,
                    part.counts.accepted,
                    tuple(part.counts.per_position),
                ),
                part.counts.steps,
                part.counts.generation_tokens,
                part.counts.first_tokens,
                part.void,
            )
            for part in parts
        ]
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def length_at(positions: Sequence[float], draft_length: int) -> float:
    """AL of a draft of `draft_length` tokens from position rates measured with one at least as long: 1 + the first K rates.

    Raises ValueError where K is longer than what was measured.
    """
    if not 0 <= draft_length <= len(positions):
        raise ValueError(
            f"acceptance is known for {len(positions)} positions, not {draft_length}: measure a longer draft"
        )
    return acceptance_length_of(positions[:draft_length])


def speedup(tokens_per_step: float, step_ms: float, baseline_step_ms: float) -> float:
    """tokens per step · T(b, 0)/T(b, K): how many times the baseline's output tok/s."""
    return tokens_per_step * baseline_step_ms / step_ms


def best_length(
    step_ms: Mapping[int, float], positions: Sequence[float], coverage: float = 1.0
) -> tuple[int, float]:
    """The draft length with the largest predicted speed-up at one batch, and that speed-up. `step_ms`: K → T(b, K), 0 included.

    0 (no draft, 1.0) wins where nothing beats it, and a tie goes to the shorter draft. `coverage`: share of steps with a
    draft, whose others make one token. K beyond the positions measured are not considered. Raises ValueError without T(b, 0).
    """
    if 0 not in step_ms:
        raise ValueError("T(b, 0) was not measured: run the baseline at this batch")
    best = (0, 1.0)
    for length in sorted(step_ms):
        if not 0 < length <= len(positions):
            continue
        gain = speedup(1 + coverage * (length_at(positions, length) - 1), step_ms[length], step_ms[0])
        if gain > best[1]:
            best = (length, gain)
    return best

"""Caveats about noise: cells too short, trials too few or apart, gains that no step explains, what happens once only."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.bench.document import BASELINE, Answer, Cell, RunDocument
from outrider.bench.quantiles import P99_N
from outrider.bench.silences import LONGER, once
from outrider.bench.standing import tok_s_by_trial
from outrider.bench.steps import reckoned
from outrider.bench.words import at_once, listed, more, times, trials

_NAMED = 4  # cells named before "and N more"
DRIFT = 0.15  # the baseline's largest trial over its smallest, less 1
UNEXPLAINED = 0.2  # a speed-up this much above what its steps explain
STOOD_STILL = 0.01  # of a trial's time, from which on it is worth a sentence
LONG_GAP = 0.05  # of a trial's window: one step gap that takes so much


def caveat(name: str, text: str, **values: float) -> Answer:
    """One sentence of warning; `name` is the end of its id."""
    return Answer(id=f"caveat/{name}", text=text, values=dict(values), good=False)


def cell_words(cell: Cell) -> str:
    """``ngram-k3 on humaneval at 8 at once``."""
    return f"{cell.arm} on {cell.prompt_set} at {at_once(cell.concurrency)}"


def first_few(words: Iterable[str]) -> str:
    """The first few, and how many more."""
    named = list(words)
    left = len(named) - _NAMED
    return listed(named) if left <= 0 else f"{', '.join(named[:_NAMED])} and {left} more"


def noise(document: RunDocument) -> list[Answer]:
    """Why figures of a cell may say less than they seem to."""
    found = _drift(document)
    standing = [cell for cell in document.cells if cell.state == "ok" and cell.pooled]
    loose = [cell for cell in standing if cell.pooled and not cell.pooled.steady]
    if loose:
        text = (
            f"{len(loose)} of {len(standing)} cells are not steady, full load lasted too short in them and their throughput "
            "counts start and end as well: "
        )
        found.append(
            caveat("not-steady", f"{text}{first_few(map(cell_words, loose))}.", cells=float(len(loose)))
        )
    small = [cell for cell in standing if cell.pooled and cell.pooled.e2e_ms.n < P99_N]
    if small:
        fewest = min(cell.pooled.e2e_ms.n for cell in small if cell.pooled)
        text = (
            f"n too small for the p99 of a request in {len(small)} of {len(standing)} cells "
            f"({fewest} requests at fewest, {P99_N} needed)."
        )
        found.append(caveat("n-too-small", text, cells=float(len(small)), fewest=float(fewest)))
    return [
        *found,
        *_few_trials(document),
        *_unsettled(document),
        *_stood_still(document),
        *_long_gaps(document),
        *_unexplained(document),
    ]


def _few_trials(document: RunDocument) -> list[Answer]:
    fewest = min((one.ratio.n for one in document.speedups), default=3)
    if not 0 < fewest < 3:
        return []
    what = "has no interval" if fewest < 2 else "has a very wide interval"
    which = "each cell" if all(one.ratio.n == fewest for one in document.speedups) else "some cells"
    text = f"Only {trials(fewest)} of {which}: a speed-up from them {what}; run at least 3."
    return [caveat("few-trials", text, trials=float(fewest))]


def _drift(document: RunDocument) -> list[Answer]:
    """Where the baseline's own trials differ: a ratio to something that moves is no ratio."""
    spreads: dict[str, float] = {}
    for cell in document.cells:
        rates = tok_s_by_trial(cell).values()
        if cell.arm == BASELINE and cell.state == "ok" and len(rates) > 1:
            spread = max(rates) / min(rates) - 1
            if spread > DRIFT:
                spreads[f"{cell.prompt_set} at {at_once(cell.concurrency)}"] = spread
    if not spreads:
        return []
    names = first_few(f"{name} by {spread:.0%}" for name, spread in spreads.items())
    text = (
        f"The baseline's own trials differ by more than {DRIFT:.0%} in tok/s ({names}): something beside the draft moves these "
        "numbers. Look for other load on the machine, and run more trials."
    )
    return [caveat("baseline-drift", text, cells=float(len(spreads)), largest=max(spreads.values()))]


def _unexplained(document: RunDocument) -> list[Answer]:
    """Speed-ups well above tokens per step × T(b, 0)/T(b, K): a gain that the steps do not hold is the machine's."""
    if document.forecast is not None and not document.forecast.synthetic:
        return []
    names, values = [], {}
    for one in document.speedups:
        expected = reckoned(document, one.arm, one.prompt_set, one.concurrency)
        if expected is None or one.ratio.value <= expected * (1 + UNEXPLAINED):
            continue
        where = f"{one.arm} on {one.prompt_set} at {at_once(one.concurrency)}"
        names.append(f"{where} measured {times(one.ratio.value)}, its steps explain {times(expected)}")
        values[where] = expected
    if not names:
        return []
    text = (
        f"Larger than the draft can explain (tokens per step × T(b, 0) ÷ T(b, K)): {first_few(names)}. The rest is noise, or "
        "step times that were not seen well."
    )
    return [caveat("unexplained", text, **values)]


def _unsettled(document: RunDocument) -> list[Answer]:
    """Trials whose warm-up ended before two waves took the same time: what is made at first use may lie in the counted part."""
    warmed = [
        (cell, trial.warmup) for cell in document.cells for trial in cell.trials if trial.warmup is not None
    ]
    loose = [(cell, warmup) for cell, warmup in warmed if warmup.unsettled]
    if not loose:
        return []
    places = list(dict.fromkeys(cell_words(cell) for cell, _ in loose))
    why = listed(list(dict.fromkeys(warmup.unsettled for _, warmup in loose)))
    text = (
        f"The warm-up did not settle before {len(loose)} of {len(warmed)} trials ({first_few(places)}): {why}. What an engine "
        "makes at first use may be in their figures."
    )
    return [caveat("warm-up", text, trials=float(len(loose)), of=float(len(warmed)))]


def _stood_still(document: RunDocument) -> list[Answer]:
    """Times in which every stream stood still, and which did not come again: see `outrider.bench.silences`."""
    names, values = [], {}
    for cell in document.cells:
        found = once({trial.trial: trial.silences for trial in cell.trials if trial.figures is not None})
        for trial in cell.trials:
            lost_ms = sum(one.length_ms for one in found.get(trial.trial, ()))
            if trial.length_s and lost_ms >= STOOD_STILL * 1e3 * trial.length_s:
                where = f"{cell_words(cell)}, trial {trial.trial}"
                names.append(f"{where}: {lost_ms:.0f} ms of {trial.length_s:.1f} s")
                values[where] = lost_ms
    if not names:
        return []
    text = (
        f"Every stream stood still, once and not again ({first_few(names)}): something compiled or loaded at first use? Or other "
        "load on the machine. It is in the tok/s and tails of these trials; more trials show what they are without it."
    )
    return [caveat("stood-still", text, **values)]


def _long_gaps(document: RunDocument) -> list[Answer]:
    """Trials stored without their silences, by an older version: their longest step gap is all there is to go by."""
    longest: dict[str, tuple[float, float]] = {}
    for cell in document.cells:
        for trial in cell.trials:
            figures = trial.figures
            if cell.state != "ok" or figures is None or trial.failed or trial.length_s is not None:
                continue
            gaps = figures.step_gap_ms
            share = (gaps.worst or 0.0) / 1e3 / figures.window_s if figures.window_s else 0.0
            if gaps.worst and gaps.p50 and share >= LONG_GAP and gaps.worst >= LONGER * gaps.p50:
                longest[f"{cell_words(cell)} in trial {trial.trial}"] = (gaps.worst, share)
    if not longest:
        return []
    absolute = document.labels.absolute_times
    told = [
        f"{where}: {f'{gap:.0f} ms, ' if absolute else ''}{share:.0%} of its window"
        for where, (gap, share) in sorted(longest.items(), key=lambda one: -one[1][1])
    ]
    names = "; ".join(told[:_NAMED]) + more(len(told) - _NAMED)
    text = (
        f"A stream stood still for long in {trials(len(longest))} ({names}): prompts being read, or something compiled or loaded "
        "at first use. These trials are stored without a list of their silences, so which of them it was is not known; it is in "
        "their tok/s and tails."
    )
    return [caveat("long-gaps", text, **{where: gap for where, (gap, _) in longest.items()})]

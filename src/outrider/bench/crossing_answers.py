"""Sentences on curves that meet: where a draft stops paying, where one draft overtakes another and where it falls behind."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench.document import Answer, Crossover, Interval, RunDocument, Speedup
from outrider.bench.evidence import decides, pointing, surely
from outrider.bench.standing import standing, tok_s_by_trial
from outrider.bench.statistics import ratio_interval
from outrider.bench.words import all_at_once, listed, ratios_at, speedups


def stops(document: RunDocument, one: Crossover) -> Answer | None:
    """The batch where an arm stops paying."""
    found = speedups(document, one.arm, one.prompt_set)
    if not found:
        return None
    head = f"{one.arm} on {one.prompt_set}"
    sure = surely(found)
    values: dict[str, float | None] = {"up_to": one.up_to}
    if one.kind == "at" and one.running is not None:
        values |= {"running": one.running.value, "low": one.running.low, "high": one.running.high}
        bounds = text = ""
        if one.running.n < 2:
            bounds = " (1 trial)"
        elif one.running.low is None and one.running.high is None:
            text = (
                f"Where {head} stops paying is undecided: near {one.running.value:.1f} running requests on average, but the "
                "trials differ too much to tell it from any other load."
            )
        else:
            low = "below what was measured" if one.running.low is None else f"{one.running.low:.1f}"
            high = "beyond what was measured" if one.running.high is None else f"{one.running.high:.1f}"
            bounds = f" (95 %: {low} to {high})"
        text = text or f"{head} stops paying at {one.running.value:.1f} running requests{bounds}."
    elif one.kind in ("none", "below") and (crossed := _other_side(found, one.kind)):
        side = "not ahead" if one.kind == "none" else "ahead"
        text = f"{head} goes up and down with the load: {side} at {crossed}; there is no one load at which it stops paying."
        sure = None
    elif one.kind == "none":
        text = f"{head} {'pays' if sure else 'is ahead'} at every load measured, up to {one.up_to:.1f} running requests"
        text += "." if sure else f"; not surely at {_unsure(found)}."
    elif one.kind == "below":
        text = f"{head} never pays: {'' if sure is False else 'it was '}slower than no draft at every load measured"
        text += "." if sure is False else f"; not surely at {_unsure(found)}."
    elif len(found) < 2:
        text = f"Where {head} stops paying is unknown: only one load was measured."
    else:
        text = f"Where {head} stops paying is undecided: the trials differ too much; measure more of them."
    good = sure if one.kind in ("none", "below") else None
    return Answer(
        id=f"stops-paying/{one.arm}/{one.prompt_set}",
        text=text,
        arm=one.arm,
        prompt_set=one.prompt_set,
        values=values,
        good=good,
        leans=pointing(document, found),
    )


def _other_side(found: Sequence[Speedup], kind: str) -> str:
    """Loads that a fitted curve hides: not above 1 though it is ahead on the whole, or above 1 though it is behind."""
    loads = [
        one.concurrency for one in found if (one.ratio.value <= 1 if kind == "none" else one.ratio.value > 1)
    ]
    return all_at_once(loads) if loads else ""


def _unsure(found: Sequence[Speedup]) -> str:
    """The loads at which a ratio decides nothing: too few trials, an interval that holds 1, or a cell that is not steady."""
    loads = [one.concurrency for one in found if not decides(one.ratio, one.steady)]
    return all_at_once(loads) if loads else "any load"


def rival(document: RunDocument, one: Crossover) -> Answer | None:
    """Where one draft overtakes another and where it falls behind, trial by trial: the ratio of those that both made."""
    ratios = _against(document, one)
    if not ratios:
        return None
    ahead = ratios_at([(load, ratio.value) for load, (ratio, _) in ratios.items() if ratio.value > 1])
    behind = ratios_at([(load, ratio.value) for load, (ratio, _) in ratios.items() if ratio.value <= 1])
    if not behind:
        text = f"is ahead of {one.against} at every load measured: at {ahead}"
    elif not ahead:
        text = f"never overtakes {one.against}: at {behind}"
    else:
        text = f"is ahead of {one.against} at {ahead} and behind at {behind}"
    values: dict[str, float | None] = {}
    for load, (ratio, _) in ratios.items():
        values |= {f"ratio@{load}": ratio.value, f"low@{load}": ratio.low, f"high@{load}": ratio.high}
    unsure = [load for load, (ratio, steady) in ratios.items() if not decides(ratio, steady)]
    if len(unsure) == len(ratios):
        text += "; not surely at any of them" if len(ratios) > 1 else "; not surely"
    elif unsure:
        text += f"; not surely at {all_at_once(unsure)}"
    if one.kind == "at" and one.running is not None:
        values["running"] = one.running.value
        text += f"; they are equal near {one.running.value:.1f} running requests"
    elif one.kind == "undecided":
        text += "; where they part is within the noise" if len(ratios) > 1 else "; one load only"
    needs, more = _needed(document, one, list(ratios))
    # Of a forecast neither says a word on the drafts: their acceptances were stated, one by one.
    leans = bool(ahead) if document.forecast is None and not (ahead and behind) else None
    return Answer(
        id=f"rival/{one.arm}/{one.against}/{one.prompt_set}",
        text=f"{one.arm} {text}, on {one.prompt_set}.{needs}",
        arm=one.arm,
        prompt_set=one.prompt_set,
        values=values | more,
        good=None if unsure else leans,
        leans=leans,
    )


def _needed(
    document: RunDocument, one: Crossover, loads: Sequence[int]
) -> tuple[str, dict[str, float | None]]:
    """A forecast's ratio rests on two acceptances that were stated one by one; what each draft needs rests on step times."""
    if document.forecast is None:
        return "", {}
    steps = {(step.arm, step.concurrency): step.break_even_length for step in document.steps}
    pairs = [
        (load, mine, theirs)
        for load in loads
        if (mine := steps.get((one.arm, load))) and (theirs := steps.get((one.against, load)))
    ]
    if not pairs:
        return "", {}
    words = listed([f"{mine:.2f} against {theirs:.2f} at {load}" for load, mine, theirs in pairs])
    values: dict[str, float | None] = {}
    for load, mine, theirs in pairs:
        values |= {f"needs@{load}": mine, f"rival_needs@{load}": theirs}
    text = (
        " Each has the acceptance that was stated of it; unless both were measured on the same traffic, compare what they need "
        f"to pay, which is measured: an AL of {words} at once."
    )
    return text, values


def _against(document: RunDocument, one: Crossover) -> dict[int, tuple[Interval, bool]]:
    """Concurrency → output tok/s of one draft over the other's in the trials they share, and whether both cells are steady."""
    found = {}
    for concurrency in sorted({cell.concurrency for cell in document.cells}):
        mine, theirs = (
            standing(document, arm, one.prompt_set, concurrency) for arm in (one.arm, one.against)
        )
        if mine is None or theirs is None:
            continue
        sides = tok_s_by_trial(mine), tok_s_by_trial(theirs)
        if sides[0].keys() & sides[1].keys():
            steady = all(cell.pooled is not None and cell.pooled.steady for cell in (mine, theirs))
            found[concurrency] = ratio_interval(*sides), steady
    return found

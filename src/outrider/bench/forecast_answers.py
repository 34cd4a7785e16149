"""A forecast's last word: what is stated, what was measured, what follows, and labels that say so of every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.bench import document
from outrider.bench.caveats import caveats
from outrider.bench.forecast import Stated, stated_of
from outrider.bench.words import at_once, listed, times

# Caveats of acceptance and throughput, which a modelled forecast does not report: random drafts are never accepted.
_NONE = document.Quantiles(n=0)
_OF_WHAT_WAS_MEASURED = ("caveat/flags/", "caveat/few-trials", "caveat/n-too-small")


def finished(found: document.RunDocument, forecast: document.ForecastInfo) -> document.RunDocument:
    """The document with a forecast's labels and answers.

    Synthetic (a GPU drew the stated acceptance): the figures are measured, answers of the forecast come first. Modelled (a CPU
    build drew none): of a draft only step times are kept as measured; speed-ups are reckoned from them, and what followed from
    tokens that nobody accepted (its throughput, latencies and acceptance, crossover, cost) is left out.
    """
    stated, synthetic = stated_of(forecast), forecast.synthetic
    labels = labelled(found.labels, stated, synthetic=synthetic)
    if synthetic:
        found = found.model_copy(update={"labels": labels})
        answers = forecast_answers(_measured(found), "measured, with", _asked(found))
        return found.model_copy(update={"answers": [*answers, *found.answers]})
    steps = predicted(found.steps, stated)
    changes: dict[str, list[object]] = {
        "latency_differences": [],
        "crossovers": [],
        "costs": [],
        "answers": [],
    }
    found = found.model_copy(
        update={**changes, "labels": labels, "steps": steps, "speedups": _modelled(found.speedups, steps)}
    )
    kept = [one for one in caveats(found) if not one.id.startswith(_OF_WHAT_WAS_MEASURED)]
    cells = [one if one.arm == document.BASELINE else _step_times_only(one) for one in found.cells]
    return found.model_copy(
        update={"cells": cells, "answers": [*forecast_answers(steps, asked=_asked(found)), *kept]}
    )


def _asked(found: document.RunDocument) -> dict[int, list[str]]:
    """Concurrency → the arms with a draft that the run is about."""
    asked: dict[int, list[str]] = {}
    for cell in found.cells:
        if cell.arm != document.BASELINE and cell.arm not in asked.setdefault(cell.concurrency, []):
            asked[cell.concurrency].append(cell.arm)
    return asked


def _step_times_only(cell: document.Cell) -> document.Cell:
    """A drafted cell without what depends on how many of its tokens were accepted: of a modelled forecast, none were."""
    trials = [
        trial.model_copy(update={"figures": _without_tokens(trial.figures)}) if trial.figures else trial
        for trial in cell.trials
    ]
    pooled = _without_tokens(cell.pooled) if cell.pooled else None
    return cell.model_copy(update={"trials": trials, "pooled": pooled})


def _without_tokens(figures: document.Figures) -> document.Figures:
    return figures.model_copy(
        update={
            **dict.fromkeys(("output_tok_s", "peak_tok_s", "user_tok_s", "tokens_per_chunk")),
            **dict.fromkeys(
                ("ttft_ms", "tpot_ms", "token_itl_ms", "e2e_ms", "queue_wait_ms", "first_text_ms"), _NONE
            ),
            "acceptance": document.Acceptance(),
            "usd_per_million_output_tokens": None,
        }
    )


def labelled(labels: document.Labels, stated: Mapping[str, Stated], *, synthetic: bool) -> document.Labels:
    """Labels that say of every figure what it is."""
    words = [f"{method}: {one.source or 'no source given'}" for method, one in stated.items()]
    note = (
        "a forecast: dummy weights, acceptance drawn from stated rates; step times are measured, text means nothing"
        if synthetic
        else "a modelled forecast: dummy weights; step times are measured, speed-ups are reckoned, AL(K) × T(b, 0)/T(b, K) with "
        "stated acceptance, because this build cannot draw it"
    )
    return labels.model_copy(
        update={
            "weights": "dummy",
            "acceptance": "synthetic",
            "modelled": not synthetic,
            "acceptance_source": "; ".join(words),
            "notes": [note, *labels.notes],
        }
    )


def predicted(steps: Sequence[document.StepCost], stated: Mapping[str, Stated]) -> list[document.StepCost]:
    """Measured step costs with the stated AL and the speed-up that follows: AL(K) · T(b, 0)/T(b, K)."""
    return [
        step.model_copy(
            update={
                "acceptance_length": (length := stated[step.method].length(step.draft_length)),
                "predicted_speedup": length / step.break_even_length,
            }
        )
        if step.method in stated and step.break_even_length > 0
        else step
        for step in steps
    ]


def best_lengths(steps: Sequence[document.StepCost]) -> dict[int, document.StepCost | None]:
    """By concurrency the arm with the largest predicted speed-up; None where none is above 1: better without a draft."""
    best: dict[int, document.StepCost | None] = {}
    for step in steps:
        best.setdefault(step.concurrency, None)
        known = best[step.concurrency]
        gain = step.predicted_speedup or 0.0
        if gain > 1 and (known is None or gain > (known.predicted_speedup or 0.0)):
            best[step.concurrency] = step
    return best


def _modelled(
    measured: Sequence[document.Speedup], steps: Sequence[document.StepCost]
) -> list[document.Speedup]:
    """The same cells with the speed-up that is reckoned, without an interval: nothing was measured of it."""
    gains = {(step.arm, step.concurrency): step.predicted_speedup for step in steps}
    return [
        one.model_copy(update={"ratio": document.Interval(value=gain, n=0)})
        for one in measured
        if (gain := gains.get((one.arm, one.concurrency))) is not None
    ]


def _measured(found: document.RunDocument) -> list[document.StepCost]:
    """Step costs with the speed-up that was measured: it holds what a step time alone does not, such as waits for prefills."""
    gains = {(one.arm, one.concurrency): one.ratio.value for one in found.speedups}
    return [
        step.model_copy(update={"predicted_speedup": gains.get((step.arm, step.concurrency))})
        for step in found.steps
    ]


def forecast_answers(
    steps: Sequence[document.StepCost],
    how: str = "reckoned from its step time and",
    asked: Mapping[int, Sequence[str]] | None = None,
) -> list[document.Answer]:
    """One sentence a batch: which arm pays, which is best of several, by how much, and from which acceptance length on.

    `steps` hold the speed-ups to go by (`predicted`), `how` says where those are from. `asked`: the arms of the run by
    concurrency; an arm without a speed-up there (its cell, or the baseline's, does not stand) is said not to be known.
    """
    wanted = asked or {step.concurrency: [] for step in steps}
    answers = []
    for concurrency in sorted(wanted):
        here = [step for step in steps if step.concurrency == concurrency]
        known = [step for step in here if step.predicted_speedup is not None]
        names = dict.fromkeys([*wanted[concurrency], *(step.arm for step in here)])
        unknown = [name for name in names if name not in {step.arm for step in known}]
        answers.append(_at_batch(concurrency, known, unknown, how))
    return answers


def _at_batch(
    concurrency: int, known: Sequence[document.StepCost], unknown: Sequence[str], how: str
) -> document.Answer:
    best = best_lengths(known).get(concurrency)
    load, alone = at_once(concurrency), len(known) + len(unknown) == 1
    left = f" {listed(unknown)} {'is' if len(unknown) == 1 else 'are'} not known there." if unknown else ""
    values: dict[str, float | None] = {}
    if best is not None:
        gain, length = best.predicted_speedup or 0.0, best.acceptance_length or 0.0
        values = {"speedup": gain, "length": length, "break_even": best.break_even_length}
        verdict = "pays" if alone or len(known) == 1 else "is best of what is known" if unknown else "is best"
        text = (
            f"{best.arm} {verdict} at {load}: {times(gain)} {how} an AL of {length:.2f}; it pays from an AL of "
            f"{best.break_even_length:.2f}.{left}"
        )
    elif known:
        least = min(known, key=lambda step: step.break_even_length)
        values = {"break_even": least.break_even_length}
        if len(known) == 1:
            text = f"{least.arm} does not pay at {load}: it would need an AL of {least.break_even_length:.2f}.{left}"
        else:
            which = "no draft that is known" if unknown else "no draft"
            text = f"{which} pays at {load}: even {least.arm} would need an AL of {least.break_even_length:.2f}.{left}"
    else:
        text = f"whether a draft pays at {load} is not known: no figures stand of {listed(unknown)}."
    return document.Answer(
        id=f"forecast/{concurrency}",
        text=f"With the acceptance stated, {text}",
        arm=best.arm if best else "",
        values=values,
        good=True if best else None if unknown else False,
    )

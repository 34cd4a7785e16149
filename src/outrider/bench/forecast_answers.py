"""A forecast's last word: what is stated, what was measured, what follows, and labels that say so of every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.bench import document
from outrider.bench.answers import answers
from outrider.bench.caveats import caveats
from outrider.bench.forecast import Stated, stated_of
from outrider.bench.words import STATES, at_once, listed, times

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
    found = found.model_copy(update={"labels": labels, "forecast": forecast})
    if synthetic:
        told = forecast_answers(_measured(found, stated), asked=_asked(found), drawn=found.steps)
        return found.model_copy(update={"answers": [*told, *answers(found)]})
    steps = predicted(found.steps, stated)
    changes: dict[str, Sequence[object]] = {
        "latency_differences": [],
        "crossovers": [],
        "costs": [],
        "answers": [],
    }
    cells = [one if one.arm == document.BASELINE else _step_times_only(one) for one in found.cells]
    changes |= {"steps": steps, "speedups": _modelled(found, steps), "cells": cells}
    found = found.model_copy(update=changes)
    kept = [one for one in caveats(found) if not one.id.startswith(_OF_WHAT_WAS_MEASURED)]
    return found.model_copy(update={"answers": [*forecast_answers(steps, asked=_asked(found)), *kept]})


def _asked(found: document.RunDocument) -> dict[int, dict[str, str]]:
    """Concurrency → the arms with a draft that the run is about → why no figures stand of it there, where none do."""
    asked: dict[int, dict[str, str]] = {}
    for cell in found.cells:
        if cell.arm != document.BASELINE:
            base = found.cell(document.BASELINE, cell.prompt_set, cell.concurrency)
            asked.setdefault(cell.concurrency, {}).setdefault(cell.arm, _lacking(base, cell))
    return asked


def _lacking(base: document.Cell | None, mine: document.Cell) -> str:
    """Why there is no step time to go by, the baseline's first; what to do about it where it is not known to have failed."""
    if base is None or base.state != "ok":
        return f"{document.BASELINE} {STATES[base.state if base else 'missing']}"
    if mine.state != "ok":
        return "not run yet" if mine.state == "missing" else mine.state
    without = [cell.arm for cell in (base, mine) if not (cell.pooled and cell.pooled.step_ms)]
    if not without:
        return "it shared no trial with the baseline"
    return (
        f"no step time of {listed(without)}: the chunks of the answers came too late or were too few; ask for more requests or "
        "longer answers, with --requests or --output-tokens"
    )


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
            "notes": list(dict.fromkeys([note, *labels.notes])),
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


def _modelled(found: document.RunDocument, steps: Sequence[document.StepCost]) -> list[document.Speedup]:
    """Each arm's reckoned speed-up where its step time and the baseline's stand; no interval, for nothing was measured of it."""
    speedups = []
    for prompts in found.prompt_sets:
        for step in steps:
            cells = [found.cell(arm, prompts.name, step.concurrency) for arm in (step.arm, document.BASELINE)]
            sides = [cell.pooled for cell in cells if cell and cell.state == "ok" and cell.pooled]
            if step.predicted_speedup is not None and len(sides) == len(cells):
                one = document.Speedup(
                    arm=step.arm,
                    prompt_set=prompts.name,
                    concurrency=step.concurrency,
                    running=sum(side.running_mean or step.concurrency for side in sides) / len(sides),
                    ratio=document.Interval(value=step.predicted_speedup, n=0),
                    steady=all(side.steady for side in sides),
                )
                speedups.append(one)
    return speedups


def _measured(found: document.RunDocument, stated: Mapping[str, Stated]) -> list[document.StepCost]:
    """Step costs with the AL stated and the speed-up that was measured: it holds what a step time alone does not, such as
    waits for prefills."""
    gains = {(one.arm, one.concurrency): one.ratio.value for one in found.speedups}
    return [
        step.model_copy(update={"predicted_speedup": gains.get((step.arm, step.concurrency))})
        for step in predicted(found.steps, stated)
    ]


def forecast_answers(
    steps: Sequence[document.StepCost],
    asked: Mapping[int, Mapping[str, str]] | None = None,
    drawn: Sequence[document.StepCost] | None = None,
) -> list[document.Answer]:
    """One sentence a batch: which arm pays, which is best of several, by how much, and from which acceptance length on.

    `steps` hold the AL stated and the speed-ups to go by. `drawn`: the same steps with the AL that the engine drew, where it
    did, and the speed-ups were measured; without it they are reckoned. `asked`: by concurrency the arms of the run, each with
    the reason to give where it has no speed-up: it is said not to be known.
    """
    wanted = asked or {step.concurrency: {} for step in steps}
    lengths = None
    if drawn is not None:
        lengths = {(one.arm, one.concurrency): one.acceptance_length for one in drawn}
    said = []
    for concurrency in sorted(wanted):
        here = [step for step in steps if step.concurrency == concurrency]
        known = [step for step in here if step.predicted_speedup is not None]
        names = dict.fromkeys([*wanted[concurrency], *(step.arm for step in here)])
        unknown = {
            name: wanted[concurrency].get(name, "")
            for name in names
            if name not in {step.arm for step in known}
        }
        said.append(_at_batch(concurrency, known, unknown, lengths))
    return said


def _not_known(unknown: Mapping[str, str]) -> str:
    """`` a and b are not known there (baseline failed).``, a sentence for each reason."""
    sentences = ""
    for reason in dict.fromkeys(unknown.values()):
        names = [name for name in unknown if unknown[name] == reason]
        why = f" ({reason})" if reason else ""
        sentences += f" {listed(names)} {'is' if len(names) == 1 else 'are'} not known there{why}."
    return sentences


def _at_batch(
    concurrency: int,
    known: Sequence[document.StepCost],
    unknown: Mapping[str, str],
    drawn: Mapping[tuple[str, int], float | None] | None,
) -> document.Answer:
    best = best_lengths(known).get(concurrency)
    load, alone = at_once(concurrency), len(known) + len(unknown) == 1
    left = _not_known(unknown)
    values: dict[str, float | None] = {}
    if best is not None:
        gain, length = best.predicted_speedup or 0.0, best.acceptance_length or 0.0
        values = {"speedup": gain, "length": length, "break_even": best.break_even_length}
        verdict = "pays" if alone or len(known) == 1 else "is best of what is known" if unknown else "is best"
        how = f"reckoned from its step time and the AL of {length:.2f} stated"
        if drawn is not None:
            values["drawn"] = had = drawn.get((best.arm, concurrency))
            how = f"measured with the AL of {length:.2f} stated" + (f" ({had:.2f} drawn)" if had else "")
        text = (
            f"{best.arm} {verdict} at {load}: {times(gain)} {how}; it pays from an AL of "
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
        reasons = "; ".join(filter(None, dict.fromkeys(unknown.values())))
        text = f"whether a draft pays at {load} is not known: no figures stand of {listed(list(unknown))}"
        text += f" ({reasons})." if reasons else "."
    return document.Answer(
        id=f"forecast/{concurrency}",
        text=f"With the acceptance stated, {text}",
        arm=best.arm if best else "",
        values=values,
        good=True if best else None if unknown else False,
    )

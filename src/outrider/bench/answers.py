"""The sentences at the top of a report: what a platform engineer needs to decide, in plain words, each with its figures.

Every number in a sentence is in its `values`, unrounded, so that a test can compare it with the cells. Ids are
``kind/arm/prompt-set``. Kinds: recommendation, no-baseline, speedup, stops-paying, rival, tail, degrades, target, cost, caveat.
"""

from __future__ import annotations

from outrider.bench.caveats import caveats, no_baseline
from outrider.bench.crossing_answers import rival, stops
from outrider.bench.document import (
    BASELINE,
    Acceptance,
    Answer,
    Cost,
    LatencyDifference,
    RunDocument,
)
from outrider.bench.evidence import decides, pointing, sure_difference, surely
from outrider.bench.figures import says_too_much
from outrider.bench.recommend import recommendations
from outrider.bench.steps import pooled_acceptance
from outrider.bench.words import (
    NO_INTERVAL,
    arms,
    at_once,
    difference,
    listed,
    ratios_at,
    sets,
    speedups,
    tails,
    times,
    with_interval,
)

TARGET = 2.5  # the speed-up this project set out to reach; a mark on the scale, not a verdict
_DEGRADED = 0.6  # AL - 1 below this share of the best set's: the draft does not know this traffic


def answers(document: RunDocument) -> list[Answer]:
    """All answers of a document whose derived parts are filled, the most useful first."""
    each = [(arm, prompts) for arm in arms(document) for prompts in sets(document)]
    found: list[Answer | None] = [*recommendations(document), *no_baseline(document)]
    found += [_speedup(document, arm, prompts) for arm, prompts in each]
    found += [stops(document, one) for one in document.crossovers if one.against == BASELINE]
    found += [rival(document, one) for one in document.crossovers if one.against != BASELINE]
    found += [_tail(document, arm, prompts) for arm, prompts in each]
    found += [_degrades(document, arm) for arm in arms(document)]
    found += [_target(document, arm, prompts) for arm, prompts in each]
    found += [_cost(document, prompts) for prompts in sets(document)]
    found += caveats(document)
    return [one for one in found if one is not None]


def _speedup(document: RunDocument, arm: str, prompt_set: str) -> Answer | None:
    """The speed-up per batch with its interval."""
    found = speedups(document, arm, prompt_set)
    if not found:
        return None
    parts = [f"{with_interval(one.ratio, one.steady)} at {at_once(one.concurrency)}" for one in found]
    bounds = " (95 % intervals)" if any(one.ratio.low is not None for one in found) else ""
    values: dict[str, float | None] = {}
    for one in found:
        values |= {
            f"ratio@{one.concurrency}": one.ratio.value,
            f"low@{one.concurrency}": one.ratio.low,
            f"high@{one.concurrency}": one.ratio.high,
        }
    return Answer(
        id=f"speedup/{arm}/{prompt_set}",
        text=f"{arm} on {prompt_set}, output tok/s against no draft{bounds}: {listed(parts)}.",
        arm=arm,
        prompt_set=prompt_set,
        values=values,
        good=surely(found),
        leans=pointing(document, found),
    )


def _tail(document: RunDocument, arm: str, prompt_set: str) -> Answer | None:
    """The p99 difference under rejection: what a reader sees when drafts are thrown away."""
    absolute = document.labels.absolute_times
    parts, values, shown = [], {}, []
    every = [one for one in document.latency_differences if (one.arm, one.prompt_set) == (arm, prompt_set)]
    bare = all(one.difference_ms.low is None for one in every)
    for kind, name in (("step_gap_ms", "step gap"), ("e2e_ms", "E2E")):
        by_percent = [
            (percent, tails(document, arm, prompt_set, f"{kind}.p{percent}")) for percent in (99, 95)
        ]
        percent, found = next(((p, rows) for p, rows in by_percent if rows), (0, []))
        if not found:
            continue
        told = {
            one.concurrency: one
            for one in (
                max(found, key=_share),
                min(found, key=_share),
                max(found, key=lambda one: one.concurrency),
            )
        }
        said = [f"{difference(told[at], absolute, known=bare)} at {at_once(at)}" for at in sorted(told)]
        parts.append(f"{name} p{percent} {listed(said)}")
        shown += found
        for one in found:
            values[f"{kind}.p{percent}@{one.concurrency}"] = one.difference_ms.value
    if not parts:
        return None
    rejected = _rejected(document, arm, prompt_set)
    head = f"Tail of {arm} on {prompt_set} against no draft"
    longer = [one for one in shown if one.difference_ms.value > 0]
    worse = any(sure_difference(document, one) for one in longer)
    better = not longer and all(sure_difference(document, one) for one in shown)
    parts += [NO_INTERVAL] if bare else []
    if rejected is not None:
        values["rejected"] = rejected
        head += f", {rejected:.0%} of its draft tokens rejected over all loads"
    return Answer(
        id=f"tail/{arm}/{prompt_set}",
        text=f"{head}: {'; '.join(parts)}.",
        arm=arm,
        prompt_set=prompt_set,
        values=values,
        good=False if worse else True if better else None,
        leans=True if not longer else False if len(longer) == len(shown) else None,
    )


def _share(one: LatencyDifference) -> float:
    return one.difference_ms.value / max(one.baseline_ms, 1e-9)


def _cells(document: RunDocument, arm: str, prompt_set: str) -> list[Acceptance]:
    return [
        cell.pooled.acceptance
        for cell in document.cells
        if (cell.arm, cell.prompt_set, cell.state) == (arm, prompt_set, "ok") and cell.pooled
    ]


def _natural(document: RunDocument, arm: str, prompt_set: str) -> Acceptance | None:
    """Of answers to their natural end, where measured: past it, a forced text repeats itself and drafts too well."""
    rows = [
        row for row in document.natural_end if (row.arm, row.prompt_set, row.state) == (arm, prompt_set, "ok")
    ]
    return rows[0].acceptance if rows else None


def _earned(drafts: Acceptance) -> tuple[float, str] | None:
    """Tokens that a step brought and what they are called: AL, or tokens per step where many steps have no draft."""
    if drafts.length is None:
        return None
    if drafts.tokens_per_step and says_too_much(drafts):
        return drafts.tokens_per_step, "tokens per step"
    return drafts.length, "AL"


def _rejected(document: RunDocument, arm: str, prompt_set: str) -> float | None:
    rate = pooled_acceptance(_cells(document, arm, prompt_set)).rate
    return None if rate is None else 1 - rate


def _degrades(document: RunDocument, arm: str) -> Answer | None:
    """The prompt sets on which a draft is worth less: AL - 1 much lower than on its best set, or slower than no draft."""
    lengths: dict[str, float] = {}
    called: dict[str, str] = {}
    for prompts in sets(document):
        natural = _natural(document, arm, prompts)
        earned = _earned(natural) if natural else None
        earned = earned or _earned(pooled_acceptance(_cells(document, arm, prompts)))
        if earned is not None:
            lengths[prompts], called[prompts] = earned
    slow = {
        prompts: [one for one in speedups(document, arm, prompts) if one.ratio.value < 1]
        for prompts in sets(document)
    }
    if not lengths and not any(speedups(document, arm, prompts) for prompts in sets(document)):
        return None
    best = max(lengths, key=lambda name: lengths[name], default="")
    parts, lost = [], []
    values = {f"{called[name]} {name}": length for name, length in lengths.items()}
    for prompts in sets(document):
        why = []
        if prompts in lengths and lengths[prompts] - 1 < _DEGRADED * (lengths[best] - 1):
            why.append(f"{called[prompts]} {lengths[prompts]:.2f} against {lengths[best]:.2f} on {best}")
        if slow[prompts]:
            loads = ratios_at([(one.concurrency, one.ratio.value) for one in slow[prompts]])
            sure = [one for one in slow[prompts] if decides(one.ratio, one.steady)]
            lost += sure
            why.append(f"{'' if sure else 'perhaps '}slower than no draft at {loads}")
            values |= {f"ratio {prompts}@{one.concurrency}": one.ratio.value for one in slow[prompts]}
        if why:
            parts.append(f"{prompts} ({'; '.join(why)})")
    if parts:
        text = f"{arm} {'costs' if lost else 'is worth less'} on {listed(parts)}."
    elif len(lengths) > 1:
        each = [f"{called[name]} {length:.2f} on {name}" for name, length in lengths.items()]
        text = f"{arm} is worth about as much on each prompt set measured: {listed(each)}."
    else:
        return None
    every = [one for prompts in sets(document) for one in speedups(document, arm, prompts)]
    good = False if lost else None if parts else surely(every)
    return Answer(
        id=f"degrades/{arm}",
        text=text,
        arm=arm,
        values=dict(values),
        good=good,
        leans=pointing(document, every),
    )


def _target(document: RunDocument, arm: str, prompt_set: str) -> Answer | None:
    """Where an arm passes 2.5×, and what is left at the largest load, with the tail there."""
    found = speedups(document, arm, prompt_set)
    if not found:
        return None
    passing = [one for one in found if one.ratio.value >= TARGET]
    values: dict[str, float | None] = {f"ratio@{one.concurrency}": one.ratio.value for one in found}
    last = found[-1]
    if passing:
        loads = ratios_at([(one.concurrency, one.ratio.value) for one in passing])
        text = f"{arm} on {prompt_set} passes {TARGET}× at {loads}"
    else:
        best = max(found, key=lambda one: one.ratio.value)
        text = (
            f"{arm} on {prompt_set} passes {TARGET}× at no load measured: {times(best.ratio.value)} "
            f"at most, at {at_once(best.concurrency)}"
        )
    if last not in passing and last is not max(found, key=lambda one: one.ratio.value):
        text += f"; {times(last.ratio.value)} at the largest load, {at_once(last.concurrency)}"
    ending = [
        one for one in tails(document, arm, prompt_set, "e2e_ms.p99") if one.concurrency == last.concurrency
    ]
    if ending:
        text += f"; E2E p99 at {at_once(last.concurrency)} {difference(ending[0], document.labels.absolute_times)}"
        values["e2e_ms.p99"] = ending[0].difference_ms.value
    return Answer(
        id=f"target/{arm}/{prompt_set}",
        text=f"{text}.",
        arm=arm,
        prompt_set=prompt_set,
        values=values,
        good=True if any(decides(one.ratio, one.steady, TARGET) for one in passing) else None,
        leans=pointing(document, found),
    )


def _cost(document: RunDocument, prompt_set: str) -> Answer | None:
    """What a million output tokens cost, against commercial models on the same mix; it leans to the cheapest, draft or none."""
    costs = [one for one in document.costs if one.prompt_set == prompt_set]
    own = [one for one in costs if not one.commercial]
    if not own:
        return None
    cheapest: dict[str, Cost] = {}
    for one in own:
        if (
            one.name not in cheapest
            or one.usd_per_million_output_tokens < cheapest[one.name].usd_per_million_output_tokens
        ):
            cheapest[one.name] = one
    ranked = sorted(cheapest.values(), key=lambda one: one.usd_per_million_output_tokens)
    parts = []
    for one in ranked:
        who = "no draft" if one.name == BASELINE else one.name
        slo = "" if one.within_slo_ratio is None else f", {one.within_slo_ratio:.0%} within the objective"
        parts.append(f"{_usd(one)} with {who} (at {one.concurrency} at once{slo})")
    asked = [f"{one.name} asks {_usd(one)}" for one in costs if one.commercial]
    text = f"A million output tokens on {prompt_set} cost {listed(parts)}"
    text += f"; {listed(asked)} for the same mix of input and output" if asked else ""
    values: dict[str, float | None] = {one.name: one.usd_per_million_output_tokens for one in ranked}
    values |= {one.name: one.usd_per_million_output_tokens for one in costs if one.commercial}
    return Answer(
        id=f"cost/{prompt_set}",
        text=f"{text}.",
        prompt_set=prompt_set,
        values=values,
        leans=ranked[0].name != BASELINE,
    )


def _usd(one: Cost) -> str:
    return f"{one.usd_per_million_output_tokens:.2f} USD"

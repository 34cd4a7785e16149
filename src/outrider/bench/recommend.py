"""For which traffic and load to switch the draft on: one sentence for the run and one for each prompt set.

The rule: at a concurrency, the arm with the largest speed-up among those whose 95 % interval lies above 1; where none does, the
draft stays off. Fewer than three trials make no usable interval: each of them must reach 1.05 instead, and the sentence says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from outrider.bench.document import Answer, Interval, RunDocument, Speedup
from outrider.bench.words import arms, at_once, difference, listed, proven, sets, speedups, tails, times

EACH_TRIAL_AT_LEAST = 1.05
_T_OF_TWO = 12.7062  # Student t, 97.5 %, one degree of freedom


@dataclass(frozen=True, slots=True)
class Choice:
    """At one concurrency: the arm to run, or None for no draft."""

    concurrency: int
    best: Speedup | None


def pays(ratio: Interval) -> bool:
    """Whether a speed-up is surely above 1: its interval lies above 1 or, of one or two trials, each reached 1.05."""
    if ratio.low is not None and (ratio.low > 1 or ratio.n > 2):
        return ratio.low > 1
    if ratio.low is None:
        return ratio.value >= EACH_TRIAL_AT_LEAST
    # The two trials lie half an interval apart, without Student's t: the smaller one follows.
    smaller: float = ratio.value * (ratio.low / ratio.value) ** (1 / _T_OF_TWO)
    return smaller >= EACH_TRIAL_AT_LEAST


def choices(document: RunDocument, prompt_set: str) -> list[Choice]:
    """The best arm at each concurrency that has a speed-up at all."""
    found = [one for arm in arms(document) for one in speedups(document, arm, prompt_set)]
    return [
        Choice(
            concurrency,
            max(
                (one for one in found if one.concurrency == concurrency and pays(one.ratio)),
                key=lambda one: one.ratio.value,
                default=None,
            ),
        )
        for concurrency in sorted({one.concurrency for one in found})
    ]


def recommendations(document: RunDocument) -> list[Answer]:
    """The overall sentence first, then one a prompt set; none where no speed-up is known."""
    by_set = {name: found for name in sets(document) if (found := choices(document, name))}
    if not by_set:
        return []
    return [_overall(document, by_set), *(_of_set(document, name, found) for name, found in by_set.items())]


def _assumed(document: RunDocument) -> str:
    return "With the acceptance assumed here: " if document.labels.acceptance == "synthetic" else ""


def _few(found: list[Choice]) -> str:
    fewest = min((choice.best.ratio.n for choice in found if choice.best), default=3)
    return "" if fewest > 2 else f" Only {fewest} trial{'s' if fewest > 1 else ''}: no usable intervals."


def _overall(document: RunDocument, by_set: dict[str, list[Choice]]) -> Answer:
    on, off, values = [], [], {}
    for name, found in by_set.items():
        paying = [choice for choice in found if choice.best]
        values[f"up_to {name}"] = float(max((choice.concurrency for choice in paying), default=0))
        if not paying:
            off.append(name)
            continue
        used = listed(list(dict.fromkeys(choice.best.arm for choice in paying if choice.best)))
        if len(paying) == len(found):
            load = f"at every load measured (up to {at_once(found[-1].concurrency)})"
        else:
            load = f"at {_load(found, [choice.concurrency for choice in paying])}"
        on.append(f"{name} {load} with {used}")
    text = f"Switch the draft on for {'; for '.join(on)}." if on else ""
    if off:
        names = "all traffic measured" if not on else listed(off)
        text = f"{text} Leave it off for {names}: no arm was surely quicker than no draft there.".strip()
    text = f"{_assumed(document)}{text}{_few([choice for found in by_set.values() for choice in found])}"
    return Answer(id="recommendation", text=text, values=values, good=bool(on))


def _load(found: list[Choice], chosen: list[int]) -> str:
    """``1 to 32 at once``, or several stretches: neighbours on the grid are one stretch."""
    grid = [choice.concurrency for choice in found]
    stretches: list[list[int]] = []
    for place, concurrency in enumerate(grid):
        if concurrency not in chosen:
            continue
        if stretches and place and stretches[-1][-1] == grid[place - 1]:
            stretches[-1].append(concurrency)
        else:
            stretches.append([concurrency])
    words = [f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in stretches]
    return f"{listed(words)} at once"


def _of_set(document: RunDocument, prompt_set: str, found: list[Choice]) -> Answer:
    parts, values = [], {}
    for arm, group in groupby(found, key=lambda choice: choice.best.arm if choice.best else ""):
        stretch = list(group)
        load = _load(found, [choice.concurrency for choice in stretch])
        if not arm:
            parts.append(f"no draft at {load}")
            continue
        gains = [choice.best for choice in stretch if choice.best]
        for one in gains:
            values[f"{arm}@{one.concurrency}"] = one.ratio.value
        said = times(gains[0].ratio.value)
        if len(gains) > 1:
            said = f"{said} falling to {times(gains[-1].ratio.value)}" if _falls(gains) else _span(gains)
        parts.append(f"{arm} at {load} ({said}{_tail(document, gains)})")
    if not any(choice.best for choice in found):
        best = max(
            (one for arm in arms(document) for one in speedups(document, arm, prompt_set)),
            key=lambda one: one.ratio.value,
        )
        values[f"{best.arm}@{best.concurrency}"] = best.ratio.value
        parts = [
            f"leave the draft off; the best was {best.arm} with {times(best.ratio.value)} at {at_once(best.concurrency)}"
        ]
    return Answer(
        id=f"recommendation/{prompt_set}",
        text=f"{_assumed(document)}For {prompt_set}: {', '.join(parts)}.{_few(found)}",
        prompt_set=prompt_set,
        values=values,
        good=any(choice.best for choice in found),
    )


def _falls(gains: list[Speedup]) -> bool:
    ratios = [one.ratio.value for one in gains]
    return ratios == sorted(ratios, reverse=True)


def _span(gains: list[Speedup]) -> str:
    ratios = [one.ratio.value for one in gains]
    return f"{times(min(ratios))} to {times(max(ratios))}"


def _tail(document: RunDocument, gains: list[Speedup]) -> str:
    """A longer end-to-end tail goes with the advice: the worst that is no noise."""
    worse = [
        one
        for gain in gains
        for one in tails(document, gain.arm, gain.prompt_set, "e2e_ms.p99")
        if one.concurrency == gain.concurrency
        and one.difference_ms.value > 0
        and proven(one.difference_ms, 0.0)
    ]
    if not worse:
        return ""
    worst = max(worse, key=lambda one: one.difference_ms.value / max(one.baseline_ms, 1e-9))
    words = difference(worst, document.labels.absolute_times)
    return f"; but at {at_once(worst.concurrency)} E2E p99 is {words}"

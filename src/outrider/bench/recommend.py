"""For which traffic and load to switch the draft on: one sentence for the run and one for each prompt set.

The rule: at a concurrency, the arm with the largest speed-up among those whose 95 % interval lies above 1, of three trials or
more and a steady cell; where none has one, the draft stays off. Fewer trials or a cell that is not steady decide nothing: the
sentence says "Undecided" and which arm the trials point to. Where no arm surely pays and some arm has no speed-up, because a
cell failed or never ran, nobody knows: "Not known", and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from outrider.bench.document import BASELINE, Answer, RunDocument, Speedup
from outrider.bench.evidence import (
    EACH_TRIAL_AT_LEAST,
    ENOUGH_TRIALS,
    decides,
    explained,
    leans,
    pays,
    proven,
)
from outrider.bench.steps import reckoned
from outrider.bench.words import STATES, arms, at_once, difference, listed, sets, speedups, tails, times


@dataclass(frozen=True, slots=True)
class Choice:
    """At one concurrency: the arm to run, or None for no draft. Not `decided`: only what its few `trials` point to.

    unknown: where no arm surely pays, why some arm has no speed-up, such as ``eagle3-k3 failed``; empty: all have one.
    """

    concurrency: int
    best: Speedup | None
    decided: bool
    trials: int
    unknown: str = ""


def choices(document: RunDocument, prompt_set: str) -> list[Choice]:
    """The best arm at each concurrency of the run: a surer arm goes before a larger ratio."""
    found = [one for arm in arms(document) for one in speedups(document, arm, prompt_set)]
    loads = {one.concurrency for one in found}
    loads |= {cell.concurrency for cell in document.cells if cell.prompt_set == prompt_set}
    return [
        _choice(document, prompt_set, concurrency, [one for one in found if one.concurrency == concurrency])
        for concurrency in sorted(loads)
    ]


def _choice(document: RunDocument, prompt_set: str, concurrency: int, here: list[Speedup]) -> Choice:
    trials = min((one.ratio.n for one in here), default=0)
    pointed = [one for one in here if leans(one.ratio) and explained(document, one)]
    best = max(
        pointed,
        key=lambda one: (_settled(one), _sure(one), one.steady, one.ratio.value),
        default=None,
    )
    if best is None and (unknown := _unknown(document, prompt_set, concurrency, here)):
        return Choice(concurrency, None, decided=False, trials=trials, unknown=unknown)
    decided = trials >= ENOUGH_TRIALS if best is None else _settled(best)
    return Choice(concurrency, best, decided, trials)


def _unknown(document: RunDocument, prompt_set: str, concurrency: int, here: list[Speedup]) -> str:
    """Why arms of the run have no speed-up at this load: their own cells, or the baseline's, do not stand."""
    without = [name for name in arms(document) if name not in {one.arm for one in here}]
    states: dict[str, list[str]] = {}
    for name in [BASELINE, *without] if without else []:
        cell = document.cell(name, prompt_set, concurrency)
        state = cell.state if cell else "missing"
        if state != "ok":
            states.setdefault(STATES[state], []).append(name)
    if without and not states:
        states["shared no trial with the baseline"] = without
    return listed([f"{listed(names)} {state}" for state, names in states.items()])


def _settled(one: Speedup) -> bool:
    return pays(one.ratio) and decides(one.ratio, one.steady)


def _sure(one: Speedup) -> bool:
    """Of two trials an interval is narrow by chance: it makes no arm surer than another."""
    return pays(one.ratio) and one.ratio.n >= ENOUGH_TRIALS


def recommendations(document: RunDocument) -> list[Answer]:
    """The overall sentence first, then one a prompt set; none where no speed-up is known at all."""
    by_set = {name: found for name in sets(document) if (found := choices(document, name))}
    if not document.speedups or not by_set:
        return []
    return [_overall(document, by_set), *(_of_set(document, name, found) for name, found in by_set.items())]


def _assumed(document: RunDocument) -> str:
    return "With the acceptance assumed here: " if document.labels.acceptance == "synthetic" else ""


def _open(found: list[Choice]) -> list[Choice]:
    """Where something was measured and decides nothing."""
    return [choice for choice in found if not choice.decided and not choice.unknown]


def _why(open_: list[Choice]) -> str:
    """Why nothing is decided at these loads."""
    fewest = min(choice.trials for choice in open_)
    few = f"{fewest} trial{'s are' if fewest != 1 else ' is'} too few (run at least {ENOUGH_TRIALS})"
    if fewest < 1:
        few = "nothing of it was timed"
    reasons = [few] if fewest < ENOUGH_TRIALS else []
    if any(choice.best and not choice.best.steady for choice in open_):
        reasons.append("not every cell is steady")
    return listed(reasons)


def _not_known(found: list[Choice]) -> str:
    """``at 16 and 64 at once (eagle3-k3 failed)``, a part for each reason; empty where all is known."""
    reasons = dict.fromkeys(choice.unknown for choice in found if choice.unknown)
    parts = [(reason, [choice for choice in found if choice.unknown == reason]) for reason in reasons]
    return listed([f"at {_load(found, mine)} ({reason})" for reason, mine in parts])


def _good(found: list[Choice]) -> bool | None:
    if not all(choice.decided for choice in found):
        return None
    return any(choice.best for choice in found)


def _leans(found: list[Choice]) -> bool | None:
    """Which way the loads point where not all is decided: to some draft at each of them, or to none at any."""
    ways = {choice.best is not None for choice in found if not choice.unknown}
    return ways.pop() if len(ways) == 1 else None


def _overall(document: RunDocument, by_set: dict[str, list[Choice]]) -> Answer:
    on, off, points, unknown, values = [], [], [], [], {}
    for name, found in by_set.items():
        paying = [choice for choice in found if choice.best and choice.decided]
        values[f"up_to {name}"] = float(max((choice.concurrency for choice in paying), default=0))
        if paying:
            on.append(f"{name} {_where(found, paying)}")
        if where := _not_known(found):
            unknown.append(f"{name} {where}")
        open_ = _open(found)
        if leaning := [choice for choice in open_ if choice.best]:
            points.append(f"{_drafts(leaning)} for {name} at {_load(found, leaning)}")
        elif open_:
            points.append(f"no draft for {name}")
        elif not paying and (left := [choice for choice in found if choice.decided]):
            off.append(name if len(left) == len(found) else f"{name} at {_load(found, left)}")
    every = [choice for found in by_set.values() for choice in found]
    open_ = _open(every)
    parts = [f"Switch the draft on for {'; for '.join(on)}."] if on else []
    if off:
        names = listed(off) if on or points or unknown else "all traffic measured"
        parts.append(f"Leave it off for {names}: no arm was surely quicker than no draft there.")
    if open_:
        rest = " at the other loads" if len(open_) < len(every) and not off and not unknown else ""
        parts.append(f"Undecided{rest}: {_why(open_)}. What there is points to {'; to '.join(points)}.")
    if unknown:
        parts.append(f"Not known for {'; for '.join(unknown)}.")
    return Answer(
        id="recommendation",
        text=f"{_assumed(document)}{' '.join(parts)}",
        values=values,
        good=_good(every),
        leans=_leans(every),
    )


def _where(found: list[Choice], paying: list[Choice]) -> str:
    if len(paying) == len(found):
        return f"at every load measured (up to {at_once(found[-1].concurrency)}) with {_drafts(paying)}"
    return f"at {_load(found, paying)} with {_drafts(paying)}"


def _drafts(chosen: list[Choice]) -> str:
    return listed(list(dict.fromkeys(choice.best.arm for choice in chosen if choice.best)))


def _load(found: list[Choice], chosen: list[Choice]) -> str:
    """``1 to 32 at once``, or several stretches: neighbours on the grid are one stretch."""
    grid = [choice.concurrency for choice in found]
    wanted = {choice.concurrency for choice in chosen}
    stretches: list[list[int]] = []
    for place, concurrency in enumerate(grid):
        if concurrency not in wanted:
            continue
        if stretches and place and stretches[-1][-1] == grid[place - 1]:
            stretches[-1].append(concurrency)
        else:
            stretches.append([concurrency])
    words = [f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in stretches]
    return f"{listed(words)} at once"


def _of_set(document: RunDocument, prompt_set: str, found: list[Choice]) -> Answer:
    said: dict[bool, list[str]] = {True: [], False: []}
    values: dict[str, float | None] = {}
    known = [choice for choice in found if not choice.unknown]
    for (arm, decided), group in groupby(
        known, key=lambda choice: (choice.best.arm if choice.best else "", choice.decided)
    ):
        stretch = list(group)
        load = _load(found, stretch)
        gains = [choice.best for choice in stretch if choice.best]
        values |= {f"{one.arm}@{one.concurrency}": one.ratio.value for one in gains}
        said[decided].append(
            f"{arm} at {load} ({_gain(gains)}{_tail(document, gains)})" if arm else f"no draft at {load}"
        )
    parts = [", ".join(said[True])] if said[True] else []
    if known and not any(choice.best for choice in found):
        best = max(
            (one for arm in arms(document) for one in speedups(document, arm, prompt_set)),
            key=lambda one: one.ratio.value,
        )
        values[f"{best.arm}@{best.concurrency}"] = best.ratio.value
        most = f"the best was {best.arm} with {times(best.ratio.value)} at {at_once(best.concurrency)}{_but(document, best)}"
        where = f" at {_load(found, known)}" if len(known) < len(found) else ""
        parts = [f"leave the draft off{where}; {most}"] if said[True] and not said[False] else parts
        said[False] = [f"no draft{where}; {most}"] if said[False] else []
    if said[False]:
        parts.append(f"undecided, for {_why(_open(found))}; what there is points to {', '.join(said[False])}")
    if unknown := _not_known(found):
        parts.append(f"not known {unknown}")
    return Answer(
        id=f"recommendation/{prompt_set}",
        text=f"{_assumed(document)}For {prompt_set}: {'; '.join(parts)}.",
        prompt_set=prompt_set,
        values=values,
        good=_good(found),
        leans=_leans(found),
    )


def _but(document: RunDocument, best: Speedup) -> str:
    """Why a ratio above 1 is not taken for a gain."""
    expected = reckoned(document, best.arm, best.prompt_set, best.concurrency)
    if best.ratio.value <= 1:
        return ""
    if not explained(document, best) and expected is not None:
        return f", but its steps explain {times(expected)} only: the rest is noise"
    if best.ratio.n >= ENOUGH_TRIALS:
        return ", whose interval holds 1"
    least = f"{EACH_TRIAL_AT_LEAST:.2f}×"
    return f", below the {least} asked of {'it' if best.ratio.n < 2 else 'each trial'} where there are so few"


def _gain(gains: list[Speedup]) -> str:
    said = times(gains[0].ratio.value)
    if len(gains) > 1:
        said = f"{said} falling to {times(gains[-1].ratio.value)}" if _falls(gains) else _span(gains)
    return said


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

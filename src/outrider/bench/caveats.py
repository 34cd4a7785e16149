"""What a reader must know before believing the answers: each a sentence of its own."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.bench.document import BASELINE, Answer, Cell, RunDocument
from outrider.bench.quantiles import P99_N
from outrider.bench.steps import reckoned
from outrider.bench.words import at_once, listed, place, times, trials

_NAMED = 4  # cells named before "and N more"
DRIFT = 0.15  # the baseline's largest trial over its smallest, less 1
UNEXPLAINED = 0.2  # a speed-up this much above what its steps explain


def no_baseline(document: RunDocument) -> list[Answer]:
    """Where no speed-up can be given, and why: the baseline's cell does not stand though an arm's does, or none stands at all."""
    base = [cell for cell in document.cells if cell.arm == BASELINE]
    if not base:
        text = "No speed-up can be given: the run has no baseline arm. What was measured of the other arms stands."
        return [Answer(id="no-baseline", text=text, good=False)]
    if all(cell.state == "missing" for cell in document.cells if cell.arm != BASELINE):
        return [_not_yet(document)]
    lost = [cell for cell in base if cell.state not in ("ok", "missing")]
    if not lost:
        return []
    reasons = listed(
        list(dict.fromkeys(f"{cell.state}: {cell.reason or 'no reason was given'}" for cell in lost))
    )
    stand = " Other cells stand." if any(cell.state == "ok" for cell in document.cells) else ""
    if len(lost) == len(base):
        text = f"No speed-up can be given: the baseline did not stand in any cell ({reasons}).{stand}"
    else:
        where = _some(f"{cell.prompt_set} at {at_once(cell.concurrency)}" for cell in lost)
        text = f"No speed-up can be given for {where}: the baseline did not stand ({reasons}).{stand}"
    return [Answer(id="no-baseline", text=text, values={"cells": float(len(lost))}, good=False)]


def _not_yet(document: RunDocument) -> Answer:
    """No arm but the baseline has run: an unfinished run has no answer, which is nobody's fault."""
    drafts = [arm.name for arm in document.arms if arm.name != BASELINE]
    left = sum(cell.state == "missing" for cell in document.cells)
    if not drafts:
        text = "Nothing can be compared: the run has no arm with a draft."
    else:
        text = (
            f"Nothing can be compared yet: no cell of {listed(drafts)} was run, {left} of {len(document.cells)} cells are "
            "left. Run the same command again to go on."
        )
    return Answer(id="no-baseline", text=text, values={"cells": float(left)})


def caveats(document: RunDocument) -> list[Answer]:
    """All that apply, the gravest first."""
    return [*_states(document), *_labels(document), *_noise(document), *_texts(document), *_flags(document)]


def _caveat(name: str, text: str, **values: float) -> Answer:
    return Answer(id=f"caveat/{name}", text=text, values=dict(values), good=False)


def _name(cell: Cell) -> str:
    return f"{cell.arm} on {cell.prompt_set} at {at_once(cell.concurrency)}"


def _some(words: Iterable[str]) -> str:
    named = list(words)
    more = len(named) - _NAMED
    return listed(named) if more <= 0 else f"{', '.join(named[:_NAMED])} and {more} more"


def _states(document: RunDocument) -> list[Answer]:
    found = []
    for state, what in (
        ("invalid", "must not be believed and take part in nothing"),
        ("failed", "failed"),
        ("missing", "were not run yet"),
    ):
        cells = [cell for cell in document.cells if cell.state == state]
        if cells:
            names = _some(
                f"{_name(cell)}{f' ({cell.reason})' if cell.reason and state != 'missing' else ''}"
                for cell in cells
            )
            text = f"{len(cells)} of {len(document.cells)} cells {what}: {names}."
            found.append(_caveat(state, text, cells=float(len(cells))))
    left = [row for row in document.natural_end if row.state == "missing"]
    if left:
        names = _some(f"{row.arm} on {row.prompt_set}" for row in left)
        text = (
            f"{len(left)} of {len(document.natural_end)} runs to the natural end were not run yet: {names}."
        )
        found.append(_caveat("missing-natural-end", text, rows=float(len(left))))
    return found


def _labels(document: RunDocument) -> list[Answer]:
    labels, found = document.labels, []
    if labels.weights == "dummy":
        found.append(_caveat("dummy-weights", "The weights are dummies: times are real, texts mean nothing."))
    if labels.acceptance == "synthetic":
        source = f" (from {labels.acceptance_source})" if labels.acceptance_source else ""
        found.append(
            _caveat(
                "synthetic-acceptance",
                f"Acceptance was set, not measured{source}: every speed-up holds only if your traffic accepts as much.",
            )
        )
    if not labels.absolute_times:
        found.append(
            _caveat(
                "cpu", "Measured on a CPU: ratios can be read, milliseconds and tok/s are not to be quoted."
            )
        )
    if not labels.interleaved:
        found.append(
            _caveat(
                "not-interleaved",
                "The arms ran one after another, not in turns: drift of the machine is not ruled out.",
            )
        )
    return found


def _noise(document: RunDocument) -> list[Answer]:
    found = _drift(document)
    standing = [cell for cell in document.cells if cell.state == "ok" and cell.pooled]
    loose = [cell for cell in standing if cell.pooled and not cell.pooled.steady]
    if loose:
        text = (
            f"{len(loose)} of {len(standing)} cells are not steady, full load lasted too short in them and their throughput "
            "counts start and end as well: "
        )
        found.append(_caveat("not-steady", f"{text}{_some(map(_name, loose))}.", cells=float(len(loose))))
    small = [cell for cell in standing if cell.pooled and cell.pooled.e2e_ms.n < P99_N]
    if small:
        fewest = min(cell.pooled.e2e_ms.n for cell in small if cell.pooled)
        text = (
            f"n too small for the p99 of a request in {len(small)} of {len(standing)} cells "
            f"({fewest} requests at fewest, {P99_N} needed)."
        )
        found.append(_caveat("n-too-small", text, cells=float(len(small)), fewest=float(fewest)))
    return [*found, *_few_trials(document), *_unexplained(document)]


def _few_trials(document: RunDocument) -> list[Answer]:
    fewest = min((one.ratio.n for one in document.speedups), default=3)
    if not 0 < fewest < 3:
        return []
    what = "has no interval" if fewest < 2 else "has a very wide interval"
    text = f"Only {trials(fewest)} of some cells: a speed-up from them {what}; run at least 3."
    return [_caveat("few-trials", text, trials=float(fewest))]


def _drift(document: RunDocument) -> list[Answer]:
    """Where the baseline's own trials differ: a ratio to something that moves is no ratio."""
    spreads: dict[str, float] = {}
    for cell in document.cells:
        rates = [
            trial.figures.output_tok_s
            for trial in cell.trials
            if trial.figures and not trial.failed and trial.figures.output_tok_s
        ]
        if cell.arm == BASELINE and cell.state == "ok" and len(rates) > 1:
            spread = max(rates) / min(rates) - 1
            if spread > DRIFT:
                spreads[f"{cell.prompt_set} at {at_once(cell.concurrency)}"] = spread
    if not spreads:
        return []
    names = _some(f"{name} by {spread:.0%}" for name, spread in spreads.items())
    text = (
        f"The baseline's own trials differ by more than {DRIFT:.0%} in tok/s ({names}): something beside the draft moves these "
        "numbers. Look for other load on the machine, and run more trials."
    )
    return [_caveat("baseline-drift", text, cells=float(len(spreads)), largest=max(spreads.values()))]


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
        f"Larger than the draft can explain (tokens per step × T(b, 0) ÷ T(b, K)): {_some(names)}. The rest is noise, or step "
        "times that were not seen well."
    )
    return [_caveat("unexplained", text, **values)]


def _texts(document: RunDocument) -> list[Answer]:
    """One sentence for all arms: which greedy texts differ, why that happens, how to tell it from a bug."""
    parts: list[str] = []
    values: dict[str, float] = {}
    for row in document.natural_end:
        if row.state == "ok" and row.different:
            first = min(row.different, key=lambda one: one.at_character)
            parts.append(
                f"{row.arm} on {row.prompt_set} in {len(row.different)} of {row.compared_texts}, from {place(first)} on"
            )
            values |= {
                f"different {row.arm} {row.prompt_set}": float(len(row.different)),
                f"compared {row.arm} {row.prompt_set}": float(row.compared_texts),
            }
    if not parts:
        return []
    text = (
        f"Greedy texts are not the baseline's ({'; '.join(parts)}): in bf16 and fp16 a verify pass batches its sums otherwise "
        "than a plain step, as the engine's own batch of 1 and of 2 do without any draft, so near ties may fall the other "
        "way. To check, run with target.dtype: float32; texts that still differ there are a bug."
    )
    return [_caveat("texts", text, **values)]


def _flags(document: RunDocument) -> list[Answer]:
    """Rates that look wrong, positions that are broken."""
    found = []
    for arm in document.arms:
        said: list[str] = []
        for cell in document.cells:
            if cell.arm != arm.name or not cell.pooled:
                continue
            drafts = cell.pooled.acceptance
            said += drafts.flags
            said += [
                f"position {place} is broken"
                for place, note in enumerate(drafts.position_notes, 1)
                if note == "broken"
            ]
        if said:
            unique = list(dict.fromkeys(said))
            found.append(
                _caveat(
                    f"flags/{arm.name}",
                    f"Look at {arm.name} before you believe it: {_some(unique)}.",
                    flags=float(len(unique)),
                )
            )
    return found

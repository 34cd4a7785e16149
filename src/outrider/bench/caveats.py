"""What a reader must know before believing the answers: each a sentence of its own."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.bench.document import BASELINE, Answer, Cell, RunDocument
from outrider.bench.quantiles import P99_N
from outrider.bench.words import at_once, listed

_NAMED = 4  # cells named before "and N more"


def no_baseline(document: RunDocument) -> list[Answer]:
    """Where no speed-up can be given, and why: the baseline's cell does not stand though an arm's does, or none stands at all."""
    base = [cell for cell in document.cells if cell.arm == BASELINE]
    if not base:
        text = "No speed-up can be given: the run has no baseline arm. What was measured of the other arms stands."
        return [Answer(id="no-baseline", text=text, good=False)]
    lost = [cell for cell in base if cell.state != "ok"]
    if not lost:
        return []
    reasons = listed(
        list(dict.fromkeys(f"{cell.state}: {cell.reason or 'no reason was given'}" for cell in lost))
    )
    if len(lost) == len(base):
        text = f"No speed-up can be given: the baseline did not stand in any cell ({reasons}). Other cells stand."
    else:
        where = _some(f"{cell.prompt_set} at {at_once(cell.concurrency)}" for cell in lost)
        text = f"No speed-up can be given for {where}: the baseline did not stand ({reasons}). Other cells stand."
    return [Answer(id="no-baseline", text=text, values={"cells": float(len(lost))}, good=False)]


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
    found = []
    standing = [cell for cell in document.cells if cell.state == "ok" and cell.pooled]
    loose = [cell for cell in standing if cell.pooled and not cell.pooled.steady]
    if loose:
        text = f"{len(loose)} of {len(standing)} cells are not steady, their throughput holds ramps: "
        found.append(_caveat("not-steady", f"{text}{_some(map(_name, loose))}.", cells=float(len(loose))))
    small = [cell for cell in standing if cell.pooled and cell.pooled.e2e_ms.n < P99_N]
    if small:
        fewest = min(cell.pooled.e2e_ms.n for cell in small if cell.pooled)
        text = (
            f"n too small for the p99 of a request in {len(small)} of {len(standing)} cells "
            f"({fewest} requests at fewest, {P99_N} needed)."
        )
        found.append(_caveat("n-too-small", text, cells=float(len(small)), fewest=float(fewest)))
    trials = {one.ratio.n for one in document.speedups}
    if trials and min(trials) < 3:
        what = "has no interval" if min(trials) < 2 else "has a very wide interval"
        many = "s" if min(trials) > 1 else ""
        text = f"Only {min(trials)} trial{many} of some cells: a speed-up from them {what}; run at least 3."
        found.append(_caveat("few-trials", text, trials=float(min(trials))))
    return found


def _texts(document: RunDocument) -> list[Answer]:
    found = []
    for row in document.natural_end:
        if row.state == "ok" and row.different:
            first = min(row.different, key=lambda one: one.at_character)
            text = (
                f"{len(row.different)} of {row.compared_texts} greedy texts of {row.arm} on {row.prompt_set} "
                f"are not the baseline's, the earliest from character {first.at_character} on ({first.prompt_id})."
            )
            found.append(
                _caveat(
                    f"texts/{row.arm}/{row.prompt_set}",
                    text,
                    different=float(len(row.different)),
                    compared=float(row.compared_texts),
                    at_character=float(first.at_character),
                )
            )
    return found


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

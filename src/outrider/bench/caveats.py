"""What a reader must know before believing the answers: each a sentence of its own."""

from __future__ import annotations

from outrider.bench.document import BASELINE, Answer, RunDocument
from outrider.bench.noise import caveat, cell_words, first_few, noise
from outrider.bench.uneven import uneven
from outrider.bench.words import at_once, listed, place

_STATED = (
    "Acceptance was stated, not measured (its source: at the top): every speed-up holds only if your traffic accepts as "
    "much."
)


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
        where = first_few(f"{cell.prompt_set} at {at_once(cell.concurrency)}" for cell in lost)
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
    return [
        *_states(document),
        *_labels(document),
        *noise(document),
        *uneven(document),
        *_texts(document),
        *_flags(document),
    ]


def _states(document: RunDocument) -> list[Answer]:
    found = []
    for state, what in (
        ("invalid", "must not be believed and take part in nothing"),
        ("failed", "failed"),
        ("missing", "were not run yet"),
    ):
        cells = [cell for cell in document.cells if cell.state == state]
        if cells:
            names = first_few(
                f"{cell_words(cell)}{f' ({cell.reason})' if cell.reason and state != 'missing' else ''}"
                for cell in cells
            )
            text = f"{len(cells)} of {len(document.cells)} cells {what}: {names}."
            found.append(caveat(state, text, cells=float(len(cells))))
    left = [row for row in document.natural_end if row.state == "missing"]
    if left:
        names = first_few(f"{row.arm} on {row.prompt_set}" for row in left)
        text = (
            f"{len(left)} of {len(document.natural_end)} runs to the natural end were not run yet: {names}."
        )
        found.append(caveat("missing-natural-end", text, rows=float(len(left))))
    return found


def _labels(document: RunDocument) -> list[Answer]:
    labels, found = document.labels, []
    if labels.weights == "dummy":
        found.append(caveat("dummy-weights", "The weights are dummies: times are real, texts mean nothing."))
    if labels.acceptance == "synthetic":
        found.append(caveat("synthetic-acceptance", f"{_STATED} {_one_by_one(document)}".strip()))
    if not labels.absolute_times:
        found.append(
            caveat(
                "cpu", "Measured on a CPU: ratios can be read, milliseconds and tok/s are not to be quoted."
            )
        )
    if not labels.interleaved:
        found.append(
            caveat(
                "not-interleaved",
                "The arms ran one after another, not in turns: drift of the machine is not ruled out.",
            )
        )
    return found


def _one_by_one(document: RunDocument) -> str:
    """Several methods' acceptances come from several measurements: which draft is ahead may be theirs."""
    stated = document.forecast.stated if document.forecast else {}
    ran = {cell.arm for cell in document.cells if cell.state == "ok"}
    drafted = {arm.method for arm in document.arms if arm.method in stated and arm.name in ran}
    if len(drafted) < 2:
        return ""
    return (
        f"It was stated of {listed(sorted(drafted))} one by one: unless both are from the same traffic, which of the drafts is "
        "ahead is as much theirs as the drafts'. What a draft needs to pay (Step time and break-even) is measured."
    )


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
    return [caveat("texts", text, **values)]


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
                caveat(
                    f"flags/{arm.name}",
                    f"Look at {arm.name} before you believe it: {first_few(unique)}.",
                    flags=float(len(unique)),
                )
            )
    return found

"""Caveats about curves over the load that bend the wrong way: a longer step in an emptier batch, fewer tok/s at more load.

A fuller batch makes no step quicker, so the cell at the smaller load was slowed by something else, and ratios to it say so too.
"""

from __future__ import annotations

from itertools import groupby, pairwise

from outrider.bench.document import BASELINE, Answer, Cell, RunDocument
from outrider.bench.noise import caveat, first_few

UNEVEN = 0.05  # from which on it is no rounding: a step this much longer, tok/s this much fewer


def uneven(document: RunDocument) -> list[Answer]:
    """Where neighbouring loads of one arm and set contradict each other, or say where more load is worth nothing."""
    slow: dict[str, float] = {}
    fewer: dict[str, float] = {}
    standing = [cell for cell in document.cells if cell.state == "ok" and cell.pooled]
    standing.sort(key=lambda cell: (cell.arm != BASELINE, cell.arm, cell.prompt_set, cell.concurrency))
    for _, group in groupby(standing, key=lambda cell: (cell.arm, cell.prompt_set)):
        for less, more in pairwise(group):
            where = (
                f"{less.arm} on {less.prompt_set} at {less.concurrency} against {more.concurrency} at once"
            )
            steps, rates = _of(less, more, "step_ms"), _of(less, more, "output_tok_s")
            if steps and steps[0] > steps[1] * (1 + UNEVEN):
                slow[where] = steps[0] / steps[1] - 1
            if rates and rates[1] < rates[0] * (1 - UNEVEN):
                where = f"{more.arm} on {more.prompt_set} at {more.concurrency} against {less.concurrency} at once"
                fewer[where] = 1 - rates[1] / rates[0]
    found = []
    if slow:
        names = first_few(f"{where} by {share:.0%}" for where, share in slow.items())
        text = (
            f"A step takes longer though fewer requests run ({names}): something else slowed the smaller load's cell. A speed-up "
            "over a slow baseline is too large there, that of a slow arm too small; run more trials."
        )
        found.append(caveat("step-falls", text, **slow))
    if fewer:
        names = first_few(f"{where} by {share:.0%}" for where, share in fewer.items())
        text = f"More at once makes fewer tok/s ({names}): do not run this arm so full, whatever its speed-up there."
        found.append(caveat("fewer-tok-s", text, **fewer))
    return found


def _of(less: Cell, more: Cell, figure: str) -> tuple[float, float] | None:
    """The figure of both cells, None where one has none."""
    one, other = (getattr(cell.pooled, figure) for cell in (less, more))
    return (one, other) if one and other else None

"""The matrix: which cells there are and in which order they run.

Trials are interleaved, A B | B A | A B: what drifts over the run (heat, neighbours, caches) meets every arm alike. Where the
order puts one arm twice in a row, its server runs on. A block is what runs on one start of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class CellKey:
    """One run of one arm on one prompt set at one concurrency; `concurrency` 0 is the natural-end table."""

    arm: str
    prompt_set: str
    concurrency: int
    trial: int

    @property
    def id(self) -> str:
        """Name of its files, such as ``ngram-k3.humaneval.c4.t1``; a set's ``/`` turns into ``~``, which no set's name holds."""
        what = f"c{self.concurrency}" if self.concurrency else "natural"
        return f"{self.arm}.{self.prompt_set.replace('/', '~')}.{what}.t{self.trial}"


@dataclass(frozen=True, slots=True)
class Block:
    """One start of one arm's server and the cells that run on it."""

    arm: str
    cells: tuple[CellKey, ...]


def cells_of_trial(
    arm: str, prompt_sets: Sequence[str], concurrency: Sequence[int], trial: int, natural_end: bool
) -> list[CellKey]:
    """All cells of one arm in one trial. The natural-end table is measured once, in the first."""
    keys = [CellKey(arm, name, running, trial) for name in prompt_sets for running in concurrency]
    if natural_end and trial == 1:
        keys += [CellKey(arm, name, 0, trial) for name in prompt_sets]
    return keys


def blocks(
    arms: Sequence[str],
    prompt_sets: Sequence[str],
    concurrency: Sequence[int],
    trials: int,
    *,
    natural_end: bool = True,
    interleaved: bool = True,
) -> list[Block]:
    """The whole run in order: every second trial takes the arms backwards; or, not interleaved, arm by arm."""
    if interleaved:
        order = [
            (arm, trial)
            for trial in range(1, trials + 1)
            for arm in (arms if trial % 2 else list(reversed(arms)))
        ]
    else:
        order = [(arm, trial) for arm in arms for trial in range(1, trials + 1)]
    return [
        Block(
            arm,
            tuple(
                key
                for _, trial in group
                for key in cells_of_trial(arm, prompt_sets, concurrency, trial, natural_end)
            ),
        )
        for arm, group in groupby(order, key=lambda pair: pair[0])
    ]


def requests_for(concurrency: int, given: dict[int, int] | None = None) -> int:
    """Counted requests of one cell: what was asked for, else enough for a p99 over three trials from 8 at once up.

    Never fewer than 7 x concurrency: a steady window holds 5 x, between the first wave and the last. 368 values make a p99
    (measurement rule).
    """
    if given and concurrency in given:
        return given[concurrency]
    for_p99 = 123 if concurrency >= 8 else 16
    return max(7 * concurrency, for_p99)

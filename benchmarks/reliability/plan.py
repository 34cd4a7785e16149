"""What is sent, to whom and when: phases, arms, the order of cells and the arrivals. Pure; the same seed gives the same traffic.

A *cell* is one phase on one arm. Its first three quarters are open loop: requests come at random (Poisson), whatever became of
those before, as users do; a server that is too slow is seen in their waiting. Its last quarter is closed loop: a few streams,
each with a new request when the last has ended, which tells how many tokens a second the server can make.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GOVERNED, FIXED, PLAIN = "governed", "fixed", "plain"
ARMS = (GOVERNED, FIXED, PLAIN)
"""The governor's defaults; `policy: off`, so always the head; no draft at all."""

OPEN_SHARE = 0.75
HEAVY = 3


@dataclass(frozen=True, slots=True)
class Phase:
    """`code`: prompts that the head knows, else others. `load`: times the base load. `stale`: with the head that no longer fits.

    `restart`: every server is started anew before it.
    """

    name: str
    code: bool = True
    load: int = 1
    stale: bool = False
    restart: bool = False


PHASES = (
    Phase("code", restart=True),
    Phase("topic shift", code=False),
    Phase("code again"),
    Phase("load × 3", load=HEAVY),
    Phase("load back"),
    Phase("stale head", stale=True, restart=True),
    Phase("head replaced", restart=True),
)


@dataclass(frozen=True, slots=True)
class Block:
    """Phases of one life of the servers, of one round (from 0): what an interrupted run repeats. `phases` are indices."""

    round: int
    phases: tuple[int, ...]

    @property
    def id(self) -> str:
        """``r1-p1``: round and first phase, from 1."""
        return f"r{self.round + 1}-p{self.phases[0] + 1}"

    @property
    def stale(self) -> bool:
        """Whether its head is the stale one."""
        return PHASES[self.phases[0]].stale


def blocks(rounds: int, phases: int = len(PHASES)) -> list[Block]:
    """All blocks of the first so many phases in the order they are run."""
    starts = [place for place, phase in enumerate(PHASES[:phases]) if phase.restart]
    ends = [*starts[1:], phases]
    lives = [tuple(range(*one)) for one in zip(starts, ends, strict=True)]
    return [Block(number, life) for number in range(rounds) for life in lives]


def order(number: int, phase: int) -> tuple[str, ...]:
    """The arms of a phase in the order they are run: forwards and backwards in turn, so that over two rounds a machine that
    grows slower or quicker meanwhile does so to all of them alike."""
    return ARMS if (number + phase) % 2 == 0 else ARMS[::-1]


def cell_s(minutes: float, rounds: int, phases: int = len(PHASES)) -> float:
    """Seconds of traffic of a cell, where each arm has so many minutes of it in all."""
    return minutes * 60 / rounds / phases


def _draw(seed: int, *place: object) -> random.Random:
    return random.Random(f"{seed}/{'/'.join(map(str, place))}")  # noqa: S311  (traffic, not a secret)


def arrivals(seed: int, number: int, phase: int, rate_s: float, length_s: float) -> list[float]:
    """Moments of a cell's open-loop requests, seconds from its begin, at `rate_s` × the phase's load on average."""
    draw, mean_s = _draw(seed, "arrivals", number, phase), 1 / (rate_s * PHASES[phase].load)
    moments = itertools.accumulate(draw.expovariate(1 / mean_s) for _ in itertools.count())
    return list(itertools.takewhile(lambda at_s: at_s < length_s, moments))


def endless(
    prompts: Sequence[str], seed: int, number: int, phase: int, part: str
) -> Iterator[tuple[int, str]]:
    """A part's prompts with their indices: all of them in a random order, then all again in another."""
    draw = _draw(seed, part, number, phase)
    while True:
        for place in draw.sample(range(len(prompts)), len(prompts)):
            yield place, prompts[place]

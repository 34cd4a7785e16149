"""The order of a set's prompts, fixed by the set alone, and a split that stays where it is.

Every prefix of the order is spread evenly over the file and holds every category as soon as it is long enough. So a limit is a
prefix, a smaller limit is part of a larger one, and a cell of few requests sees the same mixture as a cell of many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from outrider.core.errors import MeasurementError
from outrider.measure.prompts import Prompt, PromptSet


def spread(count: int) -> list[int]:
    """0 … count − 1, so that each prefix lies evenly over the range.

    Source: van der Corput 1935, the sequence in base 2: indices by their bits in reverse.
    """
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda index: int(f"{index:0{width}b}"[::-1], 2))


def in_order(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """One prompt of each category first, then all of them in the set's own proportions, each category spread."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.category, []).append(prompt)
    placed = [
        (place / len(group), number, group[index])
        for number, group in enumerate(groups.values())
        for place, index in enumerate(spread(len(group)))
    ]
    return tuple(prompt for _, _, prompt in sorted(placed, key=lambda entry: entry[:2]))


def held_out(prompts: PromptSet, share: float, seed: int = 0) -> tuple[PromptSet, PromptSet]:
    """The set without, and with only, about `share` (0 to 1) of its prompts, kept away from training.

    A prompt's side follows from its text and `seed` alone: it stays there when the set grows, and copies stay together.

    Raises:
        MeasurementError: `share` is not between 0 and 1, or one side would be empty.
    """
    if not 0 < share < 1:
        raise MeasurementError(f"a held-out share of {share} is not between 0 and 1", hint="0.1 is usual.")
    held = tuple(prompt for prompt in prompts.prompts if _position(prompt, seed) < share)
    rest = tuple(prompt for prompt in prompts.prompts if _position(prompt, seed) >= share)
    if not held or not rest:
        raise MeasurementError(
            f"{prompts.name}: {share:.0%} of {len(prompts.prompts)} prompts leaves one side empty",
            hint="Use more prompts, or another share.",
        )
    return replace(prompts, prompts=rest), replace(prompts, prompts=held)


def _position(prompt: Prompt, seed: int) -> float:
    text = "\0".join((str(seed), prompt.system or "", *prompt.turns))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64

"""Prompts and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation's user side: `turns` are sent one after the other, each answered before the next.

    `id` is unique in its set (``humaneval/12``); `category` is the set's own (Spec-Bench: ``rag``), or empty.
    """

    id: str
    turns: tuple[str, ...]
    system: str | None = None
    category: str = ""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts of one kind in a fixed order, with what was left out.

    `source` is the name or the path's last part (never a machine's path) or the hub id, `sha256` of the bytes that were read,
    `dropped` counts records by reason.
    """

    name: str
    prompts: tuple[Prompt, ...]
    source: str
    sha256: str
    license: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)

    def dropped_words(self) -> str:
        """``kept 78 of 80: 2 dropped (1 empty prompt, 1 longer than 2048 tokens)``."""
        lost = sum(self.dropped.values())
        kept = len(self.prompts)
        if not lost:
            return f"kept all {kept}"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
        return f"kept {kept} of {kept + lost}: {lost} dropped ({reasons})"

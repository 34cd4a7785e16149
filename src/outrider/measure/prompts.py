"""Prompts and where they came from."""

from __future__ import annotations

import hashlib
import json
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
    `dropped` counts records by reason; `unused` counts usable prompts beyond the limit. `template` is the instruction a
    record was put into, empty where its own text is sent. `notes` are sentences a reader of the figures must know.
    """

    name: str
    prompts: tuple[Prompt, ...]
    source: str
    sha256: str
    license: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    template: str = ""
    unused: int = 0
    notes: tuple[str, ...] = ()

    @property
    def prompts_sha256(self) -> str:
        """SHA-256 of what is sent, in order: equal for two runs exactly if their prompts, template and limit were."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(json.dumps([prompt.id, prompt.system, *prompt.turns]).encode() + b"\n")
        return digest.hexdigest()

    def dropped_words(self) -> str:
        """``kept 78 of 80: 2 dropped (1 empty prompt, 1 not UTF-8)``; with a limit ``…; 16 of the 78 used``."""
        lost = sum(self.dropped.values())
        kept = len(self.prompts) + self.unused
        used = f"; {len(self.prompts)} of the {kept} used" if self.unused else ""
        if not lost:
            return f"kept all {kept}{used}"
        by_count = sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{count} {reason}" for reason, count in by_count)
        return f"kept {kept} of {kept + lost}: {lost} dropped ({reasons}){used}"

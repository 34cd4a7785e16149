"""Target and head that come with Outrider, as folders that an engine loads."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from outrider.engines.vllm.adapter import VllmEngine
from outrider.launch.prepare import resolved_draft, resolved_target
from outrider.stack.load import load_stack


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folders, and the type that this machine calculates in: `auto`, or float32 on a CPU that does not multiply bf16."""

    target: Path
    head: Path
    dtype: str


def built_in_pair() -> Pair:
    """The target, and its EAGLE-3 head made whole with the target's rows. Raises OutriderError."""
    stack, note = load_stack(None), partial(print, file=sys.stderr)
    install = VllmEngine().find(stack)
    target = resolved_target(stack, install.python, note)
    head = resolved_draft(stack, target, install.python, note)
    return Pair(Path(target), Path(str(head)), "auto" if install.bf16 else "float32")

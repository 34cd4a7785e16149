"""Faults of our own code inside the engine: counted, logged once each, never raised into its loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

LOG = logging.getLogger("vllm.outrider")  # below "vllm", whose handlers and level it shares

counts: Counter[str] = Counter()

T = TypeVar("T")


def guarded(place: str, call: Callable[[], T]) -> T | None:
    """What `call` returns; None if it raised, which is counted under `place` and logged the first time."""
    try:
        return call()
    except Exception:  # whatever it is, the engine goes on without us
        counts[place] += 1
        if counts[place] == 1:
            LOG.exception("outrider: fault in %s; from here on the engine does this as it would alone", place)
        return None

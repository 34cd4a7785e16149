"""Drafts, proposed and accepted tokens by draft, on the engine's own /metrics page.

The scheduler knows them, in a process of its own; the page is served by the first process. Between them stands a folder with one
small file a scheduler, which both map into memory: to count is to add to a word of it. The first process makes the folder and
names it in the environment, which its children inherit.
"""

from __future__ import annotations

import atexit
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from outrider_vllm.drafts import NAMES

FOLDER = "OUTRIDER_VLLM_COUNTS"
_ORDER = tuple(sorted(NAMES))
POSITIONS = 64  # K is at most that
_WORDS = 3 + POSITIONS  # of a draft: drafts, proposed, accepted, accepted by position
_BYTES = len(_ORDER) * _WORDS * 8


class Counts:
    """One scheduler's counts in a file of `_BYTES`."""

    def __init__(self, path: Path, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("Q")

    def add(self, draft: str, proposed: int, accepted: int) -> None:
        """One verified draft."""
        at = _ORDER.index(draft) * _WORDS
        self._words[at] += 1
        self._words[at + 1] += proposed
        self._words[at + 2] += accepted
        for i in range(min(accepted, POSITIONS)):
            self._words[at + 3 + i] += 1

    def of(self, draft: str) -> list[int]:
        """Drafts, proposed and accepted tokens, accepted tokens by position."""
        at = _ORDER.index(draft) * _WORDS
        return list(self._words[at : at + _WORDS])


def counts_of_this_process() -> Counts:
    """New counts, where the page finds them; without a page, where nobody does."""
    folder = os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="outrider-vllm-")
    return Counts(Path(folder) / f"{os.getpid()}.counts", create=True)


def show() -> None:
    """In the first process of an engine: make the folder and put our counters on its page. Harmless when repeated."""
    if os.environ.get(FOLDER):
        return
    from prometheus_client import REGISTRY  # noqa: PLC0415  (vLLM's own; nothing is imported unless asked)

    folder = tempfile.mkdtemp(prefix="outrider-vllm-")
    os.environ[FOLDER] = folder
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    REGISTRY.register(Page(Path(folder)))  # type: ignore[arg-type]  # a collector by its two methods


class Page:
    """A collector of prometheus_client: what all schedulers have counted, read when the page is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[Path, Counts] = {}

    def describe(self) -> Iterable[object]:
        """No names beforehand: it is read when it is asked for, not when it is registered."""
        return ()

    def collect(self) -> Iterator[object]:
        """Four families, a sample for each draft that was ever verified."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

        for path in self._folder.glob("*.counts"):
            if path not in self._found and path.stat().st_size == _BYTES:
                self._found[path] = Counts(path)
        families = [
            CounterMetricFamily(f"outrider_vllm_{name}", about, labels=["draft"])
            for name, about in (
                ("drafts", "Drafts that were verified."),
                ("draft_tokens", "Tokens that they proposed."),
                ("accepted_tokens", "Tokens of them that were accepted."),
            )
        ]
        by_position = CounterMetricFamily(
            "outrider_vllm_accepted_tokens_per_position",
            "Tokens that were accepted, by their position in the draft.",
            labels=["draft", "position"],
        )
        for draft in _ORDER:
            sums = [
                sum(words) for words in zip(*(one.of(draft) for one in self._found.values()), strict=True)
            ]
            if not sums or not sums[0]:
                continue
            for family, value in zip(families, sums, strict=False):
                family.add_metric([draft], value)
            for i, value in enumerate(sums[3:]):
                if value:
                    by_position.add_metric([draft, str(i)], value)
        yield from (*families, by_position)

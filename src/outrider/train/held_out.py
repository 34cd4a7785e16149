"""Prompts that a head must never be trained on, because it is measured on them.

Not only copies are kept away: a prompt that has eight words in a row with a held-out one was most likely made from it. Runs of
words that many held-out prompts share are their common frame ("Answer with the whole function …") and say nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

WORDS = 8
FRAME = 4  # held-out prompts that must share a run of words for it to be a frame
_WORD = re.compile(r"\w+")


class HeldOut:
    """The held-out texts, as hashes; empty, it holds nothing back."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        counts: Counter[int] = Counter()
        self._whole: set[int] = set()
        for words in filter(None, map(_words, texts)):
            self._whole.add(hash(tuple(words)))
            counts.update(set(_runs(words)))
        self._runs = {run for run, count in counts.items() if count < FRAME}

    def is_near(self, prompt: str) -> bool:
        """Whether `prompt` has a held-out text's words (case and signs aside), or eight of its words in a row."""
        if not self._whole:
            return False
        words = _words(prompt)
        return hash(tuple(words)) in self._whole or any(run in self._runs for run in _runs(words))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: list[str]) -> Iterator[int]:
    return (hash(tuple(words[at : at + WORDS])) for at in range(len(words) - WORDS + 1))

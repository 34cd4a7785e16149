"""All rows as three arrays: tokens, which of them are answers, where each row starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.core.errors import TrainingError
from outrider.train.rows import Row, read_rows

Ints = NDArray[np.int64]

SHORTEST = 4  # tokens: fewer have no place with both a state before it and a token after it
HELD_OUT_MOST = 400


@dataclass(frozen=True, slots=True)
class Corpus:
    """`tokens` int32 and `answers` bool, both [all tokens]; `starts` int64 [rows + 1]. `dropped`: rows with nothing to learn."""

    tokens: NDArray[np.int32]
    answers: NDArray[np.bool_]
    starts: Ints
    dropped: int = 0

    @property
    def lengths(self) -> Ints:
        """Tokens of each row."""
        return np.diff(self.starts)

    @property
    def answer_tokens(self) -> int:
        """Tokens with a loss."""
        return int(self.answers.sum())

    def count_answers(self) -> dict[int, int]:
        """How often each token stands in an answer: one count over all (one a row would take minutes)."""
        counts = np.bincount(self.tokens[self.answers])
        found = np.flatnonzero(counts)
        return dict(zip(found.tolist(), counts[found].tolist(), strict=True))

    def row(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Tokens and answer marks of one row."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.tokens[part], self.answers[part]

    def split(self, held_out_ratio: float, seed: int) -> tuple[Ints, Ints]:
        """Numbers of the rows to train on and of those kept for measuring: the same for the same seed and rows."""
        rows = len(self.lengths)
        wanted = min(HELD_OUT_MOST, max(1, round(rows * held_out_ratio)))
        if rows < 2:
            raise TrainingError(
                f"{rows} rows are too few: some train the head, others measure it", hint="Write more rows."
            )
        order = np.random.default_rng((seed, 0)).permutation(rows)
        return np.sort(order[wanted:]), np.sort(order[:wanted])


def read_corpus(files: Iterable[Path], max_row_tokens: int, vocab_size: int) -> Corpus:
    """Every row of the files, cut to `max_row_tokens`; rows without an answer token beyond their first are dropped.

    Raises:
        TrainingError: a file is not there or not one of rows, nothing is left, or a token that the target does not have.
    """
    files = tuple(files)
    for path in files:
        if not path.is_file():
            raise TrainingError(f"{path.name} is not there", hint="Write the rows first: `outrider train`.")
    return gather(chain.from_iterable(map(read_rows, files)), max_row_tokens, vocab_size)


def gather(rows: Iterable[Row], max_row_tokens: int, vocab_size: int) -> Corpus:
    """The arrays of some rows, as `read_corpus` says."""
    tokens: list[Any] = []
    answers: list[Any] = []
    dropped = 0
    for row in rows:
        ids = np.asarray(row.input_ids[:max_row_tokens], np.int32)
        mask = np.asarray(row.loss_mask[:max_row_tokens], np.bool_)
        if len(ids) < SHORTEST or not mask[1:].any():
            dropped += 1
            continue
        tokens.append(ids)
        answers.append(mask)
    if not tokens:
        raise TrainingError("no row has an answer to learn from", hint="Look at what was dropped, and why.")
    starts = np.concatenate(([0], np.cumsum([len(ids) for ids in tokens]))).astype(np.int64)
    whole = Corpus(np.concatenate(tokens), np.concatenate(answers), starts, dropped)
    if (highest := int(whole.tokens.max())) >= vocab_size:
        raise TrainingError(
            f"the rows hold token {highest:,}, the target has {vocab_size:,}",
            hint="Rows and target belong together: write the answers with this target.",
        )
    return whole

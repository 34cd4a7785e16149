"""Rows -> batches: rows of like length side by side, and for each batch which places learn from which token.

A batch is a rectangle: a row a line, padded at its end, so that plain causal attention is right for every row and no mask of
documents is needed. The work of attention grows with the square of a row, not of a batch, and no kernel has to be compiled, as
it would for documents packed one after another.

Place t of a row sees token t + 1 and the target's states at t, as the engine's draft does; what it is to propose is the target's
choice after token t + 1. Round or depth d asks the same for token t + 1 + d. All of it is pure and depends on the seed alone.

Source: `shift_batch`, speculators 0.9.0 `models/eagle3/data.py`; COD sampling, `models/peagle/data.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.train.trainer.corpus import Corpus, Ints

ROUND_TO = (
    16  # lengths are rounded up to it: aligned rows for the attention kernels, fewer shapes for the allocator
)
WINDOW_BATCHES = 50


@dataclass(frozen=True, slots=True)
class Rounds:
    """EAGLE-3: for each round, places (flat in [rows × length]) that learn and the answer (number in `Batch.answers`) of each."""

    places: tuple[Ints, ...]
    answers: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Chains:
    """P-EAGLE: masked places after anchors, a line a row: `anchors` and `depths` [rows, slots]; an unused slot has anchor -1.

    `places` are flat in [rows × (length + slots)], the row's own places before its slots; `answers` as in `Rounds`.
    `of_depth` is the depth of each of `places`.
    """

    anchors: Ints
    depths: Ints
    places: Ints
    answers: Ints
    of_depth: Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows side by side. `tokens` [rows, length]; `answers`: flat places of answer tokens, never a row's first.

    `real`, `of_corpus`: where the batch's tokens, padding left out, stand in the rectangle (flat) and in the corpus.
    """

    rows: Ints
    tokens: Ints
    answers: Ints
    real: Ints
    of_corpus: Ints
    learns: Rounds | Chains

    @property
    def padding_share(self) -> float:
        """Of all places."""
        return 1 - len(self.real) / self.tokens.size


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """How chains are drawn: `depth` places in all (the anchor's own is the first), shares as in TrainJob."""

    depth: int
    share: float = 0.7
    floor: float = 0.2

    def depths(self, anchors: int, rng: np.random.Generator) -> Ints:
        """For each anchor how many masked places follow: d or more with probability max(share ** d, floor)."""
        reach = np.maximum(self.share ** np.arange(1, self.depth), self.floor)
        drawn = rng.random(anchors)
        return np.asarray((drawn[:, None] < reach).sum(1), np.int64)


def epoch_batches(lengths: Ints, rows: Ints, batch_tokens: int, seed: Sequence[int]) -> list[Ints]:
    """One epoch's batches in their order: numbers of rows whose padded rectangle holds `batch_tokens` at most.

    Rows are shuffled, sorted by length within windows of some fifty batches, cut into batches, and these shuffled. A row longer
    than `batch_tokens` is a batch of its own.
    """
    rng = np.random.default_rng(tuple(seed))
    order = rows[rng.permutation(len(rows))]
    padded = -(-lengths // ROUND_TO) * ROUND_TO
    window = max(1, int(WINDOW_BATCHES * batch_tokens / max(1.0, float(padded[rows].mean()))))
    batches: list[Ints] = []
    for start in range(0, len(order), window):
        part = order[start : start + window]
        part = part[np.argsort(padded[part], kind="stable")]
        batches.extend(_cut(part, padded, batch_tokens))
    return [batches[number] for number in rng.permutation(len(batches))]


def _cut(rows: Ints, padded: Ints, batch_tokens: int) -> Iterator[Ints]:
    """Rows of growing length, as many a batch as fit."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or (place - begin + 1) * padded[rows[place]] > batch_tokens:
            yield rows[begin:place]
            begin = place


def assemble(corpus: Corpus, rows: Ints, depth: int) -> Batch:
    """An EAGLE-3 batch of `depth` rounds."""
    tokens, answers, real, of_corpus = rectangle(corpus, rows)
    column = answers % tokens.shape[1]
    kept = [np.flatnonzero(column > back) for back in range(depth)]
    rounds = Rounds(
        tuple(answers[numbers] - 1 - back for back, numbers in enumerate(kept)),
        tuple(kept),
    )
    return Batch(rows, tokens, answers, real, of_corpus, rounds)


def assemble_chains(corpus: Corpus, rows: Ints, plan: ChainPlan, rng: np.random.Generator) -> Batch:
    """A P-EAGLE batch: every place is an anchor, and is followed by a chain of random length while the answer goes on."""
    tokens, answers, real, of_corpus = rectangle(corpus, rows)
    follows = followed(tokens.shape, answers)
    anchors = np.flatnonzero(follows > 0)
    reach = np.minimum(plan.depths(len(anchors), rng), follows[anchors] - 1)
    return Batch(rows, tokens, answers, real, of_corpus, lay_chains(tokens.shape, answers, anchors, reach))


def rectangle(corpus: Corpus, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Tokens [rows, length], flat places of answers, and the places of all real tokens here and in the corpus."""
    lengths = corpus.lengths[rows]
    length = int(-(-lengths.max() // ROUND_TO) * ROUND_TO)
    within = np.concatenate([np.arange(one) for one in lengths])
    line = np.repeat(np.arange(len(rows)), lengths)
    real = line * length + within
    of_corpus = corpus.starts[rows][line] + within
    tokens = np.zeros((len(rows), length), np.int64)
    tokens.ravel()[real] = corpus.tokens[of_corpus]
    return tokens, real[corpus.answers[of_corpus] & (within > 0)], real, of_corpus


def followed(shape: tuple[int, ...], answers: Ints) -> Ints:
    """For each place, flat, how many of the tokens right after it belong to an answer, without a gap, in its row."""
    length = shape[1]
    columns = np.broadcast_to(np.arange(length), shape)
    gaps = columns.copy()
    gaps.ravel()[answers] = length
    next_gap = np.minimum.accumulate(gaps[:, ::-1], axis=1)[:, ::-1]
    follows = np.zeros(shape, np.int64)
    follows[:, :-1] = next_gap[:, 1:] - columns[:, 1:]
    return follows.ravel()


def lay_chains(shape: tuple[int, ...], answers: Ints, anchors: Ints, reach: Ints) -> Chains:
    """Slots for `reach[i]` masked places after each anchor (flat places of the rectangle), and what every place learns."""
    lines, length = shape
    number_of = np.full(lines * length, -1, np.int64)
    number_of[answers] = np.arange(len(answers))
    anchor = np.repeat(anchors, reach)
    depth = np.arange(len(anchor)) - np.repeat(np.cumsum(reach) - reach, reach) + 1
    line = anchor // length
    per_line = np.bincount(line, minlength=lines)
    slots = int(-(-per_line.max(initial=1) // ROUND_TO) * ROUND_TO)
    slot = np.arange(len(anchor)) - np.repeat(np.cumsum(per_line) - per_line, per_line)
    table_anchor = np.full((lines, slots), -1, np.int64)
    table_depth = np.zeros((lines, slots), np.int64)
    table_anchor[line, slot] = anchor % length
    table_depth[line, slot] = depth
    own = anchors // length * (length + slots) + anchors % length
    chained = line * (length + slots) + length + slot
    return Chains(
        table_anchor,
        table_depth,
        np.concatenate((own, chained)),
        number_of[np.concatenate((anchors, anchor)) + 1 + np.concatenate((np.zeros_like(anchors), depth))],
        np.concatenate((np.zeros_like(anchors), depth)),
    )

"""Where on held-out rows the head drafts, and which of the target's choices each drafted token is held against. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.train.trainer.corpus import Corpus, Ints
from outrider.train.trainer.packing import Batch, assemble, followed, lay_chains, rectangle


@dataclass(frozen=True, slots=True)
class Probe:
    """A batch and its drafts, each within an answer whole.

    `states`: for each token of a draft, where the head's states are [drafts] (flat; EAGLE-3: of that round's places, P-EAGLE: of
    places and slots). `choices`: number of the answer token after which the target's choice is the right one [drafts, depth].
    """

    batch: Batch
    states: tuple[Ints, ...]
    choices: Ints


def probe(corpus: Corpus, rows: Ints, depth: int, chained: bool) -> Probe | None:
    """The drafts of some rows: at every place for EAGLE-3, at every `depth`-th for P-EAGLE (`chained`); None if there is none."""
    tokens, answers, real, of_corpus = rectangle(corpus, rows)
    starts = np.flatnonzero(followed(tokens.shape, answers) >= depth)
    if chained:
        starts = starts[::depth]
    if not len(starts):
        return None
    choices = np.searchsorted(answers, starts + 1)[:, None] + np.arange(depth)
    if not chained:
        return Probe(assemble(corpus, rows, depth), (starts,) * depth, choices)
    learns = lay_chains(tokens.shape, answers, starts, np.full(len(starts), depth - 1, np.int64))
    batch = Batch(rows, tokens, answers, real, of_corpus, learns)
    chained_places = learns.places[len(starts) :].reshape(len(starts), depth - 1)
    return Probe(batch, (learns.places[: len(starts)], *chained_places.T), choices)

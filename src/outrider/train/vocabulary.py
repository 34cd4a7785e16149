"""Which tokens a head drafts: those that answers are made of.

What is not among them cannot be drafted and ends a draft, so `coverage`, the share of the answers' tokens that can, bounds the
acceptance.

Source: the maps `d2t` and `t2d` of speculators 0.9.0, `train/vocab_mapping.py`; vLLM 0.32 `llama_eagle3.py` (`compute_logits`:
target id = draft id + d2t[draft id]).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import TrainingError
from outrider.core.files import put_whole
from outrider.train.rows import unwritable

ENOUGH_COVERAGE, CLEARLY = 0.95, 0.01


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The head's tokens: `ids` of the target, ascending; a head's token k is the target's `ids[k]`.

    `coverage`: share of the counted answer tokens that are among them, 0 to 1.
    """

    target_vocab_size: int
    ids: tuple[int, ...]
    coverage: float

    @property
    def is_whole(self) -> bool:
        """Whether the head drafts every token of the target, and needs no map."""
        return len(self.ids) == self.target_vocab_size

    def write(self, path: Path) -> None:
        """Whole or not at all. Raises TrainingError."""
        document = {
            "draft_vocab_size": len(self.ids),
            "target_vocab_size": self.target_vocab_size,
            "coverage": self.coverage,
            "ids": self.ids,
        }
        put_whole(path, json.dumps(document) + "\n", lambda error: unwritable(path, error))


def choose_vocabulary(counts: Mapping[int, int], draft_vocab_size: int, target_vocab_size: int) -> Vocabulary:
    """The most frequent tokens, filled up with the lowest others; 0 or the target's size or more: all tokens.

    Raises:
        TrainingError: nothing was counted, or tokens that the target does not have.
    """
    if not sum(counts.values()):
        raise TrainingError("no answer has a token to learn from", hint="Look at what was dropped, and why.")
    refuse_foreign(max(counts), target_vocab_size)
    size = min(draft_vocab_size or target_vocab_size, target_vocab_size)
    ids = sorted(counts, key=lambda token: (-counts[token], token))[:size]
    covered = sum(counts[token] for token in ids) / sum(counts.values())
    chosen = set(ids)
    ids += [token for token in range(target_vocab_size) if token not in chosen][: size - len(ids)]
    return Vocabulary(target_vocab_size, tuple(sorted(ids)), covered)


def larger(vocabulary: Vocabulary, counts: Mapping[int, int]) -> Vocabulary | None:
    """One four times as large, where this one covers too little and the larger one clearly more."""
    if vocabulary.is_whole or vocabulary.coverage >= ENOUGH_COVERAGE:
        return None
    more = choose_vocabulary(counts, 4 * len(vocabulary.ids), vocabulary.target_vocab_size)
    return more if more.coverage > vocabulary.coverage + CLEARLY else None


def refuse_foreign(highest: int, target_vocab_size: int) -> None:
    """Raises TrainingError if rows whose highest token this is are not this target's."""
    if highest >= target_vocab_size:
        raise TrainingError(
            f"the rows hold token {highest:,}, the target has {target_vocab_size:,}",
            hint="Rows and target belong together: write the answers with this target.",
        )


def draft_to_target(ids: Sequence[int]) -> tuple[int, ...]:
    """The map `d2t`: for each token of the head, how far behind it the target's token stands."""
    return tuple(token - place for place, token in enumerate(ids))


def choose_mask_token(
    used: Mapping[int, int] | Collection[int], tokenizer_size: int, vocab_size: int, spare: Collection[int]
) -> int:
    """The token that stands for "not drafted yet" in P-EAGLE: one that no text has.

    The first row of the embedding beyond the tokenizer, if the embedding is padded; else the highest of `spare` (tokens that
    the tokenizer calls special) that is not among `used`, the rows' tokens; else the highest token that is not.

    Raises:
        TrainingError: every token of the target is used.
    """
    if tokenizer_size < vocab_size:
        return tokenizer_size
    for candidates in (spare, range(vocab_size)):
        free = [token for token in candidates if token < vocab_size and token not in used]
        if free:
            return max(free)
    raise TrainingError("no token is left to stand for a masked place", hint="Train an eagle3 head instead.")

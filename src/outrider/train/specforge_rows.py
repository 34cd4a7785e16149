"""Rows of the answers -> the token file that SpecForge reads, and what is counted on the way.

Source: SpecForge 0.2.0, `data/prompt_builder.py` (`prepare_prompt_tasks`: records with `input_ids` and `loss_mask`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from outrider.core.errors import TrainingError


class AnswerRow(Protocol):
    """A conversation as token ids; `loss_mask` is 1 where the target wrote."""

    @property
    def input_ids(self) -> Sequence[int]:
        """Token ids."""
        ...

    @property
    def loss_mask(self) -> Sequence[int]:
        """0 or 1 for each."""
        ...


@dataclass(slots=True)
class RowCount:
    """What the rows hold, counted while they are written."""

    rows: int = 0
    tokens: int = 0
    seen: set[int] = field(default_factory=set)
    answers: Counter[int] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


def write_rows(
    rows: Iterable[AnswerRow] | Path, place: Path, *, vocab_size: int, max_length: int
) -> RowCount:
    """Write `rows` (or those of the file it names) as SpecForge's reader wants them, and count.

    SpecForge uses the first `max_length` tokens of a row, and drops it if no answer is among them: such rows are left out.

    Raises:
        TrainingError: a row is none, or has tokens that the target does not have; OSError.
    """
    count = RowCount()
    with place.open("w", encoding="utf-8") as file:
        for input_ids, loss_mask in _pairs(rows):
            ids, mask = list(input_ids), list(loss_mask)
            if len(ids) != len(mask) or not all(0 <= token < vocab_size for token in ids):
                raise TrainingError(
                    f"row {count.rows + count.dropped.total() + 1} is not one of a target with {vocab_size:,} tokens",
                    hint="Rows and target belong together: write the answers with this target.",
                )
            used = ids[:max_length]
            answer = [token for token, counts in zip(used, mask, strict=False) if counts]
            if not answer:
                count.dropped["no answer within max_length" if any(mask) else "no answer"] += 1
                continue
            count.rows += 1
            count.tokens += len(used)
            count.seen.update(used)
            count.answers.update(answer)
            file.write(json.dumps({"input_ids": ids, "loss_mask": mask}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return count


def draft_vocabulary(answers: Mapping[int, int], size: int, target_size: int) -> tuple[list[int], float]:
    """The `size` most frequent ids of the answers, ascending (filled up with the lowest others), and their share of all."""
    size = min(size, target_size)
    ids = sorted(answers, key=lambda token: (-answers[token], token))[:size]
    chosen = set(ids)
    ids += [token for token in range(target_size) if token not in chosen][: size - len(ids)]
    covered = sum(answers[token] for token in chosen)
    return sorted(ids), covered / max(1, sum(answers.values()))


def _pairs(rows: Iterable[AnswerRow] | Path) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    if not isinstance(rows, Path):
        yield from ((row.input_ids, row.loss_mask) for row in rows)
        return
    with rows.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                yield row["input_ids"], row["loss_mask"]
            except (ValueError, TypeError, KeyError) as error:
                raise TrainingError(
                    f"{rows}, line {number}: not a row of token ids and loss mask",
                    hint="Write the answers anew.",
                ) from error

"""Rows of the answers -> the token file that SpecForge reads, and what is counted on the way.

Source: SpecForge 0.2.0, `data/prompt_builder.py` (`prepare_prompt_tasks`: records with `input_ids` and `loss_mask`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from outrider.train.rows import Row
from outrider.train.vocabulary import refuse_foreign


@dataclass(slots=True)
class RowCount:
    """What the written rows hold: `seen` counts all their tokens by id, `answers` those that the target wrote."""

    rows: int = 0
    seen: Counter[int] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


def write_rows(rows: Iterable[Row], place: Path, *, vocab_size: int, max_length: int) -> RowCount:
    """Write `rows` as SpecForge's reader wants them, and count.

    SpecForge uses the first `max_length` tokens of a row, and drops it if no answer is among them: such rows are left out.

    Raises:
        TrainingError: a row has tokens that the target does not have; OSError.
    """
    count = RowCount()
    with place.open("w", encoding="utf-8") as file:
        for row in rows:
            refuse_foreign(max(row.input_ids), vocab_size)
            used = row.input_ids[:max_length]
            answer = [token for token, counts in zip(used, row.loss_mask, strict=False) if counts]
            if not answer:
                count.dropped["no answer within max_length" if row.answer_tokens else "no answer"] += 1
                continue
            count.rows += 1
            count.seen.update(used)
            count.answers.update(answer)
            file.write(json.dumps({"input_ids": row.input_ids, "loss_mask": row.loss_mask}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return count

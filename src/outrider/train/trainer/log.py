"""What was said, kept: train_log.jsonl, to which every run of a training appends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from outrider.train.events import Progressed, TrainerEvent, to_line
from outrider.train.job import TRAIN_LOG

PROGRESS_EVERY_S = 10.0


class TrainLog:
    """Says an event and writes it; of progress only one in ten seconds is written."""

    def __init__(
        self,
        work: Path,
        say: Callable[[TrainerEvent], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._say, self._clock = work / TRAIN_LOG, say, clock
        self._next_s = clock()

    def __call__(self, event: TrainerEvent) -> None:
        """Raises OSError."""
        self._say(event)
        if isinstance(event, Progressed):
            if self._clock() < self._next_s:
                return
            self._next_s = self._clock() + PROGRESS_EVERY_S
        with self._path.open("a", encoding="utf-8") as file:
            file.write(to_line(event) + "\n")

"""Batches made ahead in a thread of their own, in pinned memory on a GPU, so that the device never waits for the host."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from outrider.train.trainer.corpus import Ints
from outrider.train.trainer.packing import Batch, Chains

AHEAD = 8


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch whose arrays are tensors: on the host (pinned) or on the device. `batch` is what they were made of.

    `learns`: EAGLE-3, a pair (places, answers) a round; P-EAGLE, one pair. `chains`: its anchors and depths [rows, slots].
    """

    batch: Batch
    tokens: Any
    answers: Any
    real: Any
    of_corpus: Any
    learns: tuple[tuple[Any, Any], ...]
    chains: tuple[Any, Any] | None

    def on(self, device: Any) -> Placed:
        """On the device; the copies from pinned memory do not wait."""

        def there(tensor: Any) -> Any:
            return tensor.to(device, non_blocking=True)

        return Placed(
            self.batch,
            there(self.tokens),
            there(self.answers),
            there(self.real),
            there(self.of_corpus),
            tuple((there(places), there(answers)) for places, answers in self.learns),
            (there(self.chains[0]), there(self.chains[1])) if self.chains else None,
        )


def place(batch: Batch, pinned: bool = False) -> Placed:
    """The batch's arrays as host tensors."""

    def tensor(array: Ints) -> Any:
        made = torch.from_numpy(array)
        return made.pin_memory() if pinned else made

    learns = batch.learns
    pairs = (
        ((learns.places, learns.answers),)
        if isinstance(learns, Chains)
        else tuple(zip(learns.places, learns.answers, strict=True))
    )
    chains = (tensor(learns.anchors), tensor(learns.depths)) if isinstance(learns, Chains) else None
    return Placed(
        batch,
        tensor(batch.tokens),
        tensor(batch.answers),
        tensor(batch.real),
        tensor(batch.of_corpus),
        tuple((tensor(places), tensor(answers)) for places, answers in pairs),
        chains,
    )


def ahead(makers: Iterable[Callable[[], Batch]], pinned: bool) -> Generator[Placed, None, None]:
    """The batches in order, some made in advance by a thread, which ends when the iterator is closed.

    Whatever making one raises is raised here, in its turn.
    """
    ready: queue.Queue[Placed | BaseException | None] = queue.Queue(AHEAD)
    closed = threading.Event()

    def offer(item: Placed | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for make in makers:
                if not offer(place(make(), pinned)):
                    return
            offer(None)
        except BaseException as error:  # raised again by whoever takes it
            offer(error)

    thread = threading.Thread(target=work, name="feed", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
        thread.join(timeout=5)

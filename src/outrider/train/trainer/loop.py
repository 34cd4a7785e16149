"""Steps: batch, the target's states, the head's loss, backward, optimiser; what is said, kept and measured on the way.

Nothing in a step waits for the device. The loss is read every few seconds, for the progress event, and a loss that is no number,
also one of the held-out rows, ends the run then, before a checkpoint could keep it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from outrider.core.errors import TrainingError
from outrider.train.events import Evaluated, Progressed, TrainerEvent
from outrider.train.job import SettledJob
from outrider.train.trainer.checkpoint import Position, save
from outrider.train.trainer.corpus import Corpus, Ints
from outrider.train.trainer.evaluate import HeldOut, evaluate
from outrider.train.trainer.feed import Placed, ahead
from outrider.train.trainer.forward import loss_of
from outrider.train.trainer.head import trained_parameters
from outrider.train.trainer.losses import Distance
from outrider.train.trainer.meters import GpuUse, Pace, TargetShare, peak_memory_bytes
from outrider.train.trainer.optimizer import rate_share, set_rate
from outrider.train.trainer.packing import Batch, ChainPlan, assemble, assemble_chains, epoch_batches
from outrider.train.trainer.probes import Probe
from outrider.train.trainer.target import FeatureStore, Target


class Interrupted(TrainingError):
    """Asked to stop; a checkpoint was written."""


class Diverged(TrainingError):
    """The loss is no number any more."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a training is made of. `train_rows`: numbers of corpus rows."""

    job: SettledJob
    corpus: Corpus
    train_rows: Ints
    target: Target
    store: FeatureStore
    head: Any
    optimizers: list[Any]
    distance: Distance
    probes: tuple[Probe, ...]

    @property
    def data(self) -> dict[str, int]:
        """What a checkpoint knows its rows by."""
        return {
            "rows": len(self.corpus.lengths),
            "tokens": len(self.corpus.tokens),
            "answer_tokens": self.corpus.answer_tokens,
            "sum": int(self.corpus.tokens.sum(dtype=np.int64)),
        }

    def arithmetic(self) -> Any:
        """On a GPU the head's matrices multiply in bf16; on a CPU in float32, which its casts would cost more than they save."""
        return torch.autocast(self.job.device, torch.bfloat16, enabled=self.job.device == "cuda")


def judged(at: Position, held_out_loss: float) -> Position:
    """After a look at the held-out rows: a loss over the lowest yet says that the steps are too long, so they are halved."""
    if held_out_loss > at.lowest_loss:
        return replace(at, rate=at.rate / 2)
    return replace(at, lowest_loss=held_out_loss)


def _refuse_no_number(what: str, loss: float, step: int) -> None:
    """Raises Diverged for a loss that is none: its weights are neither kept nor exported."""
    if not math.isfinite(loss):
        raise Diverged(
            f"{what} is {loss} at step {step:,}",
            hint="Lower the learning rates; remove the folder `checkpoint` to begin anew.",
        )


class Loop:
    """One run of a training, from `at` to its end. `say` hears events, `stop` is looked at before each step."""

    def __init__(
        self,
        parts: Parts,
        at: Position,
        say: Callable[[TrainerEvent], None],
        stop: threading.Event,
        process_began: float,
    ) -> None:
        self._parts, self._job, self.at = parts, parts.job, at
        self._say, self._stop, self._process_began = say, stop, process_began
        self.steps = sum(len(self._order(epoch)) for epoch in range(self._job.epochs))
        self.share, self.use = TargetShare(self._job.device), GpuUse(self._job.device)
        self.held_out: HeldOut | None = None
        self.loss = math.nan
        self.pace = Pace(at.elapsed_s, at.paced_tokens, at.paced_s)
        self._losses: list[Any] = []
        self._epoch_losses: list[float] = []
        self._padding: list[float] = []
        self._is_first = True
        self._saved = time.monotonic()

    def run(self) -> None:
        """To the last step or the end of the time. Raises Interrupted, Diverged; OSError: a checkpoint cannot be written."""
        self.pace.start()
        self.pace.begin_lap(self.at.tokens, self.at.step)
        try:
            while not self._is_over():
                self._run_epoch()
        finally:
            self.use.close()
        if self.held_out is None:  # resumed at its very end
            self._measure()
        self._keep()

    def _order(self, epoch: int) -> list[Ints]:
        job, parts = self._job, self._parts
        return epoch_batches(parts.corpus.lengths, parts.train_rows, job.batch_tokens, (job.seed, 1, epoch))

    def _makers(self) -> Iterator[Callable[[], Batch]]:
        epoch, first = self.at.epoch, self.at.batch
        for number, rows in enumerate(self._order(epoch)):
            if number >= first:
                yield partial(self._make, rows, (self._job.seed, 2, epoch, number))

    def _make(self, rows: Ints, seed: tuple[int, ...]) -> Batch:
        job, corpus = self._job, self._parts.corpus
        if job.method == "eagle3":
            return assemble(corpus, rows, job.depth)
        plan = ChainPlan(job.depth, job.chain_share, job.chain_floor)
        return assemble_chains(corpus, rows, plan, np.random.default_rng(seed))

    def _is_over(self) -> bool:
        late = self._job.max_minutes is not None and self.pace.elapsed_s >= 60 * self._job.max_minutes
        return late or self.at.epoch >= self._job.epochs

    def _run_epoch(self) -> None:
        with closing(ahead(self._makers(), pinned=self._job.device == "cuda")) as feed:
            for host in feed:
                if self._stop.is_set():
                    self._keep()
                    raise Interrupted(
                        f"training was interrupted at step {self.at.step:,} of {self.steps:,}; it is kept",
                        hint="Repeat the command: it goes on from there.",
                    )
                if self._is_over():
                    break
                self._step(host)
                self._after_step()
            else:
                self.at = replace(self.at, epoch=self.at.epoch + 1, batch=0)
        self._measure()

    def _step(self, host: Placed) -> None:
        job, parts, at = self._job, self._parts, self.at
        passed = self.pace.elapsed_s / (60 * job.max_minutes) if job.max_minutes else 0.0
        set_rate(parts.optimizers, at.rate * rate_share(at.step, self.steps, passed, job.warmup_steps))
        with self.share.step(at.step):
            batch = host.on(job.device)
            with parts.arithmetic():
                with self.share.target():
                    features = parts.store.of(batch)
                loss = loss_of(parts.head, parts.target, batch, features, parts.distance, job.depth_weight)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._moved, job.clip_norm)
            for one in parts.optimizers:
                one.step()
                one.zero_grad(set_to_none=True)
        self._losses.append(loss.detach())
        self._padding.append(host.batch.padding_share)
        self.at = replace(at, step=at.step + 1, batch=at.batch + 1, tokens=at.tokens + len(host.batch.real))

    @cached_property
    def _moved(self) -> list[Any]:
        return [one for _, one in trained_parameters(self._parts.head)]

    def _after_step(self) -> None:
        if self._is_first:  # waited for: what starts with it (kernels, allocator) is no step's pace
            self._is_first = False
            self._read_loss()
            self.pace.begin_lap(self.at.tokens, self.at.step)
            if not self.at.first_step_s:
                self.at = replace(self.at, first_step_s=time.monotonic() - self._process_began)
        elif self.pace.untold_s >= self._job.progress_every_s:
            self._tell()
        if time.monotonic() - self._saved >= self._job.checkpoint_every_s:
            self._keep()

    @property
    def _epoch_said(self) -> int:
        """Counted from 1: the one under way, or just done."""
        return self.at.epoch + (self.at.batch > 0)

    def _read_loss(self) -> None:
        """Wait for the device, and look at the losses since the last look. Raises Diverged."""
        if not self._losses:
            return
        self.loss = float(torch.stack(self._losses).mean())
        self._epoch_losses += [self.loss] * len(self._losses)
        self._losses.clear()
        _refuse_no_number("the loss", self.loss, self.at.step)

    def _tell(self) -> None:
        self._read_loss()
        job = self._job
        tok_s = self.pace.lap(self.at.tokens, self.at.step)
        left = self.pace.seconds_left(self.steps - self.at.step, job.epochs - self.at.epoch)
        if job.max_minutes:
            left = min(left, max(0.0, 60 * job.max_minutes - self.pace.elapsed_s))
        self._say(
            Progressed(
                self.at.step,
                self.steps,
                self._epoch_said,
                self.loss,
                float(self._parts.optimizers[0].param_groups[0]["lr"]),
                tok_s,
                left,
                self.share.taken(),
                sum(self._padding) / len(self._padding) if self._padding else None,
                self.use.taken(),
                peak_memory_bytes(job.device),
            )
        )
        self._padding.clear()

    def _measure(self) -> None:
        if self._losses:
            self._tell()
        parts = self._parts
        self.pace.pause()
        began = time.monotonic()
        with parts.arithmetic():
            self.held_out = evaluate(parts.head, parts.target, parts.store, parts.probes, parts.distance)
        _refuse_no_number("the loss of the held-out rows", self.held_out.loss, self.at.step)
        self.pace.measured(time.monotonic() - began)
        self.pace.go_on()
        if not self._is_over():
            self.at = judged(self.at, self.held_out.loss)
        losses, self._epoch_losses = self._epoch_losses, []
        self._say(
            Evaluated(
                epoch=self._epoch_said,
                step=self.at.step,
                loss=sum(losses) / len(losses) if losses else None,
                held_out_loss=self.held_out.loss,
                accuracy=self.held_out.accuracy,
                length=self.held_out.length,
                tok_s=self.pace.tok_s,
                elapsed_s=self.pace.elapsed_s,
                rate=self.at.rate,
            )
        )

    def _keep(self) -> None:
        self._read_loss()
        self.pace.pause()
        self.at = replace(
            self.at,
            elapsed_s=self.pace.elapsed_s,
            paced_tokens=self.pace.tokens,
            paced_s=self.pace.paced_s,
        )
        parts = self._parts
        save(parts.job.work, parts.job, parts.data, parts.head, parts.optimizers, self.at)
        self._saved = time.monotonic()
        self.pace.go_on()

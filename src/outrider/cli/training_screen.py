"""What `outrider train` shows while it works: one line a step that is overwritten, with the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.train.events import Evaluated, Finished, Planned, Progressed, TrainerEvent
from outrider.train.run import STEPS, Step


@dataclass(slots=True)
class TrainingScreen:
    """A Listener that prints; `say` overwrites a line that ends in a carriage return, `now` is a clock in seconds."""

    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _began: dict[str, tuple[float, int]] = field(default_factory=dict)

    def note(self, message: str) -> None:
        """A line that stays."""
        self.say(message)

    def progress(self, step: Step, done: int, total: int, note: str) -> None:
        """How far a step is, with what is left of it by the rate since it was first told of (a resumed one began further on)."""
        now = self.now()
        began, first = self._began.setdefault(f"{step} {total}", (now, done))
        gone, made = now - began, done - first
        left = f", {duration(gone / made * (total - done))} left" if made and done < total else ""
        place = f"[{STEPS.index(step) + 1}/{len(STEPS)} {step}]"
        self.say(f"{place} {done:,} of {total:,}{left}{f'  {note}' if note else ''}\r")

    def trained(self, event: TrainerEvent) -> None:
        """The trainer's plan, its steps, what an epoch came to."""
        for line in words(event):
            self.say(f"[{STEPS.index('training') + 1}/{len(STEPS)} training] {line}")


def words(event: TrainerEvent) -> list[str]:
    """A trainer's event as lines; one that will be overwritten ends in a carriage return."""
    if isinstance(event, Planned):
        size = f"{event.head_bytes / 1e6:.1f} MB without the target's rows"
        lines = [
            f"{event.rows:,} rows, {event.tokens:,} tokens ({event.held_out_rows:,} rows held out), {event.epochs} epochs",
            f"head: {event.trained_parameters / 1e6:.1f} M parameters, {size}; {event.draft_vocab_size:,} draft tokens cover "
            f"{event.coverage:.1%}",
            f"{event.device}, {event.dtype}, {event.optimizer}, loss {event.loss}",
        ]
        if event.resumed_steps:
            lines.append(f"going on after step {event.resumed_steps:,} of {event.steps:,}")
        return lines + list(event.notes)
    if isinstance(event, Progressed):
        left = f"{duration(event.seconds_left)} left"
        return [
            f"step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}, {event.tok_s:,.0f} tok/s, {left}\r"
        ]
    if isinstance(event, Evaluated):
        rates = " ".join(f"{one:.2f}" for one in event.accuracy)
        lines = [
            f"epoch {event.epoch}: held-out loss {event.held_out_loss:.3f}, right {rates} (AL {event.length:.2f} if served so)"
        ]
        if event.rate < 1:
            lines.append(f"it rose before: on at 1/{1 / event.rate:.0f} of the rate")
        return lines
    if isinstance(event, Finished):
        return [f"{event.tokens:,} tokens in {duration(event.elapsed_s)}, {event.tok_s:,.0f} tok/s"]
    return []


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"

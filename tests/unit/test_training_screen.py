"""What a person sees of a training: where it is, what is left, in lines that fit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from outrider.cli.training_screen import TrainingScreen, duration
from outrider.train.events import Evaluated, Finished, Planned, Progressed


def made(kind: type[Any], **members: object) -> Any:
    """An event with these members; of the rest nothing is shown."""
    return kind(**{one.name: None for one in fields(kind)} | members)


def test_time_left_is_of_what_was_done_since() -> None:
    """A resumed step of 1,000 that began at 900 and made 50 in 10 s has 10 s left, not half a second."""
    said: list[str] = []
    clock = iter([0.0, 10.0])
    screen = TrainingScreen(said.append, lambda: next(clock))
    screen.progress("answers", 900, 1000, "")
    screen.progress("answers", 950, 1000, "420 answer tokens/s")
    assert said == [
        "[2/4 answers] 900 of 1,000\r",
        "[2/4 answers] 950 of 1,000, 10 s left  420 answer tokens/s\r",
    ]


def test_the_trainer_s_events_in_words() -> None:
    """Plan, progress (overwritten), epoch and end, each under its step."""
    said: list[str] = []
    screen = TrainingScreen(said.append)
    plan = made(
        Planned,
        rows=190,
        held_out_rows=10,
        tokens=25_000,
        epochs=4,
        steps=50,
        resumed_steps=10,
        device="cpu",
        dtype="bfloat16",
        optimizer="muon",
        loss="kl_div",
        trained_parameters=5_100_000,
        head_bytes=10_300_000,
        draft_vocab_size=8192,
        coverage=0.998,
        notes=("A note.",),
    )
    screen.trained(plan)
    screen.trained(made(Progressed, step=20, steps=50, loss=3.25, tok_s=1234.5, seconds_left=61.0))
    screen.trained(made(Evaluated, epoch=1, held_out_loss=3.9, accuracy=(0.31, 0.12), length=1.43, rate=1.0))
    screen.trained(made(Evaluated, epoch=2, held_out_loss=4.1, accuracy=(0.3, 0.1), length=1.4, rate=0.5))
    screen.trained(made(Finished, tokens=100_000, elapsed_s=95.0, tok_s=1050.0))
    assert said == [
        "[3/4 training] 190 rows, 25,000 tokens (10 rows held out), 4 epochs",
        "[3/4 training] head: 5.1 M parameters, 10.3 MB without the target's rows; 8,192 draft tokens cover 99.8%",
        "[3/4 training] cpu, bfloat16, muon, loss kl_div",
        "[3/4 training] going on after step 10 of 50",
        "[3/4 training] A note.",
        "[3/4 training] step 20 of 50, loss 3.250, 1,234 tok/s, 61 s left\r",
        "[3/4 training] epoch 1: held-out loss 3.900, right 0.31 0.12 (AL 1.43 if served so)",
        "[3/4 training] epoch 2: held-out loss 4.100, right 0.30 0.10 (AL 1.40 if served so)",
        "[3/4 training] it rose before: on at 1/2 of the rate",
        "[3/4 training] 100,000 tokens in 2 min, 1,050 tok/s",
    ]
    assert max(map(len, said)) <= 120


def test_durations() -> None:
    """Seconds, minutes, hours: never more digits than are known."""
    assert [duration(value) for value in (0.4, 45, 100, 3600, 11_100)] == [
        "0 s",
        "45 s",
        "2 min",
        "60 min",
        "3 h 05 min",
    ]

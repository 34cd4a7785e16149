"""From a stack to a served head: steps that are kept on disk when they are done, so that a stopped run goes on at the next.

prompts → answers → training (vocabulary, steps, export) → served acceptance → pair manifest. The engine writes and answers the
prompts without a draft, a process of its own trains, and the engine that serves the head counts what it accepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import ValidationError

from outrider.control.running import RunningEngine, job_of, running_engine
from outrider.core.errors import TrainingError
from outrider.core.files import put_whole
from outrider.engines.base import Engine
from outrider.launch.prepare import Prepared, prepare
from outrider.measure.served_acceptance import Served, pooled, served_acceptance
from outrider.stack.content import Reference, part_of
from outrider.stack.digests import Digester, file_digest
from outrider.stack.hub import snapshot_folder
from outrider.stack.manifest import ServedAcceptance
from outrider.stack.models import Draft, Stack
from outrider.stack.policy import Policy
from outrider.stack.weights import kind_of
from outrider.train.answers import write_answers
from outrider.train.events import TrainerEvent
from outrider.train.generation import EngineAccess
from outrider.train.job import TrainJob, in_words
from outrider.train.process import TrainSummary, train
from outrider.train.prompts import write_prompts
from outrider.train.rows import DropCounts, unwritable
from outrider.train.sources import refuse_useless
from outrider.train.wish import Wish, keep_record, read_record

FLOOR = 1.05
"""A head of which the engine accepts less (AL, the bonus token included) is broken: hardly anything it says is right."""
SERVED = "served.json"
ENGINE_LOG = "engine.log"
PROMPTS, ROWS = "prompts.jsonl", "rows.jsonl"
AT_ONCE: Mapping[str, int] = {"cpu": 16, "cuda": 1024}

Step = Literal["prompts", "answers", "training", "served"]
STEPS: tuple[Step, ...] = ("prompts", "answers", "training", "served")


class Listener(Protocol):
    """Who is told how it goes."""

    def note(self, message: str) -> None:
        """A sentence worth keeping on the screen."""
        ...

    def progress(self, step: Step, done: int, total: int, note: str) -> None:
        """How far a step is."""
        ...

    def trained(self, event: TrainerEvent) -> None:
        """What the trainer says."""
        ...


@dataclass(frozen=True, slots=True)
class Data:
    """The rows to train on, what was left out of prompts and answers, and the target's folder."""

    rows: Path
    prompts: DropCounts
    answers: DropCounts
    target: Path


async def make_data(stack: Stack, engine: Engine, wish: Wish, listener: Listener) -> Data:
    """Prompts and answers by the stack's target, served without a draft.

    Raises:
        StackError, WeightsError, EngineError: the target cannot be served.
        TrainingError: nothing to train on, another run's folder, a full disk.
    """
    target = stack.target
    reference = Reference(target.model, target.revision, target.sha256)
    if read_record(wish) is None:
        for spec in wish.prompts.sources:
            refuse_useless(spec)  # before the folder is told of it, and before an engine starts
    keep_record(wish, part_of(reference, Digester(listener.note)).content)
    prompts, rows = wish.data / PROMPTS, wish.data / ROWS
    written = DropCounts.read(wish.data / "prompts.done.json", prompts)
    answered = DropCounts.read(wish.data / "answers.done.json", rows)
    if written and answered:
        listener.note(f"[data] {answered.kept:,} conversations are there already")
        return Data(rows, written, answered, target_folder(prepare(_undrafted(stack), engine, listener.note)))
    if wish.rows_of:
        raise TrainingError(
            f"{wish.rows_of} has no complete conversations", hint="Finish that run, or leave --rows-of out."
        )
    at_once = wish.concurrency or AT_ONCE[engine.find(stack).device]
    prepared = prepare(_undrafted(stack, at_once), engine, listener.note)
    async with _running(prepared, engine, wish, listener) as running:
        access = EngineAccess(running.url, running.key, running.model, at_once)
        written = await write_prompts(
            access, wish.conversations, prompts, wish.prompts, lambda *at: listener.progress("prompts", *at)
        )
        _tell("prompts", written, listener)
        answered = await write_answers(
            access, prompts, rows, wish.answers, lambda *at: listener.progress("answers", *at)
        )
        _tell("answers", answered, listener)
    return Data(rows, written, answered, target_folder(prepared))


def train_head(stack: Stack, data: Data, wish: Wish, python: str, listener: Listener) -> TrainSummary:
    """The head, trained by `python` and exported to the wish's folder, or as an earlier run left it. Raises TrainingError."""
    job = job_for(stack, data.target, data.rows, wish)
    return train(job, listener.trained, python)


def job_for(stack: Stack, target: Path, rows: Path, wish: Wish) -> TrainJob:
    """What the trainer is told. Raises TrainingError for settings it does not know."""
    name = stack.served_name if kind_of(stack.target.model) != "hub" else stack.target.model
    try:
        return TrainJob.model_validate(
            {
                **wish.settings,
                "method": wish.method,
                "target": target,
                "target_name": name,
                "rows": (rows,),
                "out": wish.out,
                "work": wish.work,
            }
        )
    except ValidationError as error:
        raise TrainingError(
            f"a setting is not right: {in_words(error)}", hint="docs/train-settings.md lists them."
        ) from error


async def measure_head(
    stack: Stack, engine: Engine, wish: Wish, listener: Listener
) -> list[ServedAcceptance]:
    """The head's served acceptance on each of the wish's sets, counted by the engine; kept, so that it is measured once.

    Raises:
        TrainingError: it is broken: accepted less than the floor over all sets.
        MeasurementError, EngineError: it could not be measured.
    """
    done = wish.work / SERVED
    stamp = _stamp(wish)
    if kept := _kept(done, stamp):
        listener.note("[served] measured already")
        return kept
    prepared = prepare(drafted(stack, wish), engine, listener.note)
    found: list[Served] = []
    async with _running(prepared, engine, wish, listener) as running:
        for prompts in wish.sets:
            found.append(
                await served_acceptance(
                    running,
                    prompts,
                    wish.served,
                    _served_progress(listener, prompts.name),
                )
            )
            window = found[-1].window
            listener.note(
                f"[served] {prompts.name}: AL {window.acceptance_length:.2f} at K = {wish.draft_length}"
            )
    refuse_broken(pooled(found))
    served = [_counted(one, wish.draft_length) for one in found]
    text = json.dumps({"of": stamp, "served": [asdict(one) for one in served]}, indent=1) + "\n"
    put_whole(done, text, lambda error: unwritable(done, error))
    return served


def refuse_broken(length: float | None) -> None:
    """Raises TrainingError for an AL under the floor. Training accuracy is no excuse: what counts is what is accepted."""
    if length is None or length < FLOOR:
        raise TrainingError(
            f"the head is broken: served, {'nothing' if length is None else f'AL {length:.2f}'} where {FLOOR} is the least",
            hint="Good figures in training and none in serving mean that layers, shift, norms or the token map do not fit; "
            "poor figures in both mean too little data or training.",
        )


def drafted(stack: Stack, wish: Wish) -> Stack:
    """The stack with the wish's head as its draft."""
    draft = Draft(method=wish.method, model=str(wish.out.absolute()), draft_length=wish.draft_length)
    engine = stack.engine.model_copy(update={"max_running_requests": wish.served.concurrency})
    return stack.model_copy(update={"draft": draft, "engine": engine, "policy": Policy(enabled=False)})


def target_folder(prepared: Prepared) -> Path:
    """Where the target's files lie, also those of a hub's. Raises TrainingError."""
    model = prepared.models.target
    if kind_of(model) != "hub":
        return Path(model)
    folder = snapshot_folder(model, prepared.models.target_revision)
    if folder is None:
        raise TrainingError(
            f"{model} is not in the local hub cache",
            hint="Fetch it once: hf download, or start the engine with it.",
        )
    return folder


def _undrafted(stack: Stack, at_once: int | None = None) -> Stack:
    engine = stack.engine.model_copy(update={"max_running_requests": at_once} if at_once else {})
    return stack.model_copy(update={"draft": Draft(method="none"), "engine": engine})


def _running(
    prepared: Prepared, engine: Engine, wish: Wish, listener: Listener
) -> AbstractAsyncContextManager[RunningEngine]:
    job = job_of(prepared, engine, wish.work / ENGINE_LOG)
    return running_engine(job, lambda line: listener.note(f"[engine] {line}"))


def _served_progress(listener: Listener, name: str) -> Callable[[int, int], None]:
    return lambda done, of: listener.progress("served", done, of, name)


def _tell(step: Step, counts: DropCounts, listener: Listener) -> None:
    tokens = f", {counts.answer_tokens:,} answer tokens" if counts.answer_tokens else ""
    listener.note(f"[{step}] {counts.kept:,} kept{tokens}")
    for sentence in counts.sentences():
        listener.note(f"[{step}]   {sentence}")


def _stamp(wish: Wish) -> dict[str, object]:
    """What served acceptance was measured of: the head's bytes, the prompts, how they were sent."""
    return {
        "head": file_digest(wish.out / "model.safetensors"),
        "sets": [one.prompts_sha256 for one in wish.sets],
        "draft_length": wish.draft_length,
        **asdict(wish.served),
    }


def _kept(path: Path, stamp: Mapping[str, object]) -> list[ServedAcceptance]:
    """What was measured of just this before, or nothing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["of"] != stamp:
            return []
        return [
            ServedAcceptance(**{**one, "per_position": tuple(one["per_position"])}) for one in value["served"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _counted(one: Served, draft_length: int) -> ServedAcceptance:
    return ServedAcceptance.counted(
        one.window.delta,
        prompt_set=one.prompt_set,
        draft_length=draft_length,
        requests=one.requests,
        output_tokens=one.output_tokens,
        temperature=one.settings.temperature,
    )

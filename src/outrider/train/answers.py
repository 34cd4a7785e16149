"""Step 2 of training: the target's answers, its own tokens kept, in one file that a stopped run adds to.

Every answer of a conversation is written by the target, in order, each seeing those before it. Text is never made into tokens
again: of eight answers, four changed when that was tried, and a head learns the tokens it will meet.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.core.errors import TrainingError
from outrider.train.generation import EngineAccess, Refused, Sampling, Target
from outrider.train.held_out import HeldOut
from outrider.train.prompts import SAY_EVERY_S, Say, read_prompts
from outrider.train.rows import DropCounts, Row, RowWriter, count_lines, read_each, read_rows, refuse_unmasked
from outrider.train.selfplay import UserTurns, unusable, user_text
from outrider.train.template import ChatTemplate, Ids, learn_template, next_turn_ids, opening_ids

NO_WAY = "the chat template shows no way to another turn"
_BATCH = 64


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How conversations are answered.

    `temperature` 0 is greedy; the rest of sampling is the engine's default for this model, as its users get it. Limits in tokens:
    of one answer, of all answers of a conversation (fewer are dropped), of a whole row. `user` is how the target writes the
    second user turn of a conversation with itself.
    """

    temperature: float = 0.0
    max_answer_tokens: int = 512
    min_answer_tokens: int = 8
    max_row_tokens: int = 2048
    user: UserTurns = field(default_factory=UserTurns)


async def write_answers(
    engine: EngineAccess, prompts: Path, out: Path, settings: AnswerSettings, say: Say
) -> DropCounts:
    """Have each line of `prompts` answered into a `Row` of `out`; go on where an earlier run stopped.

    Each prompt makes one row or is counted as dropped (in ``answers.dropped.jsonl``), whatever stopped the run in between.
    When complete, the counts lie beside it in ``answers.done.json``.

    Raises:
        TrainingError: no usable answer; the template, the engine or the disk at fault.
    """
    done = out.with_name("answers.done.json")
    if counts := DropCounts.read(done, out):
        return counts
    with RowWriter(out) as rows, RowWriter(out.with_name("answers.dropped.jsonl")) as drops:
        work = _Work(rows, drops, _count_lines(prompts), say)
        async with Target(engine) as target:
            talker = _Talker(target, await learn_template(target), settings, HeldOut(settings.user.held_out))
            await work.run(talker, _left(prompts, work.finished))
        counts = work.counts()
        if not counts.kept:
            reasons = "; ".join(counts.sentences()) or "no prompts"
            raise TrainingError(
                f"no answer to train on: {reasons}", hint="Look at the prompts and the limits."
            )
        refuse_unmasked(read_rows(out), f"the engine's for {engine.model}")
        counts.write(done)
    say(work.total, work.total, "")
    return counts


@dataclass(slots=True)
class _Talk:
    """A conversation under way."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    finish_reason: str = ""
    cut: str = ""

    def add(self, ids: Ids, loss: int) -> None:
        """More tokens, with or without a loss."""
        self.ids += ids
        self.mask += [loss] * len(ids)


@dataclass(frozen=True, slots=True)
class _Talker:
    """Has conversations with the target."""

    target: Target
    template: ChatTemplate
    settings: AnswerSettings
    held: HeldOut

    async def answer(self, index: int, record: Mapping[str, Any]) -> Row:
        """The row of one prompt. Raises Refused with the reason where it makes none."""
        system = [m for m in record["messages"] if m["role"] == "system"]
        given = [m["content"] for m in record["messages"] if m["role"] == "user"]
        wanted = max(len(given), int(record.get("turns", 1)))
        talk = _Talk(messages=list(system))
        for number in range(wanted):
            try:
                user = given[number] if number < len(given) else await self._user(talk)
                if talk.cut or not await self._turn(talk, user):
                    break
            except Refused as refusal:
                if not talk.ids:
                    raise
                talk.cut = str(refusal)
                break
        if sum(talk.mask) < self.settings.min_answer_tokens:
            raise Refused(f"answer shorter than {self.settings.min_answer_tokens} tokens")
        return Row(
            tuple(talk.ids),
            tuple(talk.mask),
            tuple(talk.messages),
            talk.finish_reason,
            str(record.get("kind", "data")),
            index,
            talk.cut,
        )

    async def _turn(self, talk: _Talk, user: str) -> bool:
        """One user turn and its answer; whether the conversation can go on. Raises Refused."""
        first = not talk.ids
        if not first and self.template.history == "unknown":
            talk.cut = NO_WAY
            return False
        said = {"role": "user", "content": user}
        if first or self.template.history == "rewritten":
            ids = await self.target.chat_ids([*talk.messages, said])
            before = _Talk(list(ids), [0] * len(ids))
        else:
            joint = self._joint(talk, await next_turn_ids(self.target, self.template, user))
            if talk.cut:
                return False
            before = _Talk([*talk.ids, *joint], [*talk.mask, *[0] * len(joint)])
        room = self._room(len(before.ids))
        if room < self.settings.min_answer_tokens:
            if first:
                raise Refused(f"prompt leaves no room for an answer in {self._most} tokens")
            talk.cut = f"no room for another turn in {self._most} tokens"
            return False
        sampling = Sampling(min(room, self.settings.max_answer_tokens), self.settings.temperature)
        written = (await self.target.write([before.ids], sampling))[0]
        if not sum(before.mask) and not first and len(written.ids) < self.settings.min_answer_tokens:
            talk.cut = f"answer shorter than {self.settings.min_answer_tokens} tokens"
            return False
        talk.ids, talk.mask = before.ids, before.mask
        talk.add(written.ids, 1)
        talk.messages += [said, {"role": "assistant", "content": written.text}]
        talk.finish_reason = written.finish_reason
        return True

    async def _user(self, talk: _Talk) -> str:
        """The second user turn, written by the target; `talk.cut` says why there is none."""
        user = self.settings.user
        if self.template.history == "rewritten":
            before = await opening_ids(self.target, talk.messages)
        else:
            before = (*talk.ids, *self._joint(talk, self.template.after_answer))
        if not talk.cut and self._room(len(before)) < user.max_tokens + self.settings.min_answer_tokens:
            talk.cut = f"no room for another turn in {self._most} tokens"
        if talk.cut:
            return ""
        written = (await self.target.write([before], user.sampling(self.template)))[0]
        text = user_text("", written)
        if reason := unusable(text, "", written, user, self.held):
            talk.cut = f"second {reason}" if reason.startswith("user turn") else f"second user turn {reason}"
        return text

    def _joint(self, talk: _Talk, after: Ids) -> Ids:
        """`after` an answer, without the end token that the answer has already."""
        if self.template.history == "unknown":
            talk.cut = NO_WAY
        elif talk.finish_reason == "stop":
            if talk.ids[-1] == after[0]:
                return after[1:]
            talk.cut = "the answer ended otherwise than the chat template ends one"
        return after

    @property
    def _most(self) -> int:
        """Tokens that a row may have."""
        limits = (self.settings.max_row_tokens, self.target.context_tokens)
        return min(limit for limit in limits if limit)

    def _room(self, tokens: int) -> int:
        return self._most - tokens


class _Work:
    """The answers so far: on disk, and their counts."""

    def __init__(self, rows: RowWriter, drops: RowWriter, total: int, say: Say) -> None:
        self.rows, self.drops, self.total, self._say = rows, drops, total, say
        self.finished: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.kept = self.tokens = self.answer_tokens = 0
        self._new_rows: list[Row] = []
        self._new_drops: list[tuple[int, str]] = []
        for row in read_rows(rows.path):
            self._count(row)
        for index, reason in read_each(
            drops.path, lambda record: (int(record["index"]), str(record["reason"]))
        ):
            self.finished.add(index)
            self.dropped[reason] += 1
        self._began, self._before = time.monotonic(), self.answer_tokens
        self._said = self._flushed = self._began

    async def run(self, talker: _Talker, left: Iterator[tuple[int, Mapping[str, Any]]]) -> None:
        """Answer what is left, as many at a time as the engine may be given; what is finished is kept, whatever happens."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(
                    min(talker.target.access.concurrency, max(self.total - len(self.finished), 1))
                ):
                    group.create_task(self._answer_all(talker, left))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._flush()

    async def _answer_all(self, talker: _Talker, left: Iterator[tuple[int, Mapping[str, Any]]]) -> None:
        for index, record in left:
            try:
                row = await talker.answer(index, record)  # awaited first: a flush meanwhile begins a new list
                self._new_rows.append(row)
            except Refused as reason:
                self._new_drops.append((index, str(reason)))
            if len(self._new_rows) >= _BATCH or time.monotonic() - self._flushed >= SAY_EVERY_S:
                self._flush()

    def _flush(self) -> None:
        rows, self._new_rows = self._new_rows, []
        drops, self._new_drops = self._new_drops, []
        self._flushed = time.monotonic()
        self.rows.write(row.record() for row in rows)
        self.drops.write({"index": index, "reason": reason} for index, reason in drops)
        for row in rows:
            self._count(row)
        for index, reason in drops:
            self.finished.add(index)
            self.dropped[reason] += 1
        if self._flushed - self._said >= SAY_EVERY_S:
            self._said = self._flushed
            speed = (self.answer_tokens - self._before) / (self._flushed - self._began)
            self._say(len(self.finished), self.total, f"{speed:,.0f} answer tokens/s")

    def _count(self, row: Row) -> None:
        self.finished.add(row.index)
        self.kept += 1
        self.tokens += len(row.input_ids)
        self.answer_tokens += row.answer_tokens
        if row.cut:
            self.cut[row.cut] += 1

    def counts(self) -> DropCounts:
        """What was kept and what was not."""
        return DropCounts(self.kept, dict(self.dropped), dict(self.cut), self.tokens, self.answer_tokens)


def _left(prompts: Path, finished: set[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The prompts that are still to be answered. Raises TrainingError."""
    return ((number, record) for number, record in enumerate(read_prompts(prompts)) if number not in finished)


def _count_lines(path: Path) -> int:
    """Whole lines of a file. Raises TrainingError."""
    try:
        return count_lines(path)
    except OSError as error:
        raise TrainingError(
            f"{path.name} cannot be read: {error.strerror}", hint="Write the prompts first."
        ) from error

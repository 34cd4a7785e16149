"""Step 1 of training: the prompts, out of the user's data and the target's own hand, in one file that a stopped run adds to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.core.errors import TrainingError
from outrider.measure.prompt_sets.shape import Unusable
from outrider.train.generation import EngineAccess, Target
from outrider.train.held_out import HeldOut
from outrider.train.rows import DropCounts, RowWriter, read_each
from outrider.train.selfplay import Seen, SelfPlay, self_play
from outrider.train.sources import find_source, read_source
from outrider.train.template import learn_template

Say = Callable[[int, int, str], None]
SAY_EVERY_S = 1.0
_BATCH = 256


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Where prompts come from.

    `sources`: the user's files, folders and hub data sets, taken first and in order, at most `max_turns` user turns of each
    conversation (0: all). `fill`: the target writes what they leave missing, as `play` says. `play.system` is also the system
    text of conversations that have none; `play.user.held_out` is kept out of both.
    """

    sources: tuple[str, ...] = ()
    fill: bool = True
    max_turns: int = 6
    play: SelfPlay = field(default_factory=SelfPlay)


async def write_prompts(
    engine: EngineAccess, wanted: int, out: Path, settings: PromptSettings, say: Say
) -> DropCounts:
    """Write at most `wanted` prompts to `out`, a line each; go on where an earlier run stopped.

    A line: ``{"messages": [{"role", "content"} …], "kind": "selfplay"|"data"}``, user turns without their answers; ``"turns": 2``
    where the target is to write a second one. When complete, the counts lie beside it in ``prompts.done.json``.

    Raises:
        TrainingError: no usable prompt; a source, the template, the engine or the disk at fault.
    """
    done = out.with_name("prompts.done.json")
    if counts := DropCounts.read(done, out):
        return counts
    with RowWriter(out) as rows, RowWriter(out.with_name("prompts.dropped.jsonl")) as drops:
        work = _Work(rows, drops, wanted, say)
        if not work.has_selfplay:  # reading them again is quick, and their file may have changed
            work.begin_anew()
        work.read_sources(settings)
        if settings.fill and work.kept < wanted:
            async with Target(engine) as target:
                await work.play(target, settings.play)
        if not work.kept:
            reasons = "; ".join(DropCounts(dropped=work.dropped).sentences()) or "the sources are empty"
            raise TrainingError(f"no prompt to train on: {reasons}", hint="Look at the form of your data.")
        counts = DropCounts(work.kept, dict(work.dropped), dict(work.cut), sources=tuple(work.sources))
        counts.write(done)
    say(counts.kept, counts.kept, "")
    return counts


def read_prompts(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that `write_prompts` wrote. Raises TrainingError: one that is no prompt."""
    return read_each(path, _prompt)


def _prompt(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a prompt as it is. Raises ValueError, KeyError: it is none."""
    messages = record["messages"]
    if not isinstance(messages, list) or not all(
        isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
        for one in messages
    ):
        raise ValueError("`messages` are no chat messages")
    if all(one["role"] != "user" for one in messages):
        raise ValueError("no message is a user's")
    if type(record.get("turns", 1)) is not int:
        raise ValueError("`turns` is no whole number")
    return record


class _Work:
    """The prompts so far: on disk, and what must be known of them."""

    def __init__(self, rows: RowWriter, drops: RowWriter, wanted: int, say: Say) -> None:
        self.rows, self.drops, self.wanted, self._say = rows, drops, wanted, say
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.sources: list[str] = []
        self.seen = Seen()
        self.has_selfplay = False
        self._said = 0.0
        for record in read_prompts(rows.path):
            self.kept += 1
            self.has_selfplay = self.has_selfplay or record.get("kind") == "selfplay"
            self.seen.is_new(*(m["content"] for m in record["messages"] if m["role"] == "user"))
        for _ in read_each(drops.path, self._count):
            pass

    def begin_anew(self) -> None:
        """Forget what is there."""
        self.rows.clear()
        self.drops.clear()
        self.kept = 0
        self.dropped.clear()
        self.cut.clear()
        self.seen = Seen()

    def read_sources(self, settings: PromptSettings) -> None:
        """Take the sources' conversations, unless an earlier run did."""
        system = settings.play.system
        held = HeldOut(settings.play.user.held_out)
        batch: list[dict[str, object]] = []
        lost: Counter[str] = Counter()
        cut: Counter[str] = Counter()
        for spec in settings.sources:
            files = find_source(spec)
            self.sources += [f"{file.source} sha256:{file.sha256()}" for file in files]
            for found in () if self.has_selfplay else read_source(files, settings.max_turns):
                if self.kept + len(batch) >= self.wanted:
                    break
                if isinstance(found, Unusable):
                    lost[str(found)] += 1
                elif not self.seen.is_new(*found.turns):
                    lost["the same prompt again"] += 1
                elif any(held.is_near(turn) for turn in found.turns):
                    lost["too near a held-out prompt"] += 1
                else:
                    cut[f"conversation longer than {settings.max_turns} user turns"] += found.cut
                    messages = found.messages()
                    if system and not found.system:
                        messages = ({"role": "system", "content": system}, *messages)
                    batch.append({"messages": messages, "kind": "data"})
                if len(batch) >= _BATCH:
                    self._add(batch, {}, {})
                    batch = []
        self._add(batch, lost, +cut)

    async def play(self, target: Target, play: SelfPlay) -> None:
        """Let the target write the rest."""
        template = await learn_template(target, play.system)
        tried = self.kept + self.dropped.total()
        playing = self_play(target, template, self.wanted - self.kept, play, self.seen, tried)
        async with aclosing(playing):
            async for played in playing:
                self._add(played.prompts, played.dropped, {})

    def _add(self, batch: list[dict[str, object]], lost: Mapping[str, int], cut: Mapping[str, int]) -> None:
        self.rows.write(batch)
        self.kept += len(batch)
        records = [{"reason": reason, "count": count} for reason, count in lost.items()]
        records += [{"cut": reason, "count": count} for reason, count in cut.items()]
        self.drops.write(records)
        for record in records:
            self._count(record)
        if time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = time.monotonic()
            self._say(self.kept, self.wanted, f"{self.dropped.total():,} dropped" if self.dropped else "")

    def _count(self, record: dict[str, object]) -> None:
        counter, name = (self.cut, record["cut"]) if "cut" in record else (self.dropped, record["reason"])
        counter[str(name)] += int(str(record["count"]))

"""Runs the blocks: starts the servers of a block, sends each cell's requests, keeps what came of it."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import yaml

from benchmarks.reliability import blocks as kept
from benchmarks.reliability.blocks import Cell, Switch
from benchmarks.reliability.load import Sender, Server
from benchmarks.reliability.plan import (
    ARMS,
    GOVERNED,
    OPEN_SHARE,
    PHASES,
    PLAIN,
    Block,
    arrivals,
    blocks,
    cell_s,
    endless,
    order,
)
from benchmarks.reliability.stale import make_stale
from outrider.bench.folder import RunFolder
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole
from outrider.launch.service import Service
from outrider.stack.models import Stack

RATE = "rate.txt"
START_WITHIN_S, START_GUESS_S = 600.0, 45.0
WARM_S, CALIBRATION_S, CALIBRATION_STREAMS = 5.0, 30.0, 8
BASE_SHARE = 0.25
"""Base load as a share of what the server without a draft makes at eight at once: three times as much is still sustained."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is run. `stack`: target, engine and the governed arm's policy; `method` of the head. `code` and `topic`: prompts.

    rate_s: base load in requests a second, None: by a calibration. streams: of the closed loop at the base load. phases: the
    first so many.
    """

    stack: Stack
    head: Path
    method: str
    minutes: float
    rounds: int
    rate_s: float | None
    output_tokens: int
    stale_noise: float
    draft_length: int
    seed: int
    code: tuple[str, ...]
    topic: tuple[str, ...]
    streams: int = 2
    phases: int = len(PHASES)


def stack_of(arm: str, wish: Wish, head: Path) -> dict[str, object]:
    """An arm's stack: the wish's, with this head or without a draft; the governed arm's policy is the stack's."""
    found = wish.stack.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    draft = {"method": wish.method, "model": str(head.absolute()), "draft_length": wish.draft_length}
    found |= {"name": f"reliability-{arm}", "draft": {"method": "none"} if arm == PLAIN else draft}
    if arm != GOVERNED:
        found["policy"] = "off"
    return found


class Progress:
    """Lines on stderr: where the run is, and how long it will still take by what its steps took so far.

    `left`: how many steps of a kind are to come; `guess_s`: seconds of one until one was seen.
    """

    def __init__(self, left: dict[str, int], guess_s: dict[str, float]) -> None:
        self._left, self._guess_s = left, guess_s
        self._took_s: dict[str, list[float]] = {kind: [] for kind in left}

    @contextmanager
    def step(self, kind: str) -> Iterator[None]:
        """One step less when it is done."""
        began_s = time.monotonic()
        yield
        self._left[kind] -= 1
        self._took_s[kind].append(time.monotonic() - began_s)

    def left_s(self) -> float:
        """Seconds to come."""
        mean_s = {
            kind: sum(took) / len(took) if took else self._guess_s[kind]
            for kind, took in self._took_s.items()
        }
        return sum(count * mean_s[kind] for kind, count in self._left.items())

    def say(self, text: str) -> None:
        """One line."""
        now, left = time.strftime("%H:%M:%S"), math.ceil(self.left_s() / 60)
        print(f"[{now}] {text} · about {left} min left", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Runner:
    """One run into one folder."""

    wish: Wish
    folder: RunFolder
    rate_s: float = 0.0
    progress: Progress = field(init=False)

    def run(self) -> float:
        """Every block that is not there yet; the base load in requests a second."""
        wish = self.wish
        todo = [
            one
            for one in blocks(wish.rounds, wish.phases)
            if not self.folder.inside("blocks", f"{one.id}.json").exists()
        ]
        length_s = cell_s(wish.minutes, wish.rounds, wish.phases)
        starts = len(todo) * len(ARMS) + self._unmeasured()
        left = {"cell": sum(len(one.phases) for one in todo) * len(ARMS), "start": starts}
        self.progress = Progress(left, {"cell": length_s, "start": START_GUESS_S})
        self.rate_s = self._rate()
        for block in todo:
            started_s = time.monotonic()
            found = self._block(block)
            kept.save(self.folder, block, found)
            self.progress.say(f"{block.id} is kept ({(time.monotonic() - started_s) / 60:.1f} min)")
        return self.rate_s

    def _unmeasured(self) -> bool:
        """Whether the base load is still to be measured."""
        return self.wish.rate_s is None and not self.folder.inside(RATE).exists()

    def _rate(self) -> float:
        """The base load: as wished, as an earlier part of this run measured, or measured now."""
        if self.wish.rate_s is not None:
            return self.wish.rate_s
        path = self.folder.inside(RATE)
        if self._unmeasured():
            with self._servers([PLAIN], self.wish.head, "calibration") as servers:
                self.progress.say("measuring what the machine sustains without a draft")
                sender = Sender(servers[PLAIN], partial(self._prompts, 0, 0))
                asyncio.run(sender.closed_loop(CALIBRATION_STREAMS, WARM_S))
                sender.records.clear()
                began_s = time.monotonic()
                asyncio.run(sender.closed_loop(CALIBRATION_STREAMS, CALIBRATION_S))
                done = sum(one.ok for one in sender.records) / (time.monotonic() - began_s)
            if not done:
                raise MeasurementError(
                    "the server without a draft answered nothing", hint="Its log is in logs/ of --out."
                )
            put_whole(path, f"{BASE_SHARE * done:.3f}\n", _unwritten)
        return float(path.read_text())

    @contextmanager
    def _servers(self, arms: Sequence[str], head: Path, name: str) -> Iterator[dict[str, Server]]:
        """All of these arms' servers, stopped at the end; started one after the other, since an engine measures what memory is
        free, or beside each other where the stack names `kv_cache_gib` and none does."""
        with ExitStack() as stack:

            def start(arm: str) -> Server:
                self.progress.say(f"{name}: starting the server of {arm}")
                path = self.folder.inside("stacks", f"{name}-{arm}.yaml")
                put_whole(path, yaml.safe_dump(stack_of(arm, self.wish, head), sort_keys=False), _unwritten)
                log = self.folder.inside("logs", f"{name}-{arm}.log")
                with self.progress.step("start"):
                    service = Service.start(path, log, START_WITHIN_S)
                stack.callback(service.stop)
                return Server(service.url, str(service.facts["model"]), self.wish.output_tokens)

            # The threads stay until the servers have stopped: a server ends with the thread that started it.
            beside = len(arms) if self.wish.stack.engine.kv_cache_gib else 1
            pool = stack.enter_context(ThreadPoolExecutor(beside))
            yield dict(zip(arms, pool.map(start, arms), strict=True))

    def _block(self, block: Block) -> list[Cell]:
        wish, head = self.wish, self.wish.head
        if block.stale:
            head = self.folder.path / "stale-head"
            make_stale(wish.head, head, wish.stale_noise, wish.seed)
        cells: list[Cell] = []
        told = dict.fromkeys(ARMS, 0.0)  # until when (seconds since 1970) an arm's switches were taken
        with self._servers(ARMS, head, block.id) as servers:
            for phase in block.phases:
                for arm in order(block.round, phase):
                    with self.progress.step("cell"):
                        cell = asyncio.run(self._cell(block, phase, arm, servers[arm], told[arm]))
                    cells.append(cell)
                    told[arm] = time.time()
        return cells

    async def _cell(self, block: Block, phase: int, arm: str, server: Server, told: float) -> Cell:
        length_s = cell_s(self.wish.minutes, self.wish.rounds, self.wish.phases)
        title = f"round {block.round + 1} of {self.wish.rounds} · {PHASES[phase].name} · {arm}"
        before = speculation(server)
        sender = Sender(server, partial(self._prompts, block.round, phase))
        moments = arrivals(self.wish.seed, block.round, phase, self.rate_s, OPEN_SHARE * length_s)
        self.progress.say(f"{title}: {len(moments)} requests in {OPEN_SHARE * length_s:.0f} s")
        began_s, began_wall = time.monotonic(), time.time()
        await sender.open_loop(moments)
        closed_s = time.monotonic()
        closed_length_s = (1 - OPEN_SHARE) * length_s
        await sender.closed_loop(self.wish.streams * PHASES[phase].load, closed_length_s)
        ended_s = time.monotonic()
        switches = switches_since(speculation(server), told, began_wall)
        failed = sum(not one.ok for one in sender.records)
        self.progress.say(
            f"{title}: {len(sender.records)} answered, {failed} failed, {len(switches)} switches"
        )
        return Cell(
            round=block.round,
            phase=phase,
            arm=arm,
            began_s=began_s,
            closed_s=closed_s,
            closed_until_s=closed_s + closed_length_s,
            ended_s=ended_s,
            draft=str(before["draft"]),
            load=os.getloadavg()[0],
            switches=switches,
            records=tuple(sorted(sender.records, key=lambda one: one.started_s)),
        )

    def _prompts(self, number: int, phase: int, part: str) -> Iterator[tuple[int, str]]:
        prompts = self.wish.code if PHASES[phase].code else self.wish.topic
        return endless(prompts, self.wish.seed, number, phase, part)


def speculation(server: Server) -> Mapping[str, object]:
    """Which draft is in force, and the last switches. Raises MeasurementError: the server does not answer."""
    try:
        answer = httpx.get(f"{server.url}/v1/speculation", timeout=30.0, trust_env=False)
        answer.raise_for_status()
        return dict(answer.json())
    except (httpx.HTTPError, ValueError) as error:
        raise MeasurementError(
            f"a server does not answer: {error}",
            hint="Its log is in logs/ of --out. Repeat the command: it goes on with the block that it was in.",
        ) from error


def switches_since(status: Mapping[str, object], told: float, began_wall: float) -> tuple[Switch, ...]:
    """The switches of a server's status after `told`; their times count from `began_wall` (both seconds since 1970), so what
    was switched while the server idled before its cell has a negative one."""
    found = status.get("last_switches", ())
    assert isinstance(found, list | tuple)  # noqa: S101  (our own server's)
    return tuple(
        Switch(one["t"] - began_wall, one["before"], one["after"], one["reason"], one["why"])
        for one in found
        if one["t"] > told
    )


def _unwritten(error: OSError) -> MeasurementError:
    return MeasurementError(
        f"cannot write into --out: {error.strerror or error}", hint="Free space, or name another folder."
    )

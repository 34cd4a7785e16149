"""The run: starts each arm's server, sends each cell's load, keeps what is done, and says how long it will take.

A cell that fails says why and the others stand; a server that dies is started once more; an interrupted run goes on with the
next cell when it is started again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from outrider.bench import document
from outrider.bench.arms import ArmPlan
from outrider.bench.assemble import text_differences
from outrider.bench.folder import CellRun, RunFolder
from outrider.bench.matrix import Block, CellKey, blocks
from outrider.core.errors import EngineError, MeasurementError, OutriderError
from outrider.engines.base import Engine
from outrider.measure.counters import CounterTrace
from outrider.measure.load import LoadPlan, LoadResult, LoadRunner
from outrider.measure.prompts import PromptSet
from outrider.measure.sampling import CounterSampler
from outrider.measure.texts import count_tokens
from outrider.measure.warmup import WarmUp, warm_up, waves_words

NATURAL_CONCURRENCY = 4
SERVER_STARTS = 2  # a server that dies is started once more within a block


class Server(Protocol):
    """A running service: `outrider.launch.service.Service`, or a scripted one in tests."""

    url: str
    engine_url: str
    facts: dict[str, object]

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        ...

    def tail(self) -> Sequence[str]:
        """Its last words."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


StartServer = Callable[[Path, Path, float, Callable[[str], None]], Server]


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to run."""

    arms: tuple[ArmPlan, ...]
    prompt_sets: tuple[PromptSet, ...]
    settings: document.Settings
    interleaved: bool = True

    def blocks(self) -> list[Block]:
        """The run in order."""
        return blocks(
            [arm.name for arm in self.arms],
            [prompts.name for prompts in self.prompt_sets],
            self.settings.concurrency,
            self.settings.trials,
            natural_end=self.settings.natural_end_prompts > 0,
            interleaved=self.interleaved,
        )

    def fingerprint(self) -> dict[str, object]:
        """What must be the same for a run to go on. More trials may be added."""
        return {
            **self.settings.model_dump(mode="json", exclude={"trials", "requests"}),
            "requests": {str(key): value for key, value in self.settings.requests.items()},
            "arms": {arm.name: arm.text() for arm in self.arms},
            "prompt sets": {prompts.name: prompts.prompts_sha256 for prompts in self.prompt_sets},
            "order": "interleaved" if self.interleaved else "arm by arm",
        }


@dataclass
class Bench:
    """One run into one folder. `say` prints a line; `started_s` and the cells done so far give the time left.

    `warm` sends a plan's warm-up waves before its load: see `outrider.measure.warmup`.
    """

    plan: BenchPlan
    folder: RunFolder
    runner: LoadRunner
    engine: Engine
    start: StartServer
    say: Callable[[str], None]
    start_timeout_s: float = 1800.0
    clock: Callable[[], float] = time.monotonic
    warm: Callable[[LoadPlan, Callable[[str], None]], WarmUp] = warm_up
    _server: Server | None = None
    _done: list[float] = field(default_factory=list)
    _order: int = 0

    def run(self, about: document.RunDocument) -> None:
        """All cells that are not done; `about` is the document without results, kept for the reports.

        Raises MeasurementError (the folder); never for one cell.
        """
        with self.folder.locked():
            if self.folder.begin(self.plan.fingerprint() | measured_on(about)):
                self.say("going on with the run that was begun here")
            self.folder.keep_about(about)
            for arm in self.plan.arms:
                self.folder.inside("arms", f"{arm.name}.yaml").write_text(arm.text(), encoding="utf-8")
            every = self.plan.blocks()
            total = sum(len(block.cells) for block in every)
            left = [(block.arm, self._todo(block)) for block in every]  # once: it reads every cell's records
            self._order = total - sum(len(cells) for _, cells in left)
            if self._order:
                self.say(f"{self._order} of {total} cells are done already")
            try:
                for name, cells in left:
                    self._block(name, cells, total)
                    self._stop()
            finally:
                self._stop()

    def _todo(self, block: Block) -> list[CellKey]:
        return [key for key in block.cells if not self.folder.done(key)]

    def _block(self, arm: str, cells: Sequence[CellKey], total: int) -> None:
        starts = 0
        for key in cells:
            began = self.clock()
            self._order += 1
            head = f"[{self._order}/{total}] {_words(key)}"
            reason, found, started = "", None, _now()
            try:
                if self._server is None or not self._server.alive:
                    self._stop()
                    if starts >= SERVER_STARTS:
                        raise MeasurementError(f"its server ended {starts} times; see the logs")
                    starts += 1
                    self._server = self._start(arm)
                    began = self.clock()
                started = _now()
                found = self._cell(key, self._server, head)
            except EngineError as error:
                starts, reason = (
                    SERVER_STARTS,
                    _why(error),
                )  # a server that does not start will not start for the next cell
            except OutriderError as error:
                reason = _why(error)
            took = self.clock() - began
            run = CellRun(key, self._order, started, self._device(), took, reason)
            if found is not None:
                run = CellRun(key, self._order, started, self._device(), took, "", *found)
                self._done.append(took)
            self.folder.save(run)
            if found is not None:  # what the generator leaves of a failed cell may say why
                shutil.rmtree(self.folder.path / "work" / key.id, ignore_errors=True)
            self.say(f"{head}: {_outcome(run)} ({took:.0f} s){self._left(total)}")

    def _start(self, arm: str) -> Server:
        self.say(f"starting the server of {arm}")
        stack = self.folder.inside("arms", f"{arm}.yaml")
        log = self.folder.inside("logs", f"{arm}.log")
        said: set[str] = set()

        def told(line: str) -> None:
            if line not in said:
                said.add(line)
                self.say(f"  {line}")

        return self.start(stack, log, self.start_timeout_s, told)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _cell(
        self, key: CellKey, server: Server, head: str
    ) -> tuple[LoadResult, CounterTrace, dict[str, int], WarmUp | None]:
        plan = self._load_plan(key, server)
        work = self.folder.inside("work", key.id, "x").parent
        warmed = self._warmed(plan, head) if key.concurrency else None

        def progress(done: int, of: int) -> None:
            self.say(f"{head}: {done} of {of} requests\r")

        with CounterSampler(self.engine, f"{server.engine_url}/metrics", f"{server.url}/metrics") as sampler:
            load = self.runner.run(plan, work, progress)
        if not any(record.ok for record in load.records):
            words = (
                server.tail()[-1:] if not server.alive else [load.records[0].reason] if load.records else []
            )
            what = "the server ended" if not server.alive else "no request was answered"
            raise MeasurementError(f"{what}: {' '.join(words) or 'it said nothing'}")
        return load, sampler.trace(), self._token_parts(key, load, server), warmed

    def _warmed(self, plan: LoadPlan, head: str) -> WarmUp:
        found = self.warm(plan, lambda line: self.say(f"{head}: {line}\r"))
        if found.unsettled:
            waves = f" ({waves_words(found.waves_s)})" if found.waves_s else ""
            self.say(f"{head}: the warm-up did not settle: {found.unsettled}{waves}; measured all the same")
        return found

    def _load_plan(self, key: CellKey, server: Server) -> LoadPlan:
        settings = self.plan.settings
        prompts = next(one for one in self.plan.prompt_sets if one.name == key.prompt_set).prompts
        natural = key.concurrency == 0
        if natural:
            prompts = prompts[: settings.natural_end_prompts]
        concurrency = NATURAL_CONCURRENCY if natural else key.concurrency
        turns = sum(len(prompt.turns) for prompt in prompts)
        return LoadPlan(
            url=server.url,
            model=self.plan.arms[0].stack.served_name,
            prompts=prompts,
            concurrency=min(concurrency, turns) if natural else concurrency,
            requests=turns if natural else settings.requests[key.concurrency],
            warmup_requests=0 if natural else settings.warmup_requests(key.concurrency),
            output_tokens=settings.natural_end_tokens if natural else settings.output_tokens,
            fixed_length=not natural,
            temperature=0.0 if natural else settings.temperature,
        )

    def _token_parts(self, key: CellKey, load: LoadResult, server: Server) -> dict[str, int]:
        """At which token greedy texts part from the baseline's, counted by the engine while it is there."""
        base = self.folder.load(CellKey(document.BASELINE, key.prompt_set, 0, key.trial))
        if key.concurrency or key.arm == document.BASELINE or base is None or base.load is None:
            return {}
        model, found = self.plan.arms[0].stack.served_name, {}
        for record, at in text_differences(load.records, base.load.records):
            tokens = count_tokens(server.engine_url, model, record.text[:at])
            if tokens is not None:
                found[record.prompt_id] = tokens
        return found

    def _device(self) -> str:
        return str(self._server.facts.get("device", "")) if self._server else ""

    def _left(self, total: int) -> str:
        remaining = total - self._order
        if not remaining or not self._done:
            return ""
        seconds = remaining * sum(self._done) / len(self._done)
        return (
            f"; about {max(1, round(seconds / 60))} min left"
            if seconds > 60
            else f"; about {seconds:.0f} s left"
        )


def measured_on(about: document.RunDocument) -> dict[str, object]:
    """What the cells of one run must have in common beside the plan: engine and hardware, without the driver's version."""
    hardware = about.provenance.get("hardware")
    found = dict(hardware) if isinstance(hardware, dict) else {}
    cards = found.get("accelerators")
    names = [str(card).partition(",")[0] for card in cards] if isinstance(cards, list) else []
    return {
        "engine": about.provenance.get("engine"),
        "hardware": f"{found.get('processor')}, {', '.join(sorted(set(names))) or 'no accelerator'}",
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _why(error: OutriderError) -> str:
    tail = getattr(error, "log_tail", ())
    return f"{error} ({tail[-1]})" if tail else str(error)


def _words(key: CellKey) -> str:
    if not key.concurrency:
        return f"{key.arm} · {key.prompt_set} · to the natural end"
    return f"{key.arm} · {key.prompt_set} · {key.concurrency} at once · trial {key.trial}"


def _outcome(run: CellRun) -> str:
    if run.load is None:
        return f"FAILED: {run.reason}"
    good = [record for record in run.load.records if record.ok]
    tokens = sum(record.output_tokens or 0 for record in good)
    span = run.load.ended_s - run.load.began_s
    bad = len(run.load.records) - len(good)
    rate = f"{tokens / span:.1f} tok/s" if span > 0 else f"{tokens} tokens"
    warmed = f", warm-up of {waves_words(run.warmup.waves_s)}" if run.warmup and run.warmup.waves_s else ""
    return f"{rate}, {len(good)} requests" + (f", {bad} FAILED" if bad else "") + warmed

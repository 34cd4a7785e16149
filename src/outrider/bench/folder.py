"""The run's folder: what is done stays done, however the run ends.

::

    DIR/run.json, report.md, report.html    written when the run ends, interrupted or not
    DIR/plan.json                           what was asked for: a run resumes only with the same
    DIR/about.json                          what is known before the first cell: arms, prompt sets, provenance
    DIR/arms/ARM.yaml                       the stack of each arm
    DIR/cells/ID.json                       one finished or failed cell: state, counters, accelerator
    DIR/raw/ID.jsonl.gz                     its request records
    DIR/logs/                               each server's log, the load generator's last words
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from outrider.bench.document import RunDocument
from outrider.bench.matrix import CellKey
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole
from outrider.measure.counters import CounterTrace
from outrider.measure.load import LoadResult
from outrider.measure.record_files import read_records, write_records
from outrider.measure.warmup import WarmUp

SCHEMA = "outrider/bench-cell/v1"


@dataclass(frozen=True, slots=True)
class CellRun:
    """One cell as it was run. Without `load` it failed, for `reason`. `token_parts` maps a prompt's id to the token at which
    its greedy text parts from the baseline's (natural-end cells of arms with a draft). `warmup`: None where none was sent."""

    key: CellKey
    order: int
    started: str
    device: str
    took_s: float
    reason: str = ""
    load: LoadResult | None = None
    trace: CounterTrace = field(default_factory=CounterTrace)
    token_parts: Mapping[str, int] = field(default_factory=dict)
    warmup: WarmUp | None = None


_CELL = TypeAdapter(CellRun)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What is written inside belongs to `place`: an OSError is raised as MeasurementError, with what to do about it."""
    try:
        yield
    except OSError as error:
        raise unwritten(place, error) from error


def unwritten(place: Path, error: OSError) -> MeasurementError:
    """Why `place` could not be written, in words."""
    what = "the disk is full" if error.errno in _FULL else error.strerror or str(error)
    todo = "Free space" if error.errno in _FULL else "Make it a folder that can be written"
    return MeasurementError(
        f"cannot write into {place}: {what}; what is done is kept",
        hint=f"{todo} and repeat the command: it goes on from here. Or name another folder: --out DIR.",
    )


class RunFolder:
    """Reads and writes one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def inside(self, *parts: str) -> Path:
        """A path in it, whose folder exists. Raises MeasurementError where it cannot be made."""
        path = self.path.joinpath(*parts)
        with writing(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder. Raises MeasurementError if another run has it or it cannot be written, now or in the course of the
        run: whatever finds the disk full, a server's log or the load generator's, ends in the same words."""
        with writing(self.path):
            handle = self.inside(".lock").open("w")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise MeasurementError(
                    f"another run is writing into {self.path}",
                    hint="Wait for it, or name another folder: --out DIR.",
                ) from None
            try:
                yield
            except OSError as error:
                mine = isinstance(error.filename, str) and Path(error.filename).is_relative_to(self.path)
                if error.errno not in _FULL and not mine:
                    raise
                raise unwritten(self.path, error) from error

    def begin(self, plan: dict[str, object]) -> bool:
        """Keep the plan; True if this goes on with a run of the same plan. Raises MeasurementError if it was another one."""
        path = self.inside("plan.json")
        if not path.exists():
            _write(path, json.dumps(plan, indent=1, sort_keys=True))
            return False
        try:
            before = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise MeasurementError(
                f"{path} cannot be read: {error}", hint="Name a new folder: --out DIR."
            ) from error
        changed = sorted(key for key in before.keys() | plan.keys() if before.get(key) != plan.get(key))
        if changed:
            raise MeasurementError(
                f"{self.path} holds a run with other settings ({_changes(before, plan, changed)}); "
                "cells of two kinds are never mixed",
                hint="Repeat the first command to go on with it, or name a new folder: --out DIR.",
            )
        return True

    def keep_about(self, about: RunDocument) -> None:
        """Keep the document without results: what the reports need beside the cells."""
        _write(self.inside("about.json"), about.model_dump_json(by_alias=True, indent=1))

    def about(self) -> RunDocument:
        """The document without results. Raises MeasurementError where there is no run."""
        try:
            return RunDocument.model_validate_json((self.path / "about.json").read_bytes())
        except (OSError, ValueError) as error:
            raise MeasurementError(
                f"{self.path} holds no run that can be read: {error}",
                hint="Name a folder that `outrider bench` writes into: --out DIR.",
            ) from error

    def save(self, run: CellRun) -> None:
        """Write one cell, whole or not at all: the records first, so that a cell that is there can be read.

        Raises MeasurementError where it cannot be written.
        """
        load = run.load
        if load is not None:
            with writing(self.path):
                write_records(self.inside("raw", f"{run.key.id}.jsonl.gz"), load.records)
            run = replace(run, load=replace(load, records=()))
        _write(self.inside("cells", f"{run.key.id}.json"), json.dumps({"schema": SCHEMA, **asdict(run)}))

    def load(self, key: CellKey) -> CellRun | None:
        """One cell, or None if it was not run. A file that cannot be read counts as not run."""
        path = self.path / "cells" / f"{key.id}.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored.pop("schema") != SCHEMA:
                return None
            run = _CELL.validate_python(stored)
            if run.key != key:
                return None
            if run.load is None:
                return run
            records = tuple(read_records(self.path / "raw" / f"{key.id}.jsonl.gz"))
        except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError, MeasurementError):
            return None
        return replace(run, load=replace(run.load, records=records))

    def done(self, key: CellKey) -> bool:
        """Whether a cell ran to its end and can be read; a failed or damaged one is run again."""
        run = self.load(key)
        return run is not None and run.load is not None


def _changes(before: Mapping[str, object], now: Mapping[str, object], keys: Sequence[str]) -> str:
    """``trials: 3 → 5``; what is too long to read is only named."""
    shown = []
    for key in keys:
        words = f"{key}: {before.get(key)} → {now.get(key)}"
        shown.append(words if len(words) <= 80 else key)
    return ", ".join(shown)


def _write(path: Path, text: str) -> None:
    """Put a file in place whole. Raises MeasurementError."""
    put_whole(path, text + "\n", partial(unwritten, path))

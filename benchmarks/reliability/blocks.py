"""What a block left behind, on disk: cells with their requests and switches, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.reliability.plan import Block
from outrider.bench.folder import RunFolder, unwritten, writing
from outrider.core.files import put_whole
from outrider.measure.record_files import read_records, write_records
from outrider.measure.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the draft in force; `after_s` seconds from the cell's begin, `reason` and `why` as the server told them."""

    after_s: float
    before: str
    after: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One phase (index) on one arm, in one round. Times in seconds of the monotonic clock: begin, begin of the closed-loop part,
    its end (`closed_until_s`), and the last answer's end.

    draft: in force at its begin. load: the machine's load average at its end. records: in order of their starts.
    """

    round: int
    phase: int
    arm: str
    began_s: float
    closed_s: float
    closed_until_s: float
    ended_s: float
    draft: str
    load: float
    switches: tuple[Switch, ...] = ()
    records: tuple[RequestRecord, ...] = ()

    @property
    def open_records(self) -> list[RequestRecord]:
        """Requests of the open-loop part."""
        return [one for one in self.records if one.id.startswith("open/")]

    @property
    def closed_records(self) -> list[RequestRecord]:
        """Requests of the closed-loop part."""
        return [one for one in self.records if one.id.startswith("closed/")]


_CELLS = TypeAdapter(tuple[Cell, ...])


def save(folder: RunFolder, block: Block, cells: Sequence[Cell]) -> None:
    """Keep a block: its requests first, so that one that is there can be read. Raises MeasurementError."""
    with writing(folder.path):
        for cell in cells:
            write_records(_raw(folder, block, cell), cell.records)
    bare = [asdict(replace(cell, records=())) for cell in cells]
    path = folder.inside("blocks", f"{block.id}.json")
    put_whole(path, json.dumps(bare, indent=1) + "\n", partial(unwritten, path))


def load(folder: RunFolder, block: Block) -> tuple[Cell, ...] | None:
    """A block, or None where it was not run to its end. Raises MeasurementError: its requests cannot be read."""
    try:
        text = folder.inside("blocks", f"{block.id}.json").read_bytes()
    except FileNotFoundError:
        return None
    return tuple(
        replace(cell, records=read_records(_raw(folder, block, cell))) for cell in _CELLS.validate_json(text)
    )


def _raw(folder: RunFolder, block: Block, cell: Cell) -> Path:
    return folder.inside("raw", f"{block.id}-p{cell.phase + 1}-{cell.arm}.jsonl.gz")

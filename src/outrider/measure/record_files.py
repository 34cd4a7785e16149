"""Request records on disk: gzip, one JSON object a line, times as whole nanoseconds since the request began.

Small, where the load generator's raw export takes 17 KB a request. A file is whole or not there: it is written beside its place
and moved. Its first line names the format.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from outrider.core.errors import MeasurementError
from outrider.core.files import placed
from outrider.measure.records import OK, RequestRecord, TokenEvent

FORMAT = {"format": "outrider-request-records", "version": 1}
_PLAIN = (
    "id",
    "prompt_id",
    "turn",
    "prompt_tokens",
    "output_tokens",
    "finish",
    "outcome",
    "reason",
    "text",
    "steps",
    "drafts",
    "proposed",
    "accepted",
)

_OMITTED = {"finish": "", "reason": "", "outcome": OK}  # the fields' own defaults


def write_records(path: Path, records: Iterable[RequestRecord]) -> None:
    """Write them to `path` (``….jsonl.gz``), making its folder. Times are kept to the nanosecond."""
    with placed(path) as beside, beside.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as sink:
        for content in (FORMAT, *map(_to_json, records)):
            # In ASCII: a model may answer with half a character, which UTF-8 cannot hold.
            sink.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")


def read_records(path: Path) -> tuple[RequestRecord, ...]:
    """Read what `write_records` wrote. Raises MeasurementError: not there, cut, or of another format."""
    try:
        with gzip.open(path, "rb") as source:
            if json.loads(source.readline() or b"null") != FORMAT:
                raise ValueError("not a file of request records, or of another version")
            return tuple(_from_json(json.loads(line)) for line in source)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise MeasurementError(
            f"the records in {path.name} cannot be read: {error}",
            hint="Delete the cell's folder and run the bench again: it is measured anew, the others are kept.",
        ) from error


def _to_json(record: RequestRecord) -> dict[str, object]:
    plain = {name: getattr(record, name) for name in _PLAIN}
    start = _ns(record.started_s)
    moments = [start, *(_ns(event.at_s) for event in record.events)]
    return {
        **{name: value for name, value in plain.items() if value is not None and value != _OMITTED.get(name)},
        "start_ns": start,
        "took_ns": _ns(record.ended_s) - start,
        "gaps_ns": [after - before for before, after in pairwise(moments)],
        "tokens": [event.tokens for event in record.events],
        **({} if record.first_text_s is None else {"first_text_ns": _ns(record.first_text_s) - start}),
    }


def _from_json(content: dict[str, Any]) -> RequestRecord:
    start = content["start_ns"]
    text_ns = content.get("first_text_ns")
    return RequestRecord(
        **{name: content[name] for name in _PLAIN if name in content},
        started_s=start / 1e9,
        ended_s=(start + content["took_ns"]) / 1e9,
        events=tuple(_events(start, content["gaps_ns"], content["tokens"])),
        first_text_s=None if text_ns is None else (start + text_ns) / 1e9,
    )


def _events(start: int, gaps: list[int], tokens: list[int]) -> Iterator[TokenEvent]:
    moments = list(accumulate(gaps, initial=start))[1:]
    for at_ns, count in zip(moments, tokens, strict=True):
        yield TokenEvent(at_ns / 1e9, count)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

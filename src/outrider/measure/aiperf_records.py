"""aiperf's raw export to request records: pure, from lines to records.

The export has one JSON object a line and request: `metadata` (which conversation and turn, wall clock), `start_perf_ns`,
`status`, `error`, and `responses`, each with `perf_ns` and its SSE fields. `*_perf_ns` is Python's perf_counter_ns, which on
Linux is CLOCK_MONOTONIC in nanoseconds: the clock of everything else we record.

Of a request refused with a status aiperf keeps no end; its record ends when it began. A timed-out one ends after the timeout.

Source: aiperf 0.13.0 ``RawRecordInfo`` and ``transports/aiohttp_client.py`` (which errors there are, and what they leave).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from outrider.core.errors import MeasurementError
from outrider.engines.base import RequestAcceptance
from outrider.measure.load import GpuUse
from outrider.measure.records import OK, RequestRecord
from outrider.measure.streams import Stream, read_stream, recorded

COUNTED = "profiling"  # aiperf's name of the phase that counts
COARSE_TOKENS = 10  # tokens in the median event from which on gaps are called coarse, unless steps are known
LATE_SHARE = 0.05  # chunks read together with the one before, from which on the step gaps are called coarse
_EMPTY = "InvalidInferenceResultError"  # Source: aiperf 0.13.0 `common/models/record_models.py`
_NO_CONNECTION = ("ClientConnector", "ConnectionRefused", "ClientProxyConnection", "gaierror")

AcceptanceOf = Callable[[Mapping[str, object]], RequestAcceptance | None]


@dataclass(frozen=True, slots=True)
class RawExport:
    """How to read one export.

    `prompt_ids`: aiperf's conversation ids to ours (one without an entry keeps its own). `acceptance`: what an engine's last
    chunk says of the request's drafts (`Engine.request_acceptance`). `timeout_s`: how long a timed-out request took.
    """

    prompt_ids: Mapping[str, str] = field(default_factory=dict)
    acceptance: AcceptanceOf | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Counted requests in the order they were started, what to be wary of, and the wall clock's span (ns) they lie in."""

    records: tuple[RequestRecord, ...]
    warnings: tuple[str, ...] = ()
    wall_ns: tuple[int, int] = (0, 0)


def read_records(lines: Iterable[str | bytes], export: RawExport | None = None) -> ReadRecords:
    """Read an export's lines; requests of the warm-up are left out.

    Raises MeasurementError: a line that is none of aiperf's, or times that run backwards.
    """
    export = export or RawExport()
    read: list[tuple[RequestRecord, Stream]] = []
    begins: list[int] = []
    ends: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            raw = json.loads(line)
            if raw["metadata"]["benchmark_phase"] != COUNTED:
                continue
            read.append(_record(raw, export))
            begins.append(raw["metadata"]["request_start_ns"])
            ends.append(raw["metadata"]["request_end_ns"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MeasurementError(
                f"line {number} of the load generator's raw export cannot be read: {type(error).__name__}: {error}",
                hint="The file was cut, or another aiperf wrote it: run the cell again (`make bench-env` has the version).",
            ) from error
    read.sort(key=lambda pair: pair[0].started_s)
    return ReadRecords(
        records=tuple(record for record, _ in read),
        warnings=_warnings(read),
        wall_ns=(min(begins, default=0), max(ends, default=0)),
    )


def _record(raw: Mapping[str, Any], export: RawExport) -> tuple[RequestRecord, Stream]:
    metadata = raw["metadata"]
    started_s = raw["start_perf_ns"] / 1e9
    took_s = (metadata["request_end_ns"] - metadata["request_start_ns"]) / 1e9
    responses = raw.get("responses") or ()
    _check_clock(metadata["x_request_id"], raw["start_perf_ns"], responses, took_s)
    stream = read_stream(responses)
    outcome, reason = _outcome(raw, stream)
    if outcome == "timeout" and export.timeout_s is not None:
        took_s = max(took_s, export.timeout_s)
        reason = f"no end within {export.timeout_s:g} s"
    told = export.acceptance(stream.last_chunk) if export.acceptance and stream.last_chunk else None
    conversation = metadata["conversation_id"]
    record = RequestRecord(
        id=metadata["x_request_id"],
        prompt_id=export.prompt_ids.get(conversation, conversation),
        turn=metadata["turn_index"],
        started_s=started_s,
        ended_s=max(started_s + took_s, stream.last_s or started_s),
        outcome=outcome,
        reason=reason,
        text=stream.text,
    )
    return recorded(record, stream, told), stream


def _check_clock(name: str, start_ns: int, responses: Iterable[Mapping[str, Any]], took_s: float) -> None:
    """Times of one request must not run backwards. Raises MeasurementError."""
    times = [start_ns, *(response["perf_ns"] for response in responses)]
    for before, after in pairwise(times):
        if after < before:
            _jumped(name, (before - after) / 1e9)
    if took_s < 0:
        _jumped(name, -took_s)


def _jumped(name: str, seconds: float) -> None:
    raise MeasurementError(
        f"the clock jumped: request {name} ran {seconds:.6f} s backwards",
        hint="Nothing measured around it can be believed: run the cell again on a machine whose clock stands still "
        "(no suspend, no live migration while it runs).",
    )


def _outcome(raw: Mapping[str, Any], stream: Stream) -> tuple[str, str]:
    """How it ended, by the names of `measure.records`, and what there is to say of it."""
    status, error = raw.get("status"), raw.get("error") or {}
    words = _error_words(error)
    kinds = " ".join([str(error.get("type") or ""), *(error.get("cause_chain") or ())])
    if status is not None and not 200 <= status < 300:
        return f"http-{status}", words
    if stream.error:
        return (f"http-{stream.error_code}" if stream.error_code else "cut"), stream.error
    # aiperf calls an answer without content an error: the stream's own end decides.
    told_its_end = stream.finish and stream.output_tokens is not None
    if stream.done or (told_its_end and (not error or _EMPTY in kinds)):
        if stream.events:
            return OK, ""
        return "no-output", f"200, but not one token (usage says {stream.output_tokens})"
    if "Timeout" in kinds:
        return "timeout", words
    if status is None and any(kind in kinds for kind in _NO_CONNECTION):
        return "refused", words
    return "cut", words or "the stream ended without its end"


def _error_words(error: Mapping[str, Any]) -> str:
    text = str(error.get("cause") or error.get("message") or error.get("type") or "")
    return text if len(text) <= 300 else text[:300] + "…"


def _warnings(read: list[tuple[RequestRecord, Stream]]) -> tuple[str, ...]:
    """What somebody who reads the figures has to know."""
    good = [(record, stream) for record, stream in read if record.ok]
    warnings = []
    if estimated := sum(stream.estimated for _, stream in good):
        warnings.append(
            f"{estimated} of {len(good)} answers without a running token count: tokens were spread evenly over the chunks, so "
            "token ITL is an estimate; step gaps, TTFT and E2E are not"
        )
    if untold := sum(record.output_tokens is None for record, _ in good):
        warnings.append(f"{untold} of {len(good)} answers told no token count at all: they have no TPOT")
    if fell := sum(stream.fell for _, stream in read):
        warnings.append(
            f"the running token count fell in {fell} answers: what it fell by was not counted again"
        )
    events = sum(len(record.events) for record, _ in good)
    late = sum(stream.late for _, stream in good)
    if late > LATE_SHARE * (events + late):
        warnings.append(
            f"{100 * late / (events + late):.0f} % of the token chunks were read with the one before: the load generator "
            "or the server was late, so step gaps are coarser than the engine's steps; give the machine more cores"
        )
    if coarse := sum(_coarse(record) for record, _ in good):
        warnings.append(
            f"chunk gaps are coarse in {coarse} of {len(good)} answers: the engine sends several steps in one chunk, so step "
            "gaps are its sending interval; TPOT and token ITL are means over it"
        )
    return tuple(warnings)


def _coarse(record: RequestRecord) -> bool:
    later = [event.tokens for event in record.events[1:]]
    if not later:
        return False
    if record.steps:
        return len(later) * 2 <= record.steps
    return median(later) >= COARSE_TOKENS


def read_gpu_use(
    lines: Iterable[str | bytes], wall_ns: tuple[int, int], visible: frozenset[int] | None = None
) -> GpuUse | None:
    """NVML samples within the span to one `GpuUse`; None without any.

    `visible`: indices of the accelerators that the engine may use; None: all. Several: utilisation is their mean, memory and
    power their sum. One that never worked in the span belongs to somebody else and is left out, unless none did. Units of the
    export: percent, GB (10^9), watts.
    """
    samples: dict[str, list[Mapping[str, Any]]] = {}
    names: dict[str, str] = {}
    for line in lines:
        sample = json.loads(line)
        if visible is not None and sample["gpu_index"] not in visible:
            continue
        if wall_ns[0] <= sample["timestamp_ns"] <= wall_ns[1]:
            samples.setdefault(sample["gpu_uuid"], []).append(sample["telemetry_data"])
            names[sample["gpu_uuid"]] = sample["gpu_model_name"]
    used = {gpu: _values(data, "nvidia_gpu_utilization") for gpu, data in samples.items()}
    busy = [gpu for gpu, values in used.items() if any(values)] or [
        gpu for gpu, values in used.items() if values
    ]
    if not busy:
        return None
    power = [_values(samples[gpu], "nvidia_power_usage") for gpu in busy]
    memory = [max(_values(samples[gpu], "nvidia_memory_used"), default=0.0) for gpu in busy]
    name = ", ".join(sorted({names[gpu] for gpu in busy}))
    return GpuUse(
        name=name if len(busy) == 1 else f"{len(busy)} × {name}",
        utilisation_mean=sum(_mean(used[gpu]) for gpu in busy) / len(busy) / 100,
        memory_peak_bytes=round(sum(memory) * 1e9),
        power_mean_w=sum(map(_mean, power)) if all(power) else None,
    )


def _values(data: list[Mapping[str, Any]], name: str) -> list[float]:
    return [float(sample[name]) for sample in data if sample.get(name) is not None]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

"""The raw export: which request it was, how it ended, and when it must not be believed."""

import json

import pytest

from outrider.core.errors import MeasurementError
from outrider.engines.vllm.adapter import VllmEngine
from outrider.measure.aiperf_records import RawExport, read_gpu_use, read_records
from tests.measure.raw import (
    CUT,
    GONE,
    REFUSED,
    START_NS,
    TIMEOUT,
    WALL_NS,
    Json,
    chunk,
    good,
    last,
    line,
    stream,
)


def test_warm_up_is_left_out_and_order_is_by_start() -> None:
    """The export's order is that of endings; records stand by their start, without the warm-up's."""
    warm = line(good(), number=1, metadata={"benchmark_phase": "warmup"})
    read = read_records([line(good(), number=9), warm, line(good(), number=3)])
    assert [record.id for record in read.records] == ["request-3", "request-9"]
    assert read.wall_ns == (WALL_NS + 3 * 10**9, WALL_NS + 9 * 10**9 + 90_000_000)


def test_a_conversation_is_mapped_to_its_prompt() -> None:
    """aiperf's conversation id gives the prompt's id; the turn is its index in the conversation."""
    raw = line(good(), number=7, metadata={"turn_index": 1})
    record = read_records([raw], RawExport({"counted-000007": "mt-bench/81"})).records[0]
    assert (record.prompt_id, record.turn) == ("mt-bench/81", 1)


def test_the_engine_tells_a_requests_drafts() -> None:
    """What vLLM puts beside its last usage becomes the record's drafts."""
    spec = {"num_spec_steps": 4, "num_draft_tokens": 12, "num_accepted_draft_tokens": 6}
    metrics = {"speculative_decoding": spec}
    raw = line(stream((0.1, chunk(1, content="a")), (0.2, last(11, metrics=metrics)), (0.2, "[DONE]")))
    record = read_records([raw], RawExport(acceptance=VllmEngine().request_acceptance)).records[0]
    assert (record.steps, record.drafts, record.proposed, record.accepted) == (4, 4, 12, 6)


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (429, {"code": 429, "type": "Too Many Requests", "message": "slow down"}, "http-429"),
        (503, {"code": 503, "type": "Service Unavailable", "message": ""}, "http-503"),
        (None, REFUSED, "refused"),
        (None, GONE, "cut"),
        (None, TIMEOUT, "timeout"),
        (200, CUT, "cut"),
    ],
)
def test_outcomes_without_a_stream(status: int | None, error: Json, outcome: str) -> None:
    """Each way to fail has its name and a reason; such a record ends when it began, if nothing says more."""
    record = read_records([line(status=status, error=error)]).records[0]
    assert record.outcome == outcome
    assert record.reason
    assert record.ended_s == record.started_s


def test_a_timed_out_request_lasted_its_timeout() -> None:
    """aiperf ends a timed-out request at its last chunk; the record ends when the timeout did."""
    raw = line(good()[:3], error=TIMEOUT)
    record = read_records([raw], RawExport(timeout_s=2.0)).records[0]
    assert (record.outcome, record.reason) == ("timeout", "no end within 2 s")
    assert record.ended_s - record.started_s == pytest.approx(2.0)


@pytest.mark.parametrize("case", ["before-start", "between-chunks", "end"])
def test_a_clock_that_jumps_is_refused(case: str) -> None:
    """Times that run backwards, anywhere in a request, end the reading with the reason."""
    responses = good()
    members: Json = {}
    if case == "before-start":
        members["start_perf_ns"] = START_NS + 10**9
    elif case == "between-chunks":
        responses[2]["perf_ns"] -= 10**9
        members["took_ns"] = 90_000_000
        members["start_perf_ns"] = START_NS - 2 * 10**9
    else:
        members["took_ns"] = -5
    with pytest.raises(MeasurementError, match="the clock jumped: request request-0") as refused:
        read_records([line(responses, **members)])
    assert refused.value.hint


def test_a_cut_export_is_refused() -> None:
    """Half a line is no record: an error with its number, not a shorter run."""
    with pytest.raises(MeasurementError, match="line 2"):
        read_records([line(good()), line(good())[:100]])


def gpu(at_ns: int, use: float, memory_gb: float, index: int = 0) -> str:
    """One sample of aiperf's NVML export."""
    data = {"nvidia_gpu_utilization": use, "nvidia_memory_used": memory_gb, "nvidia_power_usage": 400 + use}
    return json.dumps(
        {
            "timestamp_ns": at_ns,
            "gpu_index": index,
            "gpu_uuid": f"GPU-{index}",
            "gpu_model_name": "NVIDIA H200",
            "telemetry_data": data,
        }
    )


def test_gpu_use_is_that_of_the_counted_span() -> None:
    """Samples outside the span are left out; the mean is 0 to 1, memory is bytes."""
    samples = [gpu(0, 0, 1), gpu(10, 80, 100.5), gpu(20, 100, 99), gpu(30, 0, 200)]
    use = read_gpu_use(samples, (5, 25))
    assert use is not None
    assert (use.name, use.utilisation_mean, use.memory_peak_bytes) == ("NVIDIA H200", 0.9, 100_500_000_000)
    assert use.power_mean_w == 490
    assert read_gpu_use(samples, (40, 50)) is None


def test_gpu_use_leaves_out_an_accelerator_that_never_worked() -> None:
    """Two of three work: memory is their sum, utilisation their mean, the idle one belongs to somebody else."""
    use = read_gpu_use([gpu(1, 50, 10, 0), gpu(1, 70, 10, 1), gpu(1, 0, 60, 2)], (0, 2))
    assert use is not None
    assert (use.name, use.memory_peak_bytes) == ("2 × NVIDIA H200", 20_000_000_000)
    assert use.utilisation_mean == pytest.approx(0.6)


def test_gpu_use_of_the_visible_accelerators_only() -> None:
    """An accelerator that the engine may not use is somebody else's, however busy it is."""
    use = read_gpu_use([gpu(1, 50, 10, 0), gpu(1, 100, 90, 1)], (0, 2), frozenset({0}))
    assert use is not None
    assert (use.name, use.utilisation_mean, use.memory_peak_bytes) == ("NVIDIA H200", 0.5, 10_000_000_000)

"""Streams to token events: the field's cases, and what an engine may leave out."""

import json

import pytest

from outrider.bench.document import Figures
from outrider.bench.figures import CellData, figures, verdict
from outrider.engines.vllm.adapter import VllmEngine
from outrider.measure.aiperf_records import RawExport, ReadRecords, read_records
from outrider.measure.counters import CounterTrace
from outrider.measure.load import LoadResult
from outrider.measure.records import RequestRecord, TokenEvent
from outrider.measure.streams import read_stream
from tests.measure.raw import CUT, Json, chunk, good, last, line, stream

DONE = "[DONE]"


def one(responses: list[Json]) -> RequestRecord:
    """The record of one stream."""
    return read_records([line(responses)]).records[0]


def test_stream_running_usage() -> None:
    """Tokens are the growth of the running count; an empty chunk of the same read makes no event and no sample.

    Source: vllm#27485, sglang#12064.
    """
    record = one(
        stream(
            (0.050, chunk(1, content="a")),
            (0.070, chunk(4, content="b")),
            (0.070, chunk(4, content="")),
            (0.090, chunk(8, "length", content="c")),
            (0.090, last(8)),
            (0.090, DONE),
        )
    )
    assert [event.tokens for event in record.events] == [1, 3, 4]
    assert record.timing.ttft_s == pytest.approx(0.050)
    assert record.token_itl_s() == pytest.approx([0.02 / 3] * 3 + [0.005] * 4)
    assert record.step_gaps_s() == pytest.approx([0.02, 0.02])
    assert (record.outcome, record.output_tokens, record.finish) == ("ok", 8, "length")


@pytest.mark.parametrize("count", [-9, 10**12])
def test_a_count_nobody_can_believe_is_a_failure(count: int) -> None:
    """A negative or absurd usage fails its request; no figure is made of it, and no list as long as it says."""
    record = one(stream((0.05, chunk(1, content="a")), (0.07, chunk(count, content="b")), (0.09, DONE)))
    assert not record.ok
    assert str(count) in record.reason
    assert sum(event.tokens for event in record.events) == 1


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("counted", [True, False])
def test_stream_reasoning_only(member: str, counted: bool) -> None:
    """Reasoning is output: TTFT is its first chunk, with a running count and without; there is no visible text.

    Source: guidellm#737.
    """
    chunks = [(0.1 * n, chunk(n if counted else None, **{member: "hm "})) for n in (1, 2, 3)]
    record = one(stream((0.01, chunk(0 if counted else None, role="assistant")), *chunks, (0.3, DONE)))
    assert record.timing.ttft_s == pytest.approx(0.1)
    assert record.first_text_s is None
    assert record.text == "hm hm hm "
    assert (record.ok, record.output_tokens) == (True, 3 if counted else None)


def figures_of(*records: RequestRecord) -> Figures:
    """What a report says of these requests."""
    began, ended = min(one.started_s for one in records), max(one.ended_s for one in records)
    return figures([CellData(LoadResult(records, began, ended, "test"), CounterTrace(), 1)])


def test_stream_held_back_text() -> None:
    """Text held back while the count grows: TTFT at the first growth, the visible text is a figure of its own.

    The text comes in three chunks after all tokens were counted: no sample of theirs. Source: sglang#36272.
    """
    parts = [(0.1 * n, chunk(320 * n, content="")) for n in range(1, 21)]
    text = [
        (2.5, chunk(6400, content="an")),
        (2.6, chunk(6400, content="sw")),
        (2.7, chunk(6400, "stop", content="er")),
    ]
    role, end = (0.05, chunk(0, role="assistant", content="")), (2.7, chunk(6400, content=""))
    read = read_records([line(stream(role, *parts, *text, end, (2.7, last(6400)), (2.7, DONE)))])
    (record,) = read.records
    assert [warning for warning in read.warnings if "chunk gaps are coarse" not in warning] == []
    assert record.timing.ttft_s == pytest.approx(0.1)
    assert record.first_text_s == pytest.approx(record.started_s + 2.5)
    assert (record.output_tokens, record.text, record.finish) == (6400, "answer", "stop")
    assert [event.tokens for event in record.events] == [320] * 20
    assert record.step_gaps_s() == pytest.approx([0.1] * 19)
    found = figures_of(record)
    assert (found.ttft_ms.p50, found.first_text_ms.p50) == (pytest.approx(100), pytest.approx(2500))
    assert (found.output_tokens, found.e2e_ms.p50) == (6400, pytest.approx(2000))


EMPTY = {
    "type": "InvalidInferenceResultError",
    "message": "Invalid inference result",
    "cause_chain": ["InvalidInferenceResultError"],
}


@pytest.mark.parametrize("error", [None, EMPTY])
@pytest.mark.parametrize("end", [(DONE,), (chunk(0, "stop", content=""), last(0)), (last(0), DONE)])
def test_stream_no_first_token(end: tuple[str, ...], error: Json | None) -> None:
    """200 and not one token: no TTFT, no TPOT, a failure with its reason, never a zero; counted beside the percentiles.

    However it ends, and whether or not the generator calls an empty answer an error. Source: guidellm#216.
    """
    role = chunk(0, role="assistant", content="")
    responses = stream((0.05, role), *((0.05, part) for part in end))
    lines = [line(responses, number=1, error=error), line(good(), number=0)]
    ok, record = read_records(lines).records
    assert (record.outcome, record.ok, record.events, record.output_tokens) == ("no-output", False, (), 0)
    assert record.timing.ttft_s is record.timing.tpot_s is record.timing.e2e_s is None
    assert record.first_text_s is None
    assert record.reason == "200, but not one token (usage says 0)"
    found = figures_of(ok, record)
    assert (found.requests, found.ok, found.failures) == (2, 1, {"no-output": 1})
    samples = (found.ttft_ms, found.tpot_ms, found.e2e_ms, found.first_text_ms)
    assert [(one.n, (one.p50 or 0.0) > 0) for one in samples] == [(1, True)] * 4
    assert verdict(found).startswith("1 of 2 requests failed (1 no-output)")


@pytest.mark.parametrize(
    ("tokens", "steps", "coarse"), [(20, None, True), (11, None, True), (8, None, False), (20, 9, False)]
)
def test_stream_interval(tokens: int, steps: int | None, coarse: bool) -> None:
    """One chunk every 20 tokens: ITL and TPOT are per token, and a warning says that chunk gaps are coarse.

    Eight tokens may be one step of a long draft; and where the engine says how many steps there were, that decides. The role
    chunk and the one with the usage make no sample. Source: vllm#31014 (chunk gap 749.75 ms, TPOT 36.55 ms).
    """
    parts = [(0.1 + 0.74975 * n, chunk(1 + tokens * n, content="x" * tokens)) for n in range(10)]
    spec = {"num_spec_steps": 9, "num_draft_tokens": 9 * 19, "num_accepted_draft_tokens": 9 * 19}
    total = 1 + 9 * tokens
    end = last(total, metrics={"speculative_decoding": spec}) if steps else last(total)
    raw = line(stream((0.01, chunk(0, role="assistant")), *parts, (parts[-1][0], end), (parts[-1][0], DONE)))
    read = read_records([raw], RawExport(acceptance=VllmEngine().request_acceptance))
    (record,) = read.records
    assert record.steps == steps
    assert record.token_itl_s() == pytest.approx([0.74975 / tokens] * (total - 1))
    assert record.timing.tpot_s == pytest.approx(0.74975 / tokens)
    assert record.step_gaps_s() == pytest.approx([0.74975] * 9)
    assert ["chunk gaps are coarse in 1 of 1 answers" in warning for warning in read.warnings] == [
        True
    ] * coarse


def test_failed_requests() -> None:
    """7 answered 500 and 3 dropped in mid-stream: 90 records to take percentiles of, 10 by kind beside them.

    What a dropped one got is kept and is in no figure. Source: guidellm#444.
    """
    error = {"code": 500, "type": "Internal Server Error", "message": "boom"}
    lines = [line(good(), number=n) for n in range(90)]
    lines += [line(number=n, status=500, error=error) for n in range(90, 97)]
    lines += [line(good(start_s=3.0, step_s=2.0)[:4], number=n, error=CUT) for n in range(97, 100)]
    read: ReadRecords = read_records(lines)
    failed = [(record.outcome, record.reason) for record in read.records if not record.ok]
    assert failed == [("http-500", "boom")] * 7 + [("cut", CUT["cause"])] * 3
    assert [len(record.events) for record in read.records[-3:]] == [3, 3, 3]
    found = figures_of(*read.records)
    assert (found.requests, found.ok, found.failures) == (100, 90, {"cut": 3, "http-500": 7})
    assert [one.n for one in (found.ttft_ms, found.tpot_ms, found.e2e_ms, found.step_gap_ms)] == [
        90,
        90,
        90,
        360,
    ]
    assert (found.ttft_ms.worst, found.step_gap_ms.worst) == (pytest.approx(50), pytest.approx(10))
    assert found.output_tokens == 450
    assert "10 of 100 requests failed (3 cut, 7 http-500)" in verdict(found)


def test_tokens_of_one_read_are_one_event() -> None:
    """Two chunks with one time are one event of both their tokens: the reader's zero gap is not the engine's, and it is told."""
    parts = [
        (0.05, chunk(1, content="a")),
        (0.05, chunk(3, content="b")),
        (0.07, chunk(5, "stop", content="c")),
    ]
    read = read_records([line(stream(*parts, (0.07, DONE)))])
    start = read.records[0].started_s
    assert read.records[0].events == (TokenEvent(start + 0.05, 3), TokenEvent(start + 0.07, 2))
    assert ["33 % of the token chunks" in warning for warning in read.warnings] == [True]


def test_usage_at_the_end_only_is_spread_and_said() -> None:
    """Without a running count every chunk with output is an event, the tokens add up to N, and a warning says estimate."""
    parts = [(0.05 + 0.02 * n, chunk(content="ab")) for n in range(4)]
    read = read_records(
        [line(stream((0.01, chunk(role="assistant", content="")), *parts, (0.11, last(10)), (0.11, DONE)))]
    )
    record = read.records[0]
    assert [event.tokens for event in record.events] == [3, 2, 3, 2]
    assert record.timing.ttft_s == pytest.approx(0.05)
    assert ["estimate" in warning for warning in read.warnings] == [True]


def test_fewer_tokens_than_chunks_still_add_up() -> None:
    """An engine that sends more chunks than tokens: the first has a token, the sum is N."""
    parts = [(0.01 * n, chunk(content="ab")) for n in range(1, 8)]
    events = read_stream(stream(*parts, (0.07, last(3)), (0.07, DONE))).events
    assert (events[0].at_s, [event.tokens for event in events]) == (5.01, [1, 1, 1])


def test_an_error_inside_a_stream_is_its_outcome() -> None:
    """An engine's error chunk ends a request with the error's code, though [DONE] follows and the status was 200."""
    broken = json.dumps({"error": {"message": "engine died", "code": 500}})
    record = one(stream((0.05, chunk(1, content="a")), (0.06, broken), (0.06, DONE)))
    assert (record.outcome, record.reason, len(record.events)) == ("http-500", "engine died", 1)


def test_a_stream_without_its_end_is_cut() -> None:
    """No [DONE], no finish reason: cut, also if the generator saw no error."""
    record = one(stream((0.05, chunk(1, content="a")), (0.06, chunk(2, content="b"))))
    assert (record.outcome, record.output_tokens) == ("cut", 2)


def test_a_chunk_that_is_no_json_is_a_cut() -> None:
    """Garbage in a stream is the request's failure, not the run's."""
    assert one(stream((0.05, chunk(1, content="a")), (0.06, "{oops"), (0.06, DONE))).outcome == "cut"


def test_a_count_that_falls_is_not_counted_again() -> None:
    """A running count that falls and grows anew makes no tokens twice, and is told."""
    parts = [
        (0.05, chunk(4, content="a")),
        (0.06, chunk(2, content="b")),
        (0.07, chunk(5, "stop", content="c")),
    ]
    read = read_records([line(stream(*parts, (0.07, DONE)))])
    assert [event.tokens for event in read.records[0].events] == [4, 1]
    assert ["fell" in warning for warning in read.warnings] == [True]


def test_an_answer_that_was_not_streamed_is_one_event() -> None:
    """A server that ignores `stream` answers at once: all tokens in one event, no TPOT."""
    answer = {
        "choices": [{"message": {"content": "all"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 9},
    }
    record = one([{"perf_ns": 5_200_000_000, "text": json.dumps(answer)}])
    assert [event.tokens for event in record.events] == [9]
    assert (record.ok, record.timing.tpot_s, record.text) == (True, None, "all")

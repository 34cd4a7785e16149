"""The stream filter: any segmentation in, the same bytes out, less the usage chunk that only we asked for."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from outrider.front.stream import MAX_HELD_BYTES, UsageFilter


def event(payload: object, end: bytes = b"\n\n") -> bytes:
    """One SSE event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + end


def delta(text: str) -> dict[str, object]:
    """A content chunk."""
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


ROLE = event({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
USAGE_PAYLOAD = {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
USAGE = event(USAGE_PAYLOAD)
DONE = b"data: [DONE]\n\n"

# Texts meant to look like what the filter searches for.
tricky = (
    st.sampled_from(['"usage":{}', '","choices":[],"usage":{"x":1}', "\n\n", "data: [DONE]", ""]) | st.text()
)
chunks = st.lists(tricky.map(lambda text: event(delta(text))), max_size=6)


def run(stream: bytes, cuts: list[int], remove: bool) -> tuple[bytes, UsageFilter]:
    """The stream in pieces through a filter."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    flt = UsageFilter(remove)
    out = b"".join(flt.feed(stream[a:b]) for a, b in pairwise(places))
    return out + flt.end(), flt


@given(chunks, st.lists(st.integers(0, 10**6), max_size=12))
def test_only_the_usage_chunk_is_taken_out(parts: list[bytes], cuts: list[int]) -> None:
    """However the network cuts the stream, all bytes but those of the usage chunk come out, in order."""
    before = ROLE + b"".join(parts)
    out, flt = run(before + USAGE + DONE, cuts, remove=True)
    assert out == before + DONE
    assert flt.usage == USAGE_PAYLOAD


@given(chunks, st.lists(st.integers(0, 10**6), max_size=12))
def test_a_client_that_asked_gets_everything(parts: list[bytes], cuts: list[int]) -> None:
    """Where the client asked for usage, nothing is taken out and the usage is read all the same."""
    stream = ROLE + b"".join(parts) + USAGE + DONE
    out, flt = run(stream, cuts, remove=False)
    assert out == stream
    assert flt.usage == USAGE_PAYLOAD


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=6))
def test_any_bytes_pass(stream: bytes, cuts: list[int]) -> None:
    """Bytes that are no SSE at all come out as they went in."""
    assert run(stream, cuts, remove=True)[0] == stream


def test_usage_null_and_running_usage_stay() -> None:
    """Chunks that carry usage beside their choices are output, not the usage chunk."""
    stream = event({**delta("a"), "usage": None}) + event({**delta("b"), "usage": {"completion_tokens": 1}})
    out, flt = run(stream, [], remove=True)
    assert out == stream
    assert flt.usage is None


def test_carriage_returns_end_events_too() -> None:
    """An engine that ends lines with CR LF is not held up, and its usage chunk is found."""
    flt = UsageFilter(True)
    first = event(delta("a"), b"\r\n\r\n")
    assert flt.feed(first) == first
    assert flt.feed(event(USAGE_PAYLOAD, b"\r\n\r\n")) == b""
    assert flt.usage == USAGE_PAYLOAD


def test_mixed_line_ends_and_comments_hide_no_usage() -> None:
    """Events may end in any way, each in another, and comments may stand before their data, in one line or several."""
    first, second = event(delta("a")), event(delta("b"), b"\r\r")
    several = b'data: {"choices":[],\ndata: "usage":{"completion_tokens":2}}\n\n'
    for usage in (
        event(USAGE_PAYLOAD, b"\r\n\r\n"),
        event(USAGE_PAYLOAD, b"\r\r"),
        event(USAGE_PAYLOAD, b"\n\r\n"),
        b": data: hi\n" + USAGE,
        several,
    ):
        flt = UsageFilter(True)
        assert flt.feed(first + usage + second + DONE) + flt.end() == first + second + DONE
        assert flt.usage is not None


def test_a_payload_nested_too_deeply_passes() -> None:
    """What cannot be read as usage is passed on, and no exception comes of it."""
    stream = b'data: {"choices":[],"usage":' + b"[" * 5000 + b"\n\n"
    assert run(stream, [], remove=True)[0] == stream


def test_whole_events_are_not_held() -> None:
    """An event leaves with the read that completes it; only an unfinished one waits."""
    flt = UsageFilter(True)
    one = event(delta("a"))
    assert flt.feed(one + one[:5]) == one
    assert flt.feed(one[5:]) == one


def test_an_endless_event_is_not_held_for_ever() -> None:
    """Memory is bounded: what is too large to be a usage chunk passes on unfinished."""
    flt = UsageFilter(True)
    piece = b"data: " + b"x" * MAX_HELD_BYTES
    assert flt.feed(piece) == piece


def test_first_output() -> None:
    """A role or an empty text is not output; text, reasoning and tool calls are."""
    for payload, output in (
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False),
        ({"choices": [{"delta": {"content": None}}]}, False),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, False),
        ({"choices": [{"text": ""}]}, False),
        (delta("x"), True),
        (delta('"'), True),
        ({"choices": [{"delta": {"reasoning": "hm"}}]}, True),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, True),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, True),
        ({"choices": [{"text": "x"}]}, True),
        ({"type": "response.output_text.delta", "delta": "x"}, True),
    ):
        flt = UsageFilter(True)
        flt.feed(event(payload))
        assert flt.has_output is output, payload


def test_usage_alone_is_told_from_usage_with_output() -> None:
    """The last token's time is that of the last read with output, not of the usage that follows it."""
    alone = UsageFilter(True)
    alone.feed(event(delta("a")))
    alone.feed(USAGE + DONE)
    together = UsageFilter(True)
    together.feed(event(delta("a")) + USAGE + DONE)
    assert (alone.usage_alone, together.usage_alone) == (True, False)

"""Engines that answer what no engine should: one request is lost at most, never a place, the clock or another answer."""

from collections.abc import Iterator

import pytest

from tests.front import harness
from tests.front.harness import CHAT, Bed, Front, RawEngine, ask, chat, wait_until

Odd = tuple[Front, RawEngine]


def whole(body: bytes, status: int = 200) -> bytes:
    """A JSON answer."""
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


def stream(*events: bytes) -> bytes:
    """A chunked stream of these events."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = [b"data: " + event + b"\n\n" for event in events]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.fixture(scope="module", name="both")
def fixture_both() -> Iterator[Odd]:
    """A front with one place before such an engine."""
    engine = RawEngine()
    with harness.bed() as made:
        yield made.front(engine, concurrency=1, settings={"request_timeout_s": 2.0}), engine
    engine.close()


@pytest.fixture(name="odd")
def fixture_odd(both: Odd) -> Iterator[Odd]:
    """The two of them; after each test the place is free and the clock runs."""
    front, engine = both
    yield both
    wait_until(lambda: front.metric("outrider_requests_running") == 0)
    engine.answer = whole(b"{}")
    assert ask(front.port, "POST", CHAT, chat()).status == 200
    engine.answer = b""
    assert ask(front.port, "POST", CHAT, chat()).status == 504
    assert "Traceback" not in front.log()


@pytest.mark.parametrize("status", [200, 400])
def test_answers_nested_too_deeply(odd: Odd, status: int) -> None:
    """They are passed on or wrapped, unread."""
    odd[1].answer = whole(b"[" * 5000, status)
    assert ask(odd[0].port, "POST", CHAT, chat()).status == status


@pytest.mark.parametrize("tokens", [b"-5", b"9" * 400, b"[" * 5000, b"true"])
def test_usage_that_cannot_be(odd: Odd, tokens: bytes) -> None:
    """Negative, absurd or unreadable token counts are unknown; the stream is the client's all the same."""
    front, engine = odd
    usage = b'{"choices":[],"usage":{"completion_tokens":%b,"prompt_tokens":%b}}' % (tokens, tokens)
    engine.answer = stream(b'{"choices":[{"delta":{"content":"hi"}}]}', usage, b"[DONE]")
    answer = ask(front.port, "POST", CHAT, chat(stream=True))
    assert answer.status == 200
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert front.metric("outrider_output_tokens_total") == 0


@pytest.mark.parametrize("more", [whole(b'"second"'), b"garbage", stream(b"second")])
def test_what_follows_an_answer_is_dropped(odd: Odd, more: bytes) -> None:
    """Neither this client nor the next on that connection gets any of it."""
    front, engine = odd
    engine.answer = whole(b'{"first":1}') + more
    for _ in range(2):
        answer = ask(front.port, "POST", CHAT, chat())
        assert (answer.status, answer.body) == (200, b'{"first":1}')
    engine.answer = whole(b"{}")
    assert ask(front.port, "POST", CHAT, chat()).body == b"{}"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000]
)
def test_an_answer_with_an_endless_head(odd: Odd, head: bytes) -> None:
    """It is cut off before it fills the memory."""
    odd[1].answer = head
    answer = ask(odd[0].port, "POST", CHAT, chat())
    assert (answer.status, answer.error["code"]) == (502, "engine_lost")


def test_an_answer_too_large_to_collect(bed: Bed) -> None:
    """An answer that does not stream is held whole, and so has a limit; its place is free again."""
    engine = RawEngine()
    front = bed.front(engine, concurrency=1)  # with a time for its many bytes, also on a slow machine
    engine.answer = whole(b" " * (65 << 20))
    answer = ask(front.port, "POST", CHAT, chat())
    assert (answer.status, answer.error["code"]) == (502, "answer_too_large")
    engine.answer = whole(b"{}")
    assert ask(front.port, "POST", CHAT, chat()).status == 200
    engine.close()

"""Clients that send too much, too slowly, or not HTTP: a clear error each, and the next client is served."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.front.harness import CHAT, Bed, Front, Sim, ask, chat, payloads, post, raw, wait_until

Pair = tuple[Front, Sim]


@pytest.fixture(autouse=True)
def still_serving(pair: Pair) -> Iterator[None]:
    """After every one of these clients the front serves the next and holds nothing of the last."""
    yield
    front, _ = pair
    assert ask(front.port, "POST", CHAT, chat()).status == 200
    wait_until(lambda: front.metric("outrider_requests_running") == 0)
    wait_until(lambda: front.metric("outrider_client_connections") == 1)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"model": sim}',
        b"[]",
        b"",
        b'{"messages":"\xff\xfe"}',
        b'{"a":' * 100 + b"1",
        b'{"a":' + b"[" * 30000,
        b'{"stream":NaN}',
    ],
)
def test_malformed_bodies(pair: Pair, body: bytes) -> None:
    """Broken JSON, invalid UTF-8, deep nesting: 400, and nothing reaches the engine."""
    front, sim = pair
    before = sim.metric("requests_total")
    answer = ask(front.port, "POST", CHAT, body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert sim.metric("requests_total") == before


def test_a_hundred_megabytes_are_refused_unread(pair: Pair) -> None:
    """By its length alone, before a byte of the body has been sent."""
    request = post(b"")[:-4].replace(b"content-length: 0", b"content-length: 100000000") + b"\r\n\r\n"
    answer = raw(pair[0].port, request)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in answer


def test_a_hundred_megabytes_sent_all_the_same(pair: Pair) -> None:
    """A client that sends without asking still gets to read the refusal, and the front's memory does not grow."""
    front, _ = pair
    before = front.resident_bytes()
    answer = ask(front.port, "POST", CHAT, b" " * 100_000_000)
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert front.resident_bytes() - before < 20_000_000


def test_chunked_bodies_have_the_same_limit(pair: Pair) -> None:
    """A body without a length is refused as soon as it is too large."""
    answer = ask(pair[0].port, "POST", CHAT, iter([b" " * 50_000] * 20))
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")


def test_chunked_bodies_work(pair: Pair) -> None:
    """A body in chunks within the limit is as good as one with a length."""
    body = chat()
    assert ask(pair[0].port, "POST", CHAT, iter([body[:10], body[10:]])).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        [f"x-{n}: 1" for n in range(200)],
        ["x: " + "y" * 40_000],
        ["x" * 40_000 + ": y"],
    ],
)
def test_heads_are_limited(pair: Pair, lines: list[str]) -> None:
    """Too many or too large headers: 431."""
    assert raw(pair[0].port, post(chat(), *lines)).startswith(b"HTTP/1.1 431 ")


def test_an_endless_head_is_cut_off(pair: Pair) -> None:
    """A header line that never ends is refused when it is too long, not collected for ever."""
    assert raw(pair[0].port, b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 300_000).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("piece", [b"x: y\r\n", b"y"])
def test_endless_trailers_cost_no_memory(pair: Pair, piece: bytes) -> None:
    """After the last chunk fields are thrown away, and one that does not end is refused; so is a chunk's extension."""
    front, _ = pair
    before = front.resident_bytes()
    start = post(b"")[:-4].replace(b"content-length: 0", b"transfer-encoding: chunked") + b"\r\n\r\n"
    for opening in (b"2\r\n{}\r\n0\r\nx: ", b"2;x="):
        with socket.create_connection(("127.0.0.1", front.port), timeout=30) as connection:
            connection.sendall(start + opening)
            connection.sendall(piece * (2_000_000 // len(piece)))
            assert connection.recv(12) in (b"HTTP/1.1 431", b"HTTP/1.1 400")
    assert front.resident_bytes() - before < 10_000_000


def test_a_trailer_is_no_header(pair: Pair) -> None:
    """What comes after the body changes nothing of the request."""
    start = post(b"")[:-4].replace(b"content-length: 0", b"transfer-encoding: chunked\r\nconnection: close")
    body = b"%x\r\n%b\r\n0\r\nx-request-id: late\r\ntraceparent: 00-" % (len(chat()), chat())
    answer = raw(pair[0].port, start + b"\r\n\r\n" + body + b"a" * 32 + b"-" + b"b" * 16 + b"-01\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert "traceparent" not in pair[1].last()[0]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("framing", ["content-length: 5", "transfer-encoding: chunked"])
def test_routes_without_a_body_take_none(pair: Pair, method: str, framing: str) -> None:
    """A body for a route that reads none is refused before it has come."""
    answer = raw(pair[0].port, f"{method} /healthz HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"0\r\n\r\n", "transfer-encoding: chunked"),
        post(b"0\r\n\r\n", "Transfer-Encoding : chunked"),
        post(b"{}", "content-length: 3"),
        post(b"{}").replace(b"content-length: 2", b"content-length: -2"),
        post(b"{}").replace(b"content-length: 2", b"content-length: 0x2"),
        post(b"0\r\n\r\n").replace(b"content-length: 5", b"transfer-encoding: gzip, chunked"),
        post(b"zz\r\n{}\r\n0\r\n\r\n").replace(b"content-length: 13", b"transfer-encoding: chunked"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nbad header: 1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_ambiguous_framing_is_refused(pair: Pair, request_bytes: bytes) -> None:
    """Whatever two parsers could read in two ways, and what is no HTTP, is refused and its connection closed."""
    answer = raw(pair[0].port, request_bytes)
    assert answer.split(b" ")[1] in (b"400", b"404", b"405", b"413"), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


def test_other_content_types_are_refused(pair: Pair) -> None:
    """What a web page of another site could send without being asked is not JSON by its header."""
    answer = ask(pair[0].port, "POST", CHAT, chat(), content_type="text/plain")
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    bare = post(chat(), "connection: close").replace(b"content-type: application/json\r\n", b"")
    assert raw(pair[0].port, bare).startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "foreign_host"),
        ({"Host": "localhost.evil.example:80"}, "foreign_host"),
        ({"Host": "127.0.0.1.evil.example"}, "foreign_host"),
        ({"Origin": "https://evil.example"}, "foreign_origin"),
        ({"Origin": "null"}, "foreign_origin"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", CHAT])
def test_pages_of_other_sites_are_refused(pair: Pair, headers: dict[str, str], code: str, path: str) -> None:
    """A front without keys serves this machine, and no page that its browser shows of another."""
    method, body = ("POST", chat()) if path == CHAT else ("GET", None)
    answer = ask(pair[0].port, method, path, body, **headers)
    assert (answer.status, answer.error["code"]) == (403, code)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:8000"]
)
def test_this_machine_is_served(pair: Pair, host: str) -> None:
    """Under each of its names, by a page of its own too."""
    assert ask(pair[0].port, "POST", CHAT, chat(), Host=host, Origin=f"http://{host}").status == 200


def test_large_bodies(bed: Bed) -> None:
    """They are edited in a thread: answered, refused and drained all the same; a client that goes is no matter."""
    sim = bed.sim(ttft_ms=2, step_ms=1)
    front = bed.front(sim, concurrency=1)
    text = "x" * 3_000_000
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", front.port)) as connection:
            connection.sendall(post(chat(user=text)))
    assert ask(front.port, "POST", CHAT, chat(user=text)).status == 200
    assert sim.last()[1].endswith(text.encode() + b'"}')
    answer = ask(front.port, "POST", CHAT, chat(user=text, n="x"))
    assert (answer.status, answer.error["code"]) == (400, "invalid_type")
    many = b"{" + b'"":0,' * 700_000 + b'"a":0}'
    assert ask(front.port, "POST", CHAT, many).error["code"] == "too_many_members"
    wait_until(lambda: front.metric("outrider_requests_running") == 0)


def test_bodies_have_a_budget(bed: Bed) -> None:
    """Bodies that wait fill no memory without end: one too many is 429, and there is room again when they go."""
    front = bed.front(settings={"max_body_bytes": 64 << 20})
    body = chat(user="x" * (52 << 20))
    held = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(4)]
    try:
        for number, connection in enumerate(held, 1):
            connection.sendall(post(body))
            wait_until(
                lambda number=number: front.metric('outrider_requests_waiting{lane="interactive"}') == number
            )
        answer = ask(front.port, "POST", CHAT, body)
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 0)
    with socket.create_connection(("127.0.0.1", front.port)) as connection:
        connection.sendall(post(body))
        wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 1)


def test_a_body_that_does_not_come_times_out(pair: Pair) -> None:
    """408 within the time a request may take, drip-fed or not."""
    with socket.create_connection(("127.0.0.1", pair[0].port), timeout=30) as connection:
        begun = time.monotonic()
        connection.sendall(post(chat())[:-5])
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert 1.9 < time.monotonic() - begun < 20


def test_a_silent_connection_is_closed(pair: Pair) -> None:
    """A client that connects and says nothing holds its place only for so long."""
    with socket.create_connection(("127.0.0.1", pair[0].port), timeout=30) as connection:
        assert connection.recv(1) == b""


def test_expect_continue_is_answered(pair: Pair) -> None:
    """A client that waits for leave to send its body gets it, or the refusal."""
    body = chat()
    with socket.create_connection(("127.0.0.1", pair[0].port), timeout=30) as connection:
        connection.sendall(post(body, "expect: 100-continue")[: -len(body)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    refused = raw(
        pair[0].port, b"POST /nowhere HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
    )
    assert refused.startswith(b"HTTP/1.1 404 ")


def test_a_connection_serves_many_requests(pair: Pair) -> None:
    """Kept alive across answers, streams and refusals."""
    with socket.create_connection(("127.0.0.1", pair[0].port), timeout=30) as connection:
        for body, status in ((chat(), 200), (b"{", 400), (chat(stream=True), 200), (chat(), 200)):
            connection.sendall(post(body))
            answer = b""
            while not answer.endswith((b"}", b"0\r\n\r\n")):
                piece = connection.recv(65536)
                assert piece, answer
                answer += piece
            assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_pipelined_requests_are_not_mixed_up(pair: Pair) -> None:
    """The first is answered, then the connection closes: the second is neither lost in silence nor answered twice."""
    front, sim = pair
    before = sim.metric("requests_total")
    answer = raw(front.port, post(chat()) + post(chat(stream=True)))
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in answer
    assert sim.metric("requests_total") == before + 1


def test_a_second_request_during_a_stream_waits_for_nobody(pair: Pair) -> None:
    """Bytes that come while an answer is under way do not disturb it."""
    with socket.create_connection(("127.0.0.1", pair[0].port), timeout=30) as connection:
        connection.sendall(post(chat(stream=True, max_tokens=100)))
        received = connection.recv(300)
        connection.sendall(post(chat()))
        while piece := connection.recv(65536):
            received += piece
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert received.count(b"HTTP/1.1 ") == 1


def test_too_many_connections(bed: Bed, pair: Pair) -> None:
    """One more than allowed is told so; when one leaves, the next is served."""
    front = bed.front(pair[1], settings={"max_connections": 3})
    held = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(3)]
    try:
        refused = raw(front.port, b"")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in refused
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: ask(front.port, "GET", "/healthz").status == 200)


def test_a_slow_reader_costs_no_memory_and_is_dropped(bed: Bed) -> None:
    """The engine's side waits for a client that does not read; at last it is dropped and the engine's work stops."""
    sim = bed.sim(step_ms=0, chunk_chars=20_000, chunks=8000, context_tokens=10**6)
    front = bed.front(sim, settings={"write_timeout_s": 1.0})
    before = front.resident_bytes()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", front.port))
        connection.sendall(post(chat(stream=True)))
        wait_until(lambda: sim.metric("requests_aborted_total") == 1)
    assert front.resident_bytes() - before < 20_000_000
    assert ask(front.port, "GET", "/healthz").status == 200
    assert front.metric('outrider_requests_total{lane="interactive",outcome="client_gone"}') == 1


def test_a_reader_that_pauses_gets_everything(bed: Bed) -> None:
    """Held up for a while and then read on, a stream is whole."""
    sim = bed.sim(step_ms=0, chunk_chars=20_000, chunks=400, context_tokens=10**6)
    front = bed.front(sim)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.connect(("127.0.0.1", front.port))
        connection.sendall(post(chat(stream=True), "connection: close"))
        time.sleep(0.3)
        received = b""
        while piece := connection.recv(1 << 20):
            received += piece
    assert received.count(b'"content":"tok') == 400
    assert received.endswith(b"0\r\n\r\n")


def test_events_survive_any_cut_by_the_network(pair: Pair) -> None:
    """A stream read byte by byte is the stream."""
    front, _ = pair
    whole = ask(front.port, "POST", CHAT, chat(stream=True)).body
    assert payloads(whole)[-1] == "[DONE]"
    with socket.create_connection(("127.0.0.1", front.port), timeout=30) as connection:
        for byte in post(chat(stream=True), "connection: close"):
            connection.sendall(bytes([byte]))
        received = b""
        while piece := connection.recv(1):
            received += piece
    events = [part for part in received.split(b"\r\n") if part.startswith(b"data:")]
    assert b"".join(events) == whole


def test_a_reader_that_asks_on_without_reading_costs_no_memory(bed: Bed) -> None:
    """Answers of the front's own, asked for on one connection and never read: they do not pile up, and it is dropped."""
    models = [f"{number:x}" for number in range(3000)]
    front = bed.front(settings={"write_timeout_s": 1.0, "models": models})
    with socket.create_connection(("127.0.0.1", front.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = most = front.resident_bytes()
        dropped = False
        for _ in range(300):
            try:
                connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            except OSError:
                dropped = True
                break
            time.sleep(0.02)
            most = max(most, front.resident_bytes())
        assert dropped
        assert most - before < 32 * 1024 * 1024


def test_a_reader_that_catches_up_is_answered_on(bed: Bed) -> None:
    """One that takes its time over a large answer of the front's own asks the next one on the same connection."""
    front = bed.front(settings={"models": [f"{number:x}" for number in range(12_000)]})
    with socket.socket() as connection:
        connection.settimeout(30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", front.port))
        with connection.makefile("rb") as answers:
            for _ in range(3):
                connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
                time.sleep(0.2)
                assert b" 200 " in answers.readline()
                fields = dict(line.split(b": ") for line in iter(answers.readline, b"\r\n"))
                assert len(answers.read(int(fields[b"content-length"]))) > 500_000

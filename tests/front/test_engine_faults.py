"""Engines that fail, stall, die and come back: what was begun ends with an error event, what waits is kept."""

import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from tests.front.harness import CHAT, Answer, Bed, Front, Sim, ask, chat, payloads, post, rest, wait_until


def begin_stream(
    front: Front, **members: object
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A stream whose head has come."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    connection.request("POST", CHAT, chat(stream=True, **members), {"content-type": "application/json"})
    return connection, connection.getresponse()


def later(pool: ThreadPoolExecutor, front: Front, body: bytes) -> Callable[[], Answer]:
    """A request under way in a thread; call for its answer."""
    return pool.submit(ask, front.port, "POST", CHAT, body).result


def test_a_client_that_goes_frees_its_slot_and_stops_the_engine(bed: Bed) -> None:
    """In mid-stream: the engine sees its client go, and the next request has the place at once."""
    sim = bed.sim(step_ms=20)
    front = bed.front(sim, concurrency=1)
    connection, response = begin_stream(front, max_tokens=4000)
    response.read(10)
    connection.close()
    response.close()
    wait_until(lambda: sim.metric("requests_aborted_total") == 1)
    assert ask(front.port, "POST", CHAT, chat(max_tokens=1)).status == 200
    assert front.metric('outrider_requests_total{lane="interactive",outcome="client_gone"}') == 1


def test_a_client_that_goes_while_it_waits_is_never_sent(bed: Bed) -> None:
    """Its request leaves the queue."""
    sim = bed.sim(step_ms=20)
    front = bed.front(sim, concurrency=1)
    connection, response = begin_stream(front, max_tokens=4000)
    waiting = http.client.HTTPConnection("127.0.0.1", front.port)
    waiting.request("POST", CHAT, chat(), {"content-type": "application/json"})
    wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 1)
    waiting.close()
    wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 0)
    connection.close()
    response.close()
    wait_until(lambda: front.metric("outrider_requests_running") == 0)
    assert sim.metric("requests_total") == 1


def test_a_cut_stream_ends_with_an_error_event(bed: Bed) -> None:
    """The client gets what came, an event in OpenAI's form, no [DONE], and a connection that ends in good order."""
    front = bed.front(bed.sim(cut_after=2))
    answer = ask(front.port, "POST", CHAT, chat(stream=True))
    events = payloads(answer.body)
    assert answer.status == 200
    assert sum(bool(e.get("choices", [{}])[0].get("delta", {}).get("content")) for e in events[:-1]) == 2
    assert events[-1]["error"]["code"] == "engine_lost"
    assert front.metric('outrider_requests_total{lane="interactive",outcome="engine_error"}') == 1


def test_an_engine_that_dies_before_its_answer_is_502(bed: Bed) -> None:
    """A request that does not stream gets its error as a status."""
    sim = bed.sim(ttft_ms=60_000)
    front = bed.front(sim)
    with ThreadPoolExecutor() as pool:
        answer = later(pool, front, chat())
        wait_until(
            lambda: front.metric("outrider_requests_running") == 1 and sim.metric("requests_running") == 1
        )
        time.sleep(1.1)  # long enough that it cannot have been a stale connection
        sim.kill()
        assert answer().status == 502
    assert answer().error["code"] == "engine_lost"


def test_an_engine_killed_in_mid_stream_keeps_the_queue(bed: Bed) -> None:
    """The stream ends with an error event; those that wait are answered by the engine that comes back."""
    sim = bed.sim(step_ms=20)
    front = bed.front(sim, concurrency=1)
    connection, response = begin_stream(front, max_tokens=4000)
    with ThreadPoolExecutor() as pool:
        answers = [later(pool, front, chat(max_tokens=1)) for _ in range(5)]
        wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 5)
        sim.kill()
        assert payloads(response.read())[-1]["error"]["code"] == "engine_lost"
        connection.close()
        time.sleep(0.3)
        assert front.metric('outrider_requests_waiting{lane="interactive"}') >= 4
        assert front.metric("queue_wait_ms") > 250
        revived = bed.sim(port=sim.port)
        assert [answer().status for answer in answers] == [200] * 5
    assert revived.metric("requests_total") == 5


def test_a_stale_connection_is_tried_again_once(bed: Bed) -> None:
    """An engine that closes a kept-alive connection as we send into it does not cost the client its request."""
    sim = bed.sim(reuse="false", ttft_ms=1, step_ms=1)
    front = bed.front(sim)
    assert [ask(front.port, "POST", CHAT, chat()).status for _ in range(4)] == [200] * 4


def test_a_queue_that_is_full_says_when_to_come_back(bed: Bed) -> None:
    """429 with Retry-After, at once."""
    front = bed.front(
        bed.sim(step_ms=20), concurrency=1, settings={"lanes": {"interactive": {"max_queue": 1}}}
    )
    connection, _ = begin_stream(front, max_tokens=4000)
    with ThreadPoolExecutor() as pool:
        later(pool, front, chat(max_tokens=1))
        wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 1)
        answer = ask(front.port, "POST", CHAT, chat())
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        connection.close()


def test_waiting_too_long_is_503(bed: Bed) -> None:
    """With no engine at all a request waits its lane's time, then is told to come back."""
    front = bed.front(settings={"lanes": {"interactive": {"queue_timeout_s": 0.4}}})
    begun = time.monotonic()
    answer = ask(front.port, "POST", CHAT, chat())
    assert (answer.status, answer.error["code"]) == (503, "queue_timeout")
    assert int(answer.headers["retry-after"]) >= 1
    assert 0.3 < time.monotonic() - begun < 20


def test_the_deadline_of_an_answer(bed: Bed) -> None:
    """An engine that stalls: 504, or an error event where the stream has begun; its work is stopped."""
    sim = bed.sim(ttft_ms=10_000)
    front = bed.front(sim, settings={"request_timeout_s": 0.5})
    answer = ask(front.port, "POST", CHAT, chat())
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    sim.script(ttft_ms=1, stall_after=2)
    events = payloads(ask(front.port, "POST", CHAT, chat(stream=True)).body)
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    wait_until(lambda: sim.metric("requests_aborted_total") == 2)
    assert front.metric('outrider_requests_total{lane="interactive",outcome="deadline"}') == 2


def test_interactive_before_batch(bed: Bed) -> None:
    """By the lane of their keys, whoever came first."""
    rules = [
        {"name": lane, "sha256": hashlib.sha256(lane.encode()).hexdigest(), "lane": lane}
        for lane in ("interactive", "batch")
    ]
    front = bed.front(bed.sim(step_ms=20), concurrency=1, settings={"keys": rules})
    order: list[str] = []

    def run(lane: str, tokens: int = 1) -> None:
        body = chat(max_tokens=tokens)
        assert ask(front.port, "POST", CHAT, body, Authorization=f"Bearer {lane}").status == 200
        order.append(lane)

    first = threading.Thread(target=run, args=("interactive", 150))
    first.start()
    wait_until(lambda: front.metric("outrider_requests_running") == 1)
    others = []
    for number, lane in enumerate(("batch", "interactive")):
        others.append(threading.Thread(target=run, args=(lane,)))
        others[-1].start()
        wait_until(
            lambda lane=lane, number=number: front.metric(f'outrider_requests_waiting{{lane="{lane}"}}') == 1
        )
    for thread in (first, *others):
        thread.join()
    assert order == ["interactive", "interactive", "batch"]


def test_least_in_flight_is_chosen(bed: Bed) -> None:
    """Two engines share the load evenly."""
    sims: list[Sim] = [bed.sim(ttft_ms=1000), bed.sim(ttft_ms=1000)]
    front = bed.front(*sims, concurrency=4)
    with ThreadPoolExecutor(8) as pool:
        answers = [later(pool, front, chat(max_tokens=1)) for _ in range(8)]
        assert [answer().status for answer in answers] == [200] * 8
    assert [sim.metric("requests_total") for sim in sims] == [4, 4]


def test_sigterm_drains(bed: Bed) -> None:
    """New work is answered 503, the stream and what waits finish, then the process ends well."""
    front = bed.front(bed.sim(step_ms=10), concurrency=1, drain_timeout_s=60.0)
    connection, response = begin_stream(front, max_tokens=300)
    with ThreadPoolExecutor() as pool:
        waiting = later(pool, front, chat(max_tokens=1))
        wait_until(lambda: front.metric('outrider_requests_waiting{lane="interactive"}') == 1)
        idle = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
        idle.request("GET", "/healthz")
        idle.getresponse().read()
        front.terminate()
        wait_until(lambda: ask(front.port, "GET", "/readyz").status == 503)
        refused = ask(front.port, "POST", CHAT, chat())
        assert (refused.status, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert ask(front.port, "GET", "/readyz").status == 503
        assert ask(front.port, "GET", "/metrics").status == 200
        assert payloads(response.read())[-1] == "[DONE]"
        assert waiting().status == 200
    connection.close()
    idle.close()
    assert front.process.wait(30) == 0


def test_a_new_connection_is_answered_in_a_drain(bed: Bed) -> None:
    """Connected before SIGTERM, asked after it: the answer says why, where a reset would say nothing. One that stays silent
    holds nothing up, and one that was answered before is closed."""
    front = bed.front(bed.sim(step_ms=10), drain_timeout_s=60.0)
    stream, _ = begin_stream(front, max_tokens=4000)
    kept, work, probe, silent = (
        socket.create_connection(("127.0.0.1", front.port), timeout=60) for _ in range(4)
    )
    with closing(stream), kept, work, probe, silent:
        kept.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: front.metric("outrider_client_connections") == 6)
        front.terminate()
        wait_until(lambda: ask(front.port, "GET", "/readyz").status == 503)
        assert kept.recv(1) == b""
        work.sendall(post(chat()))
        answer = rest(work)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in answer
        assert b'"shutting_down"' in answer
        probe.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b'"reason": "shutting down"' in rest(probe)
        stream.close()
        assert silent.recv(1) == b""
        assert front.process.wait(30) == 0


def test_a_drain_ends_in_time(bed: Bed) -> None:
    """A stream that outlasts the drain is told so, and the engine's work is stopped."""
    sim = bed.sim(step_ms=20)
    front = bed.front(sim, drain_timeout_s=0.3)
    connection, response = begin_stream(front, max_tokens=4000)
    front.terminate()
    assert payloads(response.read())[-1]["error"]["code"] == "shutting_down"
    connection.close()
    assert front.process.wait(30) == 0
    wait_until(lambda: sim.metric("requests_aborted_total") == 1)


def test_a_request_that_kills_engines_is_tried_once_more_at_most(bed: Bed) -> None:
    """An engine that dies of a request within the moment gets it a second time after its restart, and never a third."""
    sim = bed.sim(die_after_requests=0)
    front = bed.front(sim)
    with ThreadPoolExecutor() as pool:
        answer = later(pool, front, chat())
        sim.process.wait(30)
        revived = bed.sim(port=sim.port, die_after_requests=0)
        assert answer().status == 502
    revived.process.wait(30)
    last = bed.sim(port=sim.port)
    assert ask(front.port, "POST", CHAT, chat()).status == 200
    assert last.metric("requests_total") == 1


def test_a_drain_waits_for_what_a_slow_client_has_not_read(bed: Bed) -> None:
    """The last bytes of an answer are not cut off because the engine was done with it."""
    front = bed.front(
        bed.sim(step_ms=0, chunk_chars=20_000, chunks=400, context_tokens=10**6), drain_timeout_s=60.0
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.connect(("127.0.0.1", front.port))
        connection.sendall(post(chat(stream=True)))
        received = connection.recv(1000)
        front.terminate()
        time.sleep(0.3)
        while piece := connection.recv(1 << 20):
            received += piece
            time.sleep(0.001)
    assert received.count(b'"content":"tok') == 400
    assert received.endswith(b"0\r\n\r\n")
    assert front.process.wait(30) == 0

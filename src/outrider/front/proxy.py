"""One request on its way to an engine and its answer on its way back."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from outrider.control.upstreams import Upstream
from outrider.core.errors import RequestError
from outrider.core.latency import RequestTiming
from outrider.engines.base import RequestAcceptance
from outrider.front.auth import Caller
from outrider.front.body import EditedBody
from outrider.front.errors import engine_fault, error_body, openai_error
from outrider.front.http import JSON, Header, passed_headers
from outrider.front.journal import RequestRecord
from outrider.front.pool import UpstreamConnection
from outrider.front.routes import Route
from outrider.front.stream import UsageFilter

if TYPE_CHECKING:
    from outrider.front.dispatch import Dispatcher

# A connection that breaks this soon after a request was sent into it, without a byte back, was being closed already: an
# idle one that had come of age, or one of an engine that was just ending. Such a request is sent once more: at once, or
# when the engine is there again.
STALE_WITHIN_S = 1.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_COUNT = 10**9


class Asked(NamedTuple):
    """What one client asks, checked and edited."""

    request_id: str
    trace_id: str
    trace_headers: list[Header]
    caller: Caller
    route: Route
    body: EditedBody
    arrived_s: float


class Client(Protocol):
    """The client's side of an exchange; it adds the request id and the framing."""

    def respond(self, status: int, headers: list[Header], body: bytes) -> None:
        """A whole answer."""

    def begin_stream(self, status: int, headers: list[Header]) -> None:
        """The head of a stream; it leaves with the first `send`."""

    def send(self, data: bytes) -> None:
        """More of the stream."""

    def end_stream(self, data: bytes, error: RequestError | None = None) -> None:
        """The last of the stream; with an error, its event comes after it and the connection closes."""

    def refuse(self, error: RequestError) -> None:
        """An error in place of an answer."""


class Exchange:
    """One request from the queue to its end. Ends exactly once, by `_finish` or, while it waits, by `refuse`.

    It is its own ticket in the queue."""

    __slots__ = (
        "_alike_s",
        "_answer_bytes",
        "_answered",
        "_busy_s",
        "_client",
        "_connection",
        "_deadline_s",
        "_device_s",
        "_dispatched_s",
        "_dispatcher",
        "_draft",
        "_ended",
        "_filter",
        "_first_s",
        "_headers",
        "_last_s",
        "_parts",
        "_retried",
        "_sent_s",
        "_status",
        "_upstream",
        "arrived_s",
        "asked",
        "key",
        "lane",
        "limit",
    )

    def __init__(self, dispatcher: Dispatcher, client: Client, asked: Asked) -> None:
        self.asked = asked
        self.key = asked.caller.name
        self.lane = asked.caller.lane
        self.limit = asked.caller.max_concurrency
        self.arrived_s = asked.arrived_s
        self._dispatcher = dispatcher
        self._client = client
        self._connection: UpstreamConnection | None = None
        self._upstream: Upstream | None = None
        self._filter: UsageFilter | None = None
        self._parts: list[bytes] = []
        self._status = self._answer_bytes = 0
        self._headers: list[Header] = []
        self._draft: str | None = None
        self._answered = self._retried = self._ended = False
        self._deadline_s = math.inf
        self._busy_s = self._alike_s = self._device_s = self._sent_s = 0.0
        self._dispatched_s: float | None = None
        self._first_s: float | None = None
        self._last_s: float | None = None

    # ---- to the engine

    def dispatch(self, upstream: Upstream, now_s: float) -> None:
        """Send it to `upstream`, stamped with the draft in force, or the one that the engine always runs."""
        dispatcher = self._dispatcher
        wanted = dispatcher.draft.next() if self.asked.route.stamped else None
        draft = wanted and (upstream.draft or wanted)
        upstream.begin(now_s, draft)
        self._upstream = upstream
        self._draft = draft
        self._busy_s = upstream.busy_s(now_s)
        self._device_s = upstream.device.so_far_s(now_s)
        self._alike_s = upstream.alike_s(now_s, draft)
        self._dispatched_s = now_s
        self._deadline_s = now_s + dispatcher.settings.request_timeout_s
        self._send(dispatcher.pool.take(upstream))

    def _send(self, connection: UpstreamConnection | None) -> None:
        upstream, dispatcher = self._upstream, self._dispatcher
        if upstream is None:
            return
        body = self.asked.body.stamped(dispatcher.stamp(self._draft))
        head = _request_head(self.asked, upstream, len(body))
        self._sent_s = dispatcher.now()
        self._connection = connection
        if connection is None:
            dispatcher.pool.open(upstream, self, head, body)
        else:
            connection.send(self, head, body)

    # ---- from the pool

    def connected(self, connection: UpstreamConnection) -> bool:
        """Whether the new connection is still wanted."""
        if not self._ended:
            self._connection = connection
        return not self._ended

    def unreachable(self) -> None:
        """Nothing came of it: the request waits on, first in its lane, until an engine is there again."""
        if self._ended or self._upstream is None:
            return
        upstream, self._upstream = self._upstream, None
        self._dispatched_s = None
        self._deadline_s = math.inf
        self._dispatcher.put_back(self, upstream, self._draft)

    def answer_begun(self, status: int, headers: list[Header]) -> None:
        """A stream is passed on as it comes; anything else is collected, to be answered whole."""
        self._answered = True
        self._status, self._headers = status, headers
        kind = next((value for name, value in headers if name.lower() == b"content-type"), b"")
        if status == 200 and kind.startswith(b"text/event-stream"):
            self._filter = UsageFilter(self.asked.body.usage_is_ours)
            self._client.begin_stream(status, passed_headers(headers))

    def answer_data(self, data: bytes, ended: bool) -> None:
        """The hot path of a stream: one call per read."""
        if self._ended:
            return
        stream = self._filter
        if stream is None:
            self._parts.append(data)
            self._answer_bytes += len(data)
            if self._answer_bytes > MAX_ANSWER_BYTES:
                self._drop()
                message = f"The engine's answer is larger than {MAX_ANSWER_BYTES} bytes."
                self._fail(engine_fault(message, code="answer_too_large"))
            elif ended:
                self._answer_whole()
            return
        had_usage = stream.usage is not None
        out = stream.feed(data)
        if data and (stream.usage is None or not (had_usage or stream.usage_alone)):
            self._last_s = self._dispatcher.now()
            if self._first_s is None and stream.has_output:
                self._first_s = self._last_s
        if not ended:
            self._client.send(out)
            return
        self._client.end_stream(out + stream.end())
        # An engine that fails in mid-stream sends its own error event and no usage.
        failed = self.asked.route.usage_chunk and stream.usage is None
        self._finish("engine_error" if failed else "ok", stream.usage)

    def _answer_whole(self) -> None:
        body = b"".join(self._parts)
        if self._status in (401, 403):
            # Between the front and the engine; to the client it would look like its own key.
            self._fail(engine_fault("The engine refused the front's key.", code="engine_refused_key"))
        elif self._status >= 400:
            headers = [(b"content-type", JSON), *(h for h in self._headers if h[0].lower() == b"retry-after")]
            self._client.respond(self._status, headers, openai_error(self._status, body))
            self._finish("refused" if self._status < 500 else "engine_error", None)
        else:
            self._last_s = self._dispatcher.now()
            self._client.respond(self._status, passed_headers(self._headers), body)
            self._finish("ok", _json_object(body))

    def answer_broken(self, reused: bool) -> None:
        """The engine's connection broke before the answer was whole."""
        if self._ended:
            return
        stale = not self._answered and self._dispatcher.now() - self._sent_s < STALE_WITHIN_S
        if stale and not self._retried:
            self._retried = True
            if reused:
                self._send(None)
            else:
                self.unreachable()
            return
        self._fail(engine_fault("The engine ended before its answer did.", code="engine_lost"))

    def answer_fault(self, fault: Exception) -> None:
        """A fault of ours: told once in the log, and the request ends, whatever state it is in."""
        self._dispatcher.report(fault)
        if not self._ended:
            self._fail(
                engine_fault("The server failed to handle the answer.", status=500, code="internal_error")
            )

    # ---- from the client and the clock

    def client_gone(self) -> None:
        """Free the place and stop the engine's work."""
        if self._ended:
            return
        if self._upstream is None:
            self._ended = True
            self._dispatcher.abandon(self)
            return
        self._drop()
        self._finish("client_gone", None)

    def pause(self) -> None:
        """The client reads slower than the engine writes."""
        if self._connection is not None and not self._ended:
            self._connection.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._connection is not None and not self._ended:
            self._connection.resume()

    def check_deadline(self, now_s: float) -> None:
        """End it if its time is over."""
        if now_s > self._deadline_s and not self._ended:
            self._drop()
            limit = self._dispatcher.settings.request_timeout_s
            message = f"The answer took longer than the {limit:g} s this server allows."
            self._fail(engine_fault(message, status=504, code="deadline_exceeded"), "deadline")

    def stop(self) -> None:
        """The server stops and waits no longer."""
        if not self._ended:
            self._drop()
            self._fail(engine_fault("The server is shutting down.", status=503, code="shutting_down"))

    def refuse(self, error: RequestError) -> None:
        """It will not be dispatched."""
        self._ended = True
        self._client.refuse(error)

    # ---- ends

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()

    def _fail(self, error: RequestError, outcome: str = "engine_error") -> None:
        try:
            if self._filter is not None:
                self._client.end_stream(b"", error)
            else:
                self._client.respond(error.status, [(b"content-type", JSON)], error_body(error))
        finally:
            self._finish(outcome, None)

    def _finish(self, outcome: str, answer: dict[str, object] | None) -> None:
        """Give its place away, first and whatever happens then; write it down."""
        self._ended = True
        self._connection = None
        dispatcher, upstream, dispatched_s = self._dispatcher, self._upstream, self._dispatched_s
        if upstream is None or dispatched_s is None:
            return
        now_s = dispatcher.now()
        running_s, busy_s = now_s - dispatched_s, upstream.busy_s(now_s) - self._busy_s
        alike_s = upstream.alike_s(now_s, self._draft) - self._alike_s
        device_s = upstream.device.so_far_s(now_s) - self._device_s
        upstream.end(now_s, self._draft)
        dispatcher.release(self)
        try:
            batch = (
                (busy_s / running_s, alike_s / device_s) if running_s > 0 and device_s > 0 else (None, None)
            )
            dispatcher.ended(self._record(outcome, answer, now_s, *batch))
        except Exception as fault:  # a record that cannot be made must not hold up the queue
            dispatcher.report(fault)
        dispatcher.pump()

    def _record(
        self,
        outcome: str,
        answer: dict[str, object] | None,
        now_s: float,
        batch: float | None,
        alike_ratio: float | None,
    ) -> RequestRecord:
        dispatcher = self._dispatcher
        usage = answer.get("usage") if answer else None
        tokens = usage if isinstance(usage, dict) else {}
        return RequestRecord(
            request_id=self.asked.request_id,
            lane=self.asked.caller.lane,
            outcome=outcome,
            timing=RequestTiming(
                arrived_s=self.asked.arrived_s,
                dispatched_s=self._dispatched_s,
                first_token_s=self._first_s,
                last_token_s=self._last_s if outcome == "ok" else None,
                output_tokens=_count(tokens.get("completion_tokens")),
            ),
            ended_s=now_s,
            trace_id=self.asked.trace_id,
            draft=self._draft,
            engine=self._upstream.name if self._upstream else "",
            batch=batch,
            alike_ratio=alike_ratio,
            prompt_tokens=_count(tokens.get("prompt_tokens")),
            acceptance=_sane(dispatcher.engine.request_acceptance(answer)) if answer else None,
            single=self.asked.body.single,
            key=self.key if dispatcher.settings.keys else "",
        )


def _request_head(asked: Asked, upstream: Upstream, length: int) -> bytes:
    """The head sent to the engine: none of the client's headers but its ids."""
    lines = [
        f"POST {asked.route.path} HTTP/1.1\r\nhost: {upstream.host}:{upstream.port}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\nx-request-id: {asked.request_id}\r\n".encode()
    ]
    if upstream.api_key:
        lines.append(b"authorization: Bearer " + upstream.api_key.encode() + b"\r\n")
    lines += [b"%b: %b\r\n" % header for header in asked.trace_headers]
    lines.append(b"\r\n")
    return b"".join(lines)


def _json_object(body: bytes) -> dict[str, object] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _sane(seen: RequestAcceptance | None) -> RequestAcceptance | None:
    """Acceptance as the engine tells it, unless a number in it cannot be."""
    if seen is None:
        return None
    for value in (seen.drafts, seen.proposed_tokens, seen.accepted_tokens):
        if value is not None and _count(value) is None:
            return None
    return seen


def _count(value: object) -> int | None:
    """A token count of the engine's; None for what cannot be one."""
    sane = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if sane and isinstance(value, int) else None

"""The client's side: one protocol per connection. Framing, limits and timeouts; what is asked is the app's business.

One request at a time: bytes that come while one is being answered (pipelining) are not read, and the connection closes
after that answer, as HTTP allows. A refusal before the whole body has come closes the connection too, after a moment
in which what the client still sends is thrown away, so that it gets to read why.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

import httptools

from outrider.core.errors import RequestError
from outrider.front.auth import ANYBODY, Caller
from outrider.front.errors import bad_request, engine_fault, error_body, error_event, overloaded
from outrider.front.http import CONTINUE, JSON, LAST_CHUNK, Header, head
from outrider.front.proxy import Exchange
from outrider.front.routes import Route
from outrider.front.settings import (
    IDLE_CLIENT_S,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_HELD_BODY_BYTES,
    FrontSettings,
)

LINGER_S = 2.0


class App(Protocol):
    """What a connection asks of the front."""

    settings: FrontSettings
    connections: set[ClientConnection]
    draining: bool
    held_bytes: int

    def check_head(self, request: ClientConnection) -> None:
        """Refuse what can be refused before the body has come. Raises RequestError."""

    def handle(self, request: ClientConnection, body: bytes) -> None:
        """Answer a whole request, now or later. Raises RequestError."""

    def error_headers(self, error: RequestError) -> list[Header]:
        """Headers that belong to a refusal."""
        ...

    def refused(self, request: ClientConnection, error: RequestError) -> None:
        """A request was refused before it was queued."""


class ClientConnection(asyncio.Protocol):
    """One client's connection, and the request it is at."""

    def __init__(self, app: App, clock: Callable[[], float]) -> None:
        self._app = app
        self._now = clock
        self._lingering = self._paused = self._chunked = self._answered = False
        self._unsent_bytes = 0
        self._held_bytes = 0
        self.exchange: Exchange | None = None
        # Set by the app once the head is here.
        self.path = ""
        self.route: Route
        self.caller: Caller = ANYBODY
        self._held_head = b""
        # One parser for all requests of the connection: it goes on where a request ended.
        self._parser = httptools.HttpRequestParser(self)
        self._begin()

    def _begin(self) -> None:
        """Ready for a request."""
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.request_id = ""
        self.method = ""
        self._body = bytearray()
        self._head_bytes = self._body_bytes = self._header_count = self._loose_bytes = 0
        self._started = self._head_whole = self._whole = self._keep_alive = False
        self._pipelined = False
        self._refusal: RequestError | None = None
        self.deadline_s = self._now() + IDLE_CLIENT_S

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client; one too many is told so."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # a stream protocol's transport
        self.deadline_s = self._now() + self._app.settings.body_timeout_s
        self._app.connections.add(self)
        if len(self._app.connections) > self._app.settings.max_connections:
            self.refuse(engine_fault("Too many connections.", status=503, code="too_many_connections"))

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if self._lingering:
            return
        if self._whole:
            self._pipelined = True
            return
        before = (self._head_whole, self._body_bytes)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refusal = bad_request("This server does not switch protocols.", code="upgrade_refused")
        except httptools.HttpParserError:
            self._refusal = self._refusal or bad_request("This is not HTTP/1.1.", code="invalid_http")
        # Reads that bring neither the end of the head nor body are a field, a trailer or a chunk's extension that does
        # not end: the parser holds them, and tells of them only once they are whole.
        moved = self._whole or before != (self._head_whole, self._body_bytes)
        self._loose_bytes = 0 if moved else self._loose_bytes + len(data)
        self._check_head_size()
        if self._refusal is not None:
            # Where the next request would begin is not certain.
            self._keep_alive = False
            self._app.refused(self, self._refusal)
            self.refuse(self._refusal)
        elif self._whole:
            body = bytes(self._body)
            self._body = bytearray()
            if not self._paused:
                self.deadline_s = math.inf
            try:
                self._app.handle(self, body)
            except RequestError as error:
                self._app.refused(self, error)
                self.refuse(error)
            except Exception as fault:  # the client gets an answer, whatever it is
                self._app.failed(self, fault)

    def eof_received(self) -> bool:
        """A client that closes its side is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what it holds."""
        self._app.connections.discard(self)
        self._lingering = True
        self._let_go()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone()

    def pause_writing(self) -> None:
        """The client reads slowly: the engine's side waits, and a client that reads nothing is dropped."""
        self._paused = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline_s = self._now() + self._app.settings.write_timeout_s
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        self._transport.resume_reading()
        busy = self._whole and not self._lingering
        self.deadline_s = math.inf if busy else self._now() + IDLE_CLIENT_S
        if self.exchange is not None:
            self.exchange.resume()

    # ---- httptools callbacks: exceptions must not pass through them, so they only take notes

    def on_message_begin(self) -> None:
        """The first byte of a request, or of a second one in the same read."""
        if self._whole:
            self._pipelined = True
            return
        self._started = True
        self.deadline_s = self._now() + self._app.settings.body_timeout_s

    def on_url(self, url: bytes) -> None:
        """Part of the request's target."""
        if not self._whole:
            self._head_bytes += len(url)
            self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; of repeated ones the first counts (the parser refuses repeated lengths). Trailers do not."""
        if self._head_whole:
            return
        self._header_count += 1
        self._head_bytes += len(name) + len(value)
        self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """Everything but the body is known."""
        if self._whole or self._refusal is not None:
            return
        self._head_whole = True
        self.method = self._parser.get_method().decode("latin-1")
        self._chunked = self._parser.get_http_version() == "1.1"
        self._check_head_size()
        if self._refusal is not None:
            return
        try:
            self._app.check_head(self)
            self._check_framing()
        except RequestError as error:
            self._refusal = error
            return
        if self.headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(CONTINUE)

    def on_body(self, data: bytes) -> None:
        """Part of the body."""
        if self._whole or self._refusal is not None:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._app.settings.max_body_bytes:
            self._refusal = self._too_large()
            self._body = bytearray()
            return
        self._held_bytes += len(data)
        self._app.held_bytes += len(data)
        if self._app.held_bytes > MAX_HELD_BODY_BYTES:
            self._refusal = overloaded(429, "Too many bodies are under way: try again later.", "queue_full")
            return
        self._body += data

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._whole or self._refusal is not None:
            return
        self._whole = True
        self._keep_alive = self._parser.should_keep_alive()

    def _check_head_size(self) -> None:
        if self._refusal is not None:
            return
        if max(self._head_bytes, self._loose_bytes) > MAX_HEAD_BYTES or self._header_count > MAX_HEADERS:
            message = (
                f"The head is larger than {MAX_HEAD_BYTES} bytes or has more than {MAX_HEADERS} headers."
            )
            self._refusal = RequestError(431, message, code="headers_too_large")

    def _check_framing(self) -> None:
        length = self.headers.get(b"content-length")
        coding = self.headers.get(b"transfer-encoding")
        if coding is not None and (length is not None or coding.lower() != b"chunked"):
            raise bad_request("Send Content-Length or `Transfer-Encoding: chunked`.", code="invalid_framing")
        bodiless = not (self.route.engine or self.route.takes_body)
        if bodiless and (coding is not None or length not in (None, b"0")):
            raise RequestError(413, f"{self.route.path} takes no body.", code="body_too_large")
        if length is not None and (not length.isdigit() or int(length) > self._app.settings.max_body_bytes):
            raise self._too_large()

    def _too_large(self) -> RequestError:
        limit = self._app.settings.max_body_bytes
        return RequestError(
            413, f"The body is larger than the {limit} bytes this server takes.", code="body_too_large"
        )

    # ---- answers

    def respond(self, status: int, headers: list[Header], body: bytes) -> None:
        """A whole answer; a HEAD request gets its head alone."""
        keep = self._may_stay()
        start = head(status, self._with_id(headers), keep_alive=keep, length=len(body))
        self._transport.write(start if self.method == "HEAD" else start + body)
        self._end(keep)

    def refuse(self, error: RequestError) -> None:
        """An error as the answer."""
        self.respond(
            error.status, [(b"content-type", JSON), *self._app.error_headers(error)], error_body(error)
        )

    def begin_stream(self, status: int, headers: list[Header]) -> None:
        """The head of a stream, held until its first piece: one system call for both."""
        framing = [(b"transfer-encoding", b"chunked")] if self._chunked else []
        keep = self._chunked and self._may_stay()
        self._held_head = head(status, [*self._with_id(headers), *framing], keep_alive=keep, length=None)
        if self._paused and self.exchange is not None:
            # It has not even read its last answer yet.
            self.exchange.pause()

    def send(self, data: bytes) -> None:
        """More of the stream, as one chunk; nothing at all sends the head alone."""
        if data and self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._held_head:
            data = self._held_head + data
            self._held_head = b""
        if data:
            self._transport.write(data)

    def end_stream(self, data: bytes, error: RequestError | None = None) -> None:
        """The last of the stream, and its end: in good order, or with an error's event."""
        if error is not None:
            data += error_event(error)
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + LAST_CHUNK
        self._transport.write(self._held_head + data)
        self._held_head = b""
        self._end(error is None and self._chunked and self._may_stay())

    def _may_stay(self) -> bool:
        return self._whole and self._keep_alive and not self._pipelined and not self._app.draining

    def _with_id(self, headers: list[Header]) -> list[Header]:
        return [*headers, (b"x-request-id", self.request_id.encode())] if self.request_id else headers

    def _end(self, keep: bool) -> None:
        self.exchange = None
        self._answered = True
        self._let_go()
        if keep:
            self._begin()
            if self._paused:
                # What it asks next would be answered on top of what it has not read yet.
                self._transport.pause_reading()
                self.deadline_s = self._now() + self._app.settings.write_timeout_s
        else:
            self._linger()

    def _let_go(self) -> None:
        """Its body is no longer held."""
        self._app.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _linger(self) -> None:
        """Close our side, and throw away what still comes for a moment, so that the answer is not lost to a reset."""
        self._lingering = True
        self._body = bytearray()
        if self._transport.is_closing():
            return
        if not self._paused:
            self.deadline_s = self._now() + LINGER_S
        self._transport.write_eof()

    # ---- time

    def expire(self, now_s: float) -> None:
        """Its deadline has passed: what that means depends on what it was at."""
        if self._paused:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:
                self._unsent_bytes = unsent
                self.deadline_s = now_s + self._app.settings.write_timeout_s
                return
            self._transport.abort()
        elif self._lingering or not self._started:
            self._transport.abort() if self._lingering else self._transport.close()
        else:
            limit = self._app.settings.body_timeout_s
            error = RequestError(
                408, f"The request did not arrive within {limit:g} s.", code="request_timeout"
            )
            self._app.refused(self, error)
            self.refuse(error)

    def close_if_idle(self) -> None:
        """For a drain: a kept-alive connection between requests has nothing to wait for.

        A new one has: its first request may be on the way, and is told that the server is shutting down."""
        if self._answered and not self._started:
            self._transport.close()

    @property
    def gone(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self._lingering or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not left yet."""
        return self._transport.get_write_buffer_size()

    def hang_up(self) -> None:
        """For the end: close once what is written has left."""
        self._transport.close()

"""Connections to engines: HTTP/1.1, kept alive, one request at a time on each.

Framing is httptools' business; what a read brings goes to the exchange in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import httptools

from outrider.control.upstreams import Upstream
from outrider.front.http import Header

# Below the keep-alive time of uvicorn (5 s), so that a request is seldom sent into a connection that is being closed.
MAX_IDLE_S = 4.0
CONNECT_TIMEOUT_S = 5.0
MAX_HEAD_BYTES = 64 * 1024


class Receiver(Protocol):
    """Who asked: told of the answer in this order, until the body has `ended` or the connection broke."""

    def connected(self, connection: UpstreamConnection) -> bool:
        """A new connection is there for it; False when it is no longer wanted."""
        ...

    def answer_begun(self, status: int, headers: list[Header]) -> None:
        """The head is here."""

    def answer_data(self, data: bytes, ended: bool) -> None:
        """More of the body, or its end, or both; comes right after the head, be it empty."""

    def answer_broken(self, reused: bool) -> None:
        """The connection broke before the answer was whole; `reused` says that it had served before."""

    def answer_fault(self, fault: Exception) -> None:
        """Something went wrong on our side while it was told of the answer; the connection is gone."""

    def unreachable(self) -> None:
        """No connection came to be, so nothing was sent."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to an engine."""

    def __init__(self, pool: UpstreamPool, upstream: Upstream) -> None:
        self.pool = pool
        self.upstream = upstream
        self.receiver: Receiver | None = None
        self.transport: asyncio.Transport | None = None
        self.idle_since_s = 0.0
        self._served = 0
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._parts: list[bytes] = []
        self._status = 0
        self._head_bytes = 0
        # The end of the head, or of the answer, came in this read; the head is whole; another answer follows the first.
        self._head_here = self._end_here = self._head_whole = self._excess = False
        self._paused = False
        self._until_close = False
        self._keep_alive = False

    def send(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Send a request; `receiver` gets the answer."""
        assert self.transport is not None  # noqa: S101  # only connected ones are handed out; narrows for mypy
        self.receiver = receiver
        self._headers = []
        self._head_bytes = 0
        self._head_whole = False
        self.transport.write(head + body)

    def drop(self) -> None:
        """Stop now: the engine sees its client go and ends the work. The receiver hears nothing more."""
        self.receiver = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Read nothing more for the moment: the client is slow."""
        if self.transport is not None and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.transport is not None and self._paused:
            self._paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = transport  # type: ignore[assignment]  # a stream protocol gets a stream transport

    def data_received(self, data: bytes) -> None:
        """The hot path: one call per read."""
        receiver = self.receiver
        if receiver is None:
            # An idle connection has nothing to say: out of step, so not to be used again.
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # What follows a whole answer spoils the connection, not the answer.
            self._excess = True
            if not self._end_here:
                self._break()
                return
        if not self._head_whole:
            self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._break()
            return
        try:
            self._tell(receiver)
        except Exception as fault:  # whatever it is must cost this one request alone
            self.drop()
            receiver.answer_fault(fault)

    def _tell(self, receiver: Receiver) -> None:
        begun = self._head_here
        if begun:
            self._head_here = False
            receiver.answer_begun(self._status, self._headers)
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if self._end_here:
            self._end()
            receiver.answer_data(body, True)
        elif body or begun:
            receiver.answer_data(body, False)

    def eof_received(self) -> bool:
        """The engine closes its side; the transport closes ours."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by the engine, the network, or us."""
        self.pool.forget(self)
        receiver = self.receiver
        if receiver is None:
            return
        if self._until_close and exc is None:
            self.receiver = None
            try:
                receiver.answer_data(b"", True)
            except Exception as fault:  # see data_received
                receiver.answer_fault(fault)
        else:
            self._break()

    # ---- httptools callbacks: exceptions must not pass through them, so they only take notes

    def on_message_begin(self) -> None:
        """An answer; a second one to the one request is out of step and never read."""
        self._excess = self._excess or self._end_here

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer; trailers are left out."""
        if not self._head_whole:
            self._head_bytes += len(name) + len(value)
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole (interim 1xx answers are skipped)."""
        if self._excess:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200:
            self._headers = []
            return
        self._head_here = self._head_whole = True
        names = {name.lower() for name, _ in self._headers}
        self._until_close = not names & {b"content-length", b"transfer-encoding"}

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._excess:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._excess:
            return
        self._end_here = self._status >= 200
        # Asked here, while the parser still knows.
        self._keep_alive = self._parser.should_keep_alive()

    # ---- ends

    def _end(self) -> None:
        """Back to the pool, before the receiver hears: what it starts next may use this very connection."""
        self.receiver = None
        self._end_here = False
        self._served += 1
        self.resume()
        if self._keep_alive and not self._excess:
            self.pool.give(self)
        elif self.transport is not None:
            self.transport.close()

    def _break(self) -> None:
        receiver, self.receiver = self.receiver, None
        if self.transport is not None:
            self.transport.abort()
        if receiver is not None:
            receiver.answer_broken(self._served > 0)


class UpstreamPool:
    """Idle connections by upstream, and new ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._now = clock
        self._idle: dict[Upstream, list[UpstreamConnection]] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def take(self, upstream: Upstream) -> UpstreamConnection | None:
        """The idle connection used last, if any is fresh enough."""
        idle = self._idle.get(upstream)
        while idle:
            connection = idle.pop()
            transport = connection.transport
            fresh = self._now() - connection.idle_since_s < MAX_IDLE_S
            if fresh and transport is not None and not transport.is_closing():
                return connection
            connection.drop()
        return None

    def open(self, upstream: Upstream, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Connect and send; `receiver.unreachable` if that fails."""
        task = self._loop.create_task(self._open(upstream, receiver, head, body))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, upstream: Upstream, receiver: Receiver, head: bytes, body: bytes) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(self, upstream), upstream.host, upstream.port
                )
        except OSError:  # a timeout is one, too
            receiver.unreachable()
            return
        if receiver.connected(connection):
            connection.send(receiver, head, body)
        else:
            self.give(connection)

    def give(self, connection: UpstreamConnection) -> None:
        """An idle connection comes back."""
        connection.idle_since_s = self._now()
        self._idle.setdefault(connection.upstream, []).append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection was lost."""
        idle = self._idle.get(connection.upstream)
        if idle and connection in idle:
            idle.remove(connection)

    def sweep(self) -> None:
        """Close connections idle for too long, and all of engines that are not ready."""
        horizon_s = self._now() - MAX_IDLE_S
        for upstream, idle in list(self._idle.items()):
            for connection in list(idle):
                if connection.idle_since_s < horizon_s or not upstream.ready:
                    idle.remove(connection)
                    connection.drop()
            if not idle:
                del self._idle[upstream]

    def close(self) -> None:
        """Drop everything idle and stop connecting."""
        for task in self._opening:
            task.cancel()
        for idle in self._idle.values():
            for connection in list(idle):
                connection.drop()
        self._idle.clear()

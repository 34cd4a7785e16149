"""A server that does not stop talking: each of its ways fills, or holds, whoever listens without a bound."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator

from tests.front.harness import RawEngine

HEAD = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"


def _frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(content: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _answer(way: str) -> Iterator[bytes]:
    """The pieces of one answer, without end."""
    if way == "error-body":
        yield HEAD % (b"500 Internal Server Error", b"text/plain")
    else:
        yield HEAD % (b"200 OK", b"text/event-stream")
    pieces = {
        "big-chunks": _frame(_event("x" * 2**20)),
        "no-line-end": _frame(b"x" * 2**20),
        "error-body": _frame(b"x" * 2**20),
        "trickle": _frame(b"#"),
        "small-chunks": b"".join(_frame(_event("x")) for _ in range(1000)),
    }
    while True:
        yield pieces[way]
        if way == "trickle":
            time.sleep(0.05)


class Flood(RawEngine):
    """Answers without end, as ``big-chunks``, ``no-line-end``, ``error-body``, ``small-chunks`` or a ``trickle``."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.sent = 0
        super().__init__()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 20)  # a test's request comes in one read
            for piece in _answer(self.way):
                connection.sendall(piece)
                self.sent += len(piece)

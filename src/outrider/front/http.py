"""Bytes of HTTP/1.1 heads, and which headers may pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus

Header = tuple[bytes, bytes]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in HTTPStatus
    if status >= 200
}
# Headers of the engine's answer that speak of its own connection, of itself, or that the front sets.
_NOT_PASSED = frozenset(
    {
        b"connection",
        b"content-length",
        b"date",
        b"keep-alive",
        b"proxy-authenticate",
        b"server",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[\x20-\x7e]{1,512}")

JSON = b"application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def head(status: int, headers: Iterable[Header], *, keep_alive: bool, length: int | None) -> bytes:
    """A response head; `length` None is a chunked body (or, without keep-alive to an old client, one until close)."""
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    lines.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(lines)


def passed_headers(headers: Iterable[Header]) -> list[Header]:
    """The engine's headers that a client gets."""
    return [(name, value) for name, value in headers if name.lower() not in _NOT_PASSED]


def sane_request_id(value: bytes) -> str:
    """The client's request id, or an empty string where it is not fit for logs and headers."""
    return value.decode() if _REQUEST_ID.fullmatch(value) else ""


def trace_headers(traceparent: bytes, tracestate: bytes) -> tuple[list[Header], str]:
    """The valid W3C trace headers to pass on, and the trace id for the log.

    Source: W3C Trace Context: version ff, an all-zero trace id and an all-zero parent id are invalid; tracestate has no
    meaning without a traceparent.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if not match or traceparent.startswith(b"ff") or not match[1].strip(b"0") or not match[2].strip(b"0"):
        return [], ""
    headers = [(b"traceparent", traceparent)]
    if _TRACESTATE.fullmatch(tracestate):
        headers.append((b"tracestate", tracestate))
    return headers, match[1].decode()

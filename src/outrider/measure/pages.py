"""Small answers of a server, such as a metrics page, read without trusting it: no more than a bound, no longer than a time."""

from __future__ import annotations

import time

import httpx

MOST_BYTES = 8 * 1024 * 1024


def read_body(
    client: httpx.Client, request: httpx.Request, within_s: float, most_bytes: int = MOST_BYTES
) -> bytes | None:
    """The body of a 200 answer. None where there is no such answer, where it is larger, or not whole after `within_s` seconds.

    A client's own timeouts are per read: a server that sends a byte now and then would hold it for ever.
    """
    deadline = time.monotonic() + within_s
    try:
        answer = client.send(request, stream=True)
    except httpx.HTTPError:
        return None
    try:
        if answer.status_code != 200:
            return None
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > most_bytes or time.monotonic() > deadline:
                return None
    except httpx.HTTPError:
        return None
    finally:
        answer.close()
    return bytes(body)

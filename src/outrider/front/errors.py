"""Refusals as HTTP: the one place where a RequestError becomes a status and an OpenAI error body.

Source: the error object of the OpenAI API reference: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import json

from outrider.core.errors import RequestError


def error_body(error: RequestError) -> bytes:
    """The JSON body of a refusal."""
    members = {
        "message": str(error),
        "type": error.kind,
        "param": error.param or None,
        "code": error.code or None,
    }
    return json.dumps({"error": members}, separators=(",", ":")).encode()


def error_event(error: RequestError) -> bytes:
    """A refusal inside a stream that has begun: one SSE event."""
    return b"data: " + error_body(error) + b"\n\n"


def bad_request(message: str, *, code: str = "", param: str = "") -> RequestError:
    """400: the client's mistake."""
    return RequestError(400, message, code=code, param=param)


def engine_fault(message: str, *, status: int = 502, code: str = "engine_error") -> RequestError:
    """502 and its kin: not the client's mistake."""
    return RequestError(status, message, kind="server_error", code=code)


def overloaded(status: int, message: str, code: str) -> RequestError:
    """429 or 503: come back later."""
    kind = "rate_limit_error" if status == 429 else "server_error"
    return RequestError(status, message, kind=kind, code=code)


def openai_error(status: int, body: bytes) -> bytes:
    """An engine's error answer in OpenAI's form: its own bytes if they have it, else wrapped.

    FastAPI's ``{"detail": …}`` and older engines' ``{"message": …}`` keep their message; any other text is not shown.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        inner = answer.get("error")
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return body
        texts = (answer.get("message"), answer.get("detail"), inner)
        message = next((text for text in texts if isinstance(text, str)), "")
    else:
        message = ""
    kind = "invalid_request_error" if status < 500 else "server_error"
    text = message or f"The engine answered with status {status}."
    return error_body(RequestError(status, text, kind=kind, code="engine_error"))

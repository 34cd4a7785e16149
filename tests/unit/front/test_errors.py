"""Errors in OpenAI's form, whatever form the engine's have."""

import json

import pytest

from outrider.front.errors import bad_request, error_body, error_event, openai_error


def test_error_body() -> None:
    """Exactly the four members, null where there is nothing."""
    assert json.loads(error_body(bad_request("no", code="c"))) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "c"}
    }
    assert error_event(bad_request("no")).endswith(b"}}\n\n")


def test_an_engines_error_in_form_keeps_its_bytes() -> None:
    """Spacing and further members included."""
    body = b'{ "error": {"message": "too long", "code": 400} }'
    assert openai_error(400, body) is body


@pytest.mark.parametrize(
    ("status", "body", "message", "kind"),
    [
        (404, b'{"detail":"Not Found"}', "Not Found", "invalid_request_error"),
        (400, b'{"object":"error","message":"too long"}', "too long", "invalid_request_error"),
        (401, b'{"error":"Unauthorized"}', "Unauthorized", "invalid_request_error"),
        (500, b"Internal Server Error: /secret/path", "The engine answered with status 500.", "server_error"),
        (503, b"", "The engine answered with status 503.", "server_error"),
        (422, b"[1]", "The engine answered with status 422.", "invalid_request_error"),
    ],
)
def test_other_errors_are_wrapped(status: int, body: bytes, message: str, kind: str) -> None:
    """A message is kept where there is one; text that could hold anything is not shown."""
    error = json.loads(openai_error(status, body))["error"]
    assert (error["message"], error["type"], error["code"]) == (message, kind, "engine_error")

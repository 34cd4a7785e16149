"""Texts and their tokens, asked of the engine that made them."""

from __future__ import annotations

import json

import httpx

from outrider.measure.pages import read_body

TIMEOUT_S = 10.0


def count_tokens(engine_url: str, model: str, text: str) -> int | None:
    """Tokens of a text by the engine's own tokenizer, without special ones; None where the engine has no such route.

    Source: vLLM 0.32 `entrypoints/serve/tokenize` (``POST /tokenize``).
    """
    asked = {"model": model, "prompt": text, "add_special_tokens": False}
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
        request = client.build_request("POST", f"{engine_url}/tokenize", json=asked)
        body = read_body(client, request, TIMEOUT_S)
    try:
        return None if body is None else int(json.loads(body)["count"])
    except (ValueError, KeyError, TypeError):
        return None

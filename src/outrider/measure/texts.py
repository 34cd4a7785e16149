"""Texts and their tokens, asked of the engine that made them."""

from __future__ import annotations

import httpx


def count_tokens(engine_url: str, model: str, text: str) -> int | None:
    """Tokens of a text by the engine's own tokenizer, without special ones; None where the engine has no such route.

    Source: vLLM 0.32 `entrypoints/serve/tokenize` (``POST /tokenize``).
    """
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    try:
        answer = httpx.post(f"{engine_url}/tokenize", json=body, timeout=10.0, trust_env=False)
        return int(answer.json()["count"]) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None

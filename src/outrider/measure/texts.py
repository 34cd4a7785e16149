"""Two greedy texts of one prompt: are they the same, and where do they part?"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import httpx

from outrider.measure.records import RequestRecord


def first_difference(text: str, other: str) -> int | None:
    """The first character at which two texts part (also where one ends); None if they are equal."""
    if text == other:
        return None
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))


def differences(
    records: Iterable[RequestRecord], baseline: Iterable[RequestRecord]
) -> tuple[int, dict[str, int]]:
    """How many texts were compared, and by prompt the character at which the first differing turn parts.

    Turns are compared in order until one differs: what follows has another history. Failed requests are not compared.
    """
    theirs = {(record.prompt_id, record.turn): record.text for record in baseline if record.ok}
    compared, parts = 0, {}
    for record in sorted(records, key=lambda record: (record.prompt_id, record.turn)):
        key = (record.prompt_id, record.turn)
        if not record.ok or key not in theirs or record.prompt_id in parts:
            continue
        compared += 1
        at = first_difference(record.text, theirs[key])
        if at is not None:
            parts[record.prompt_id] = at
    return compared, parts


def count_tokens(engine_url: str, model: str, text: str) -> int | None:
    """Tokens of a text by the engine's own tokenizer; None where the engine has no such route.

    Source: vLLM 0.32 `entrypoints/serve/tokenize` (``POST /tokenize`` without special tokens).
    """
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    try:
        answer = httpx.post(f"{engine_url}/tokenize", json=body, timeout=10.0, trust_env=False)
        return int(answer.json()["count"]) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None

"""Lines as aiperf 0.13.0 writes them, made by hand."""

import json
from typing import Any

Json = dict[str, Any]
START_NS = 5_000_000_000
WALL_NS = 1_700_000_000_000_000_000


def chunk(tokens: int | None = None, finish: str | None = None, **delta: object) -> str:
    """One chunk of a chat stream; `tokens` is the running completion count."""
    content: Json = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if tokens is not None:
        content["usage"] = usage(tokens)
    return json.dumps(content)


def usage(tokens: int) -> Json:
    """A usage member with 7 prompt tokens."""
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def last(tokens: int, **members: object) -> str:
    """The chunk after the last: usage, no choices."""
    return json.dumps({"choices": [], "usage": usage(tokens), **members})


def stream(*parts: tuple[float, str]) -> list[Json]:
    """Responses from (seconds after the request, data)."""
    return [
        {"perf_ns": START_NS + round(at_s * 1e9), "packets": [{"name": "data", "value": value}]}
        for at_s, value in parts
    ]


def line(responses: list[Json] | None = None, *, number: int = 0, **members: Any) -> str:
    """One line of the raw export; `number` shifts it by as many seconds."""
    responses = [{**part, "perf_ns": part["perf_ns"] + number * 10**9} for part in responses or []]
    start = START_NS + number * 10**9
    took = members.pop("took_ns", (responses[-1]["perf_ns"] - start) if responses else 0)
    metadata = {
        "x_request_id": f"request-{number}",
        "conversation_id": f"counted-{number:06}",
        "turn_index": 0,
        "benchmark_phase": "profiling",
        "request_start_ns": WALL_NS + number * 10**9,
        "request_end_ns": WALL_NS + number * 10**9 + took,
        **members.pop("metadata", {}),
    }
    raw = {"metadata": metadata, "start_perf_ns": start, "status": 200, "responses": responses, **members}
    return json.dumps(raw)


CUT = {
    "type": "ClientPayloadError",
    "message": "Response payload is not completed",
    "cause": "<TransferEncodingError: 400>",
    "cause_chain": ["ClientPayloadError", "TransferEncodingError"],
}
TIMEOUT = {
    "type": "TimeoutError",
    "message": "TimeoutError()",
    "cause_chain": ["TimeoutError", "CancelledError"],
}
REFUSED = {
    "type": "ClientConnectorError",
    "message": "ClientConnectorError(…)",
    "cause": "ConnectionRefusedError(111)",
    "cause_chain": ["ClientConnectorError", "ConnectionRefusedError"],
}
GONE = {
    "type": "ServerDisconnectedError",
    "message": "Server disconnected",
    "cause_chain": ["ServerDisconnectedError"],
}


def good(tokens: int = 5, start_s: float = 0.05, step_s: float = 0.01) -> list[Json]:
    """A whole stream of single tokens."""
    parts = [(start_s, chunk(0, role="assistant", content=""))]
    parts += [(start_s + index * step_s, chunk(index + 1, content="t")) for index in range(tokens)]
    end_s = parts[-1][0]
    return stream(
        *parts, (end_s, chunk(tokens, "length", content="")), (end_s, last(tokens)), (end_s, "[DONE]")
    )

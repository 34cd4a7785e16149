"""What the simulated engine does with requests: timings, sizes and faults, from flags or set while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviour of the simulated engine.

    `ttft_ms` and `step_ms` are the times to the first chunk and between chunks; `chunks` is the answer's length where a
    request sets no `max_tokens`. `accepted_per_draft` of `draft_length` tokens are accepted in every step of a drafted
    request. Faults: `ready` false answers health checks 503; `fail_requests` answers that many requests 500; `cut_after`
    closes a stream without its end after that many chunks; `stall_after` stops sending; `die_after_requests` ends the
    process on that request; `reuse` false closes a kept-alive connection when its second request arrives.
    """

    model: str = "sim"
    context_tokens: int = 8192
    ttft_ms: float = 5.0
    step_ms: float = 5.0
    tokens_per_chunk: int = 1
    chunks: int = 16
    chunk_chars: int = 5
    draft_length: int = 3
    accepted_per_draft: int = 2
    ready: bool = True
    fail_requests: int = 0
    cut_after: int = -1
    stall_after: int = -1
    die_after_requests: int = -1
    reuse: bool = True

    def changed(self, members: dict[str, object]) -> Script:
        """This script with some members set; unknown names raise ValueError."""
        known = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        if unknown := sorted(members.keys() - known.keys()):
            raise ValueError(f"unknown script members: {', '.join(unknown)}")
        return replace(self, **{name: known[name](value) for name, value in members.items()})


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request asks of the simulated engine."""

    chat: bool
    stream: bool
    usage: bool
    draft: str
    prompt_tokens: int
    chunks: int
    tokens: int


def read_ask(body: bytes, chat: bool, script: Script) -> Ask:
    """The request's facts. Raises ValueError with a message for the client where an engine would answer 400."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    options = request.get("stream_options") or {}
    prompt = json.dumps(request.get("messages", "")) if chat else str(request.get("prompt", ""))
    prompt_tokens = len(prompt.split())
    asked = request.get("max_tokens") or request.get("max_completion_tokens")
    tokens = asked or script.chunks * script.tokens_per_chunk
    if not isinstance(tokens, int) or tokens < 1:
        raise ValueError("max_tokens must be a positive integer")
    if asked and prompt_tokens + tokens > script.context_tokens:
        raise ValueError(f"This model's maximum context length is {script.context_tokens} tokens.")
    return Ask(
        chat=chat,
        stream=request.get("stream") is True,
        usage=bool(options.get("include_usage")),
        draft=str((request.get("vllm_xargs") or {}).get("outrider_draft", "none")),
        prompt_tokens=prompt_tokens,
        chunks=-(-tokens // script.tokens_per_chunk),
        tokens=tokens,
    )


def usage_members(ask: Ask, script: Script) -> dict[str, object]:
    """`usage` and, for a drafted request, `metrics` as vLLM sends them at the end of an answer."""
    usage = {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": ask.tokens,
        "total_tokens": ask.prompt_tokens + ask.tokens,
    }
    if ask.draft in ("none", "off"):
        return {"usage": usage}
    steps = max(ask.chunks - 1, 0)
    accepted = steps * script.accepted_per_draft
    spec = {
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "draft_acceptance_rate": script.accepted_per_draft / script.draft_length,
    }
    return {"usage": usage, "metrics": {"speculative_decoding": spec}}


def chunk_bytes(ask: Ask, script: Script, delta: str | None, finish: str | None) -> bytes:
    """One SSE event of the answer; `delta` None is the role chunk of a chat."""
    if ask.chat:
        content = {"role": "assistant", "content": ""} if delta is None else {"content": delta}
        choice: dict[str, object] = {"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}
    else:
        choice = {"index": 0, "text": delta or "", "logprobs": None, "finish_reason": finish}
    return event({**identity(ask, script), "choices": [choice]})


def identity(ask: Ask, script: Script) -> dict[str, object]:
    """The members every chunk begins with."""
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return {"id": "sim-1", "object": kind, "created": 1, "model": script.model}


def event(payload: dict[str, object]) -> bytes:
    """A payload as one SSE event, in the compact JSON engines send."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"

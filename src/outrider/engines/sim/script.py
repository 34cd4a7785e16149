"""What the simulated engine does with requests: timings, sizes and faults, from flags or set while it runs."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import cycle


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviour of the simulated engine.

    `ttft_ms` and `step_ms` are the times to the first chunk and between chunks; `chunks` is the answer's length where a
    request sets no `max_tokens`. `accepted_per_draft` of `draft_length` tokens are accepted in every step of a drafted
    request. Faults: `ready` false answers health checks 503; `fail_requests` answers that many requests 500; `cut_after`
    closes a stream without its end after that many chunks; `stall_after` stops sending; `die_after_requests` ends the
    process on that request; `reuse` false closes a kept-alive connection when its second request arrives.

    For measurements: `chunk_tokens` (``2,3``) are the tokens of the chunks after the first, which holds one, over and over;
    each is then a step whose tokens but one were accepted from a draft. `draft` is what a request without a stamp runs with.
    `rate_429`, `rate_500` and `rate_cut` are shares of requests, drawn from `seed` and the request's number: `fault` says
    which. Of the drafts named in `broken` (``eagle3,ngram``) nothing is accepted. `tells` false: answers do not say what was
    accepted, as of an old engine. Every request whose number (from 0) divides
    by `stall_every` stalls once, `stall_ms` before chunk `stall_at`.

    `ttft_table` and `step_table` (``1=23.8,8=31.3``: running requests and ms, linear in between) take the place of `ttft_ms` and
    `step_ms`: an engine that slows down as it fills, by times that were measured.
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
    chunk_tokens: str = ""
    draft: str = "none"
    broken: str = ""
    tells: bool = True
    seed: int = 0
    rate_429: float = 0.0
    rate_500: float = 0.0
    rate_cut: float = 0.0
    stall_ms: float = 0.0
    stall_at: int = 2
    stall_every: int = 1
    ttft_table: str = ""
    step_table: str = ""

    def changed(self, members: dict[str, object]) -> Script:
        """This script with some members set; unknown names raise ValueError."""
        known = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        if unknown := sorted(members.keys() - known.keys()):
            raise ValueError(f"unknown script members: {', '.join(unknown)}")
        return replace(self, **{name: known[name](value) for name, value in members.items()})

    def fault(self, number: int) -> str:
        """What goes wrong with the request of this number (from 0): ``429``, ``500``, ``cut`` or nothing."""
        drawn = random.Random(f"{self.seed}/{number}").random()  # noqa: S311  (a script, not a secret)
        for kind, rate in (("429", self.rate_429), ("500", self.rate_500), ("cut", self.rate_cut)):
            if drawn < rate:
                return kind
            drawn -= rate
        return ""

    def stall_s(self, number: int, chunk: int) -> float:
        """How much longer than a step this chunk of this request takes."""
        stalls = self.stall_ms > 0 and chunk == self.stall_at and number % self.stall_every == 0
        return self.stall_ms / 1e3 if stalls else 0.0

    def ttft_s(self, running: int) -> float:
        """Seconds to the first chunk with `running` requests, this one among them."""
        return (_at(_table(self.ttft_table), running) if self.ttft_table else self.ttft_ms) / 1e3

    def step_s(self, running: int) -> float:
        """Seconds between two chunks with `running` requests."""
        return (_at(_table(self.step_table), running) if self.step_table else self.step_ms) / 1e3

    def accepted(self, size: int, draft: str) -> int:
        """Draft tokens accepted in a step of a request with this draft that made a chunk of `size` tokens."""
        if draft in self.broken.split(","):
            return 0
        return min(size - 1, self.draft_length) if self.chunk_tokens else self.accepted_per_draft


@lru_cache(8)
def _table(text: str) -> tuple[tuple[float, float], ...]:
    rows = (part.partition("=") for part in text.split(","))
    return tuple(sorted((float(running), float(ms)) for running, _, ms in rows))


def _at(rows: tuple[tuple[float, float], ...], running: int) -> float:
    place = bisect_left(rows, (running, 0.0))
    if place in (0, len(rows)):
        return rows[min(place, len(rows) - 1)][1]
    (low, less), (high, more) = rows[place - 1], rows[place]
    return less + (more - less) * (running - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request asks of the simulated engine."""

    chat: bool
    stream: bool
    usage: bool
    draft: str
    prompt_tokens: int
    sizes: tuple[int, ...]
    running_usage: bool = False

    @property
    def chunks(self) -> int:
        """How many pieces the answer comes in."""
        return len(self.sizes)

    @property
    def tokens(self) -> int:
        """How long the answer is."""
        return sum(self.sizes)

    @property
    def drafted(self) -> bool:
        """Whether its steps have a draft."""
        return self.draft not in ("none", "off")


def chunk_sizes(tokens: int, script: Script) -> tuple[int, ...]:
    """The tokens of each chunk of an answer of `tokens` tokens; the last takes what is left."""
    if not script.chunk_tokens:
        full, rest = divmod(tokens, script.tokens_per_chunk)
        return (script.tokens_per_chunk,) * full + ((rest,) if rest else ())
    sizes, left = [1], tokens - 1
    for size in cycle([int(text) for text in script.chunk_tokens.split(",")]):
        if left <= 0:
            break
        sizes.append(min(size, left))
        left -= size
    return tuple(sizes)


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
        draft=str((request.get("vllm_xargs") or {}).get("outrider_draft", script.draft)),
        prompt_tokens=prompt_tokens,
        sizes=chunk_sizes(tokens, script),
        running_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
    )


def usage_of(ask: Ask, tokens: int) -> dict[str, object]:
    """`usage` after `tokens` output tokens."""
    return {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": ask.prompt_tokens + tokens,
    }


def usage_members(ask: Ask, script: Script) -> dict[str, object]:
    """`usage` and, for a drafted request, `metrics` as vLLM sends them at the end of an answer."""
    usage = usage_of(ask, ask.tokens)
    if not (ask.drafted and script.tells):
        return {"usage": usage}
    steps = max(ask.chunks - 1, 0)
    accepted = sum(script.accepted(size, ask.draft) for size in ask.sizes[1:])
    spec = {
        "num_spec_steps": steps,
        "num_draft_tokens": steps * script.draft_length,
        "num_accepted_draft_tokens": accepted,
        "draft_acceptance_rate": accepted / (steps * script.draft_length) if steps else 0.0,
    }
    return {"usage": usage, "metrics": {"speculative_decoding": spec}}


def chunk_bytes(
    ask: Ask, script: Script, delta: str | None, finish: str | None, usage: dict[str, object] | None = None
) -> bytes:
    """One SSE event of the answer; `delta` None is the role chunk of a chat, `usage` what was used up to here."""
    if ask.chat:
        content = {"role": "assistant", "content": ""} if delta is None else {"content": delta}
        choice: dict[str, object] = {"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}
    else:
        choice = {"index": 0, "text": delta or "", "logprobs": None, "finish_reason": finish}
    return event({**identity(ask, script), "choices": [choice], **({"usage": usage} if usage else {})})


def identity(ask: Ask, script: Script) -> dict[str, object]:
    """The members every chunk begins with."""
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return {"id": "sim-1", "object": kind, "created": 1, "model": script.model}


def event(payload: dict[str, object]) -> bytes:
    """A payload as one SSE event, in the compact JSON engines send."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"

"""One answered stream, chunk by chunk, to token events: what came when, by the engine's own running count.

Rules, each bought with somebody's wrong number:

- n_i is the growth of the running ``usage.completion_tokens``, not the number of chunks. A role chunk, an empty chunk and a
  keep-alive grow nothing and make no event.
- Chunks of one read carry one time: they are one event. A gap of zero between them would be the reader's, not the engine's.
- Reasoning (``reasoning_content``, ``reasoning``) and tool calls are output; only ``content`` is visible text.
- Text that is held back while the count grows delays the visible text, not the first token.
- An engine that counts at the end only (no running usage): each chunk with output is an event, and N is spread over them as
  evenly as whole tokens go. Times and step gaps are then right; tokens by event, and so token ITL and n_1, are estimates, and
  `Stream.estimated` says so. Even shares, because any better guess (by characters) would need the tokenizer we measure without.

Source: OpenAI chat completion chunks; vLLM 0.32 ``stream_options.continuous_usage_stats``; aiperf 0.13.0 raw export.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.engines.base import RequestAcceptance
from outrider.measure.records import RequestRecord, TokenEvent

DONE = "[DONE]"
MOST_TOKENS = 1_000_000  # one answer; more is a broken count, and a figure a token would take all memory


@dataclass(frozen=True, slots=True)
class Stream:
    """What one answer was made of; times in seconds of the generator's monotonic clock.

    `done`: it ended as it should. `error`: what the server said went wrong inside the stream, `error_code` its HTTP code or 0.
    `last_chunk` is the last one with a usage, whole: engines put what they say of drafts there. `fell`: the running count fell.
    `late`: events that came in one read with the one before, and were made one with it.
    """

    events: tuple[TokenEvent, ...] = ()
    first_text_s: float | None = None
    last_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish: str = ""
    text: str = ""
    done: bool = False
    error: str = ""
    error_code: int = 0
    last_chunk: Mapping[str, Any] = field(default_factory=dict)
    estimated: bool = False
    fell: bool = False
    late: int = 0


class _Reading:
    """What has been seen of a stream so far."""

    def __init__(self) -> None:
        self.growth: list[tuple[float, int]] = []
        self.output: list[float] = []
        self.text: list[str] = []
        self.running = 0
        self.counted_while_streaming = False
        self.first_text_s: float | None = None
        self.last_s: float | None = None
        self.usage: Mapping[str, Any] | None = None
        self.last_chunk: Mapping[str, Any] = {}
        self.finish = ""
        self.done = False
        self.error = ""
        self.error_code = 0
        self.fell = False

    def chunk(self, at_s: float, value: str) -> None:
        """One ``data:`` of the stream."""
        self.last_s = at_s
        if value.strip() == DONE:
            self.done = True
            return
        try:
            chunk = json.loads(value)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            self.error = self.error or f"a chunk that is not a JSON object: {value[:80]}"
            return
        if chunk.get("error"):
            self._error(chunk["error"])
        choices = chunk.get("choices") or []
        for choice in choices:
            self._choice(at_s, choice)
        usage = chunk.get("usage")
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(count, int) and not 0 <= count <= MOST_TOKENS:
            self.error = self.error or f"a token count nobody can believe: {count}"
        elif isinstance(usage, dict) and isinstance(count, int):
            self.usage, self.last_chunk = usage, chunk
            self._count(at_s, count, bool(choices))

    def _error(self, error: object) -> None:
        message = error.get("message") if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        self.error = str(message)
        self.error_code = code if isinstance(code, int) and 400 <= code < 600 else 0

    def _choice(self, at_s: float, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message") or {}
        visible = delta.get("content") or choice.get("text") or ""
        hidden = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if visible and self.first_text_s is None:
            self.first_text_s = at_s
        if visible or hidden or delta.get("tool_calls"):
            self.output.append(at_s)
            self.text += [part for part in (hidden, visible) if isinstance(part, str)]
        self.finish = choice.get("finish_reason") or self.finish

    def _count(self, at_s: float, tokens: int, streaming: bool) -> None:
        self.counted_while_streaming |= streaming
        if tokens < self.running:
            self.fell = True
        elif tokens > self.running:
            self.growth.append((at_s, tokens - self.running))
            self.running = tokens

    def stream(self) -> Stream:
        """The whole of it."""
        estimated = bool(self.output) and not self.counted_while_streaming
        total = self.usage["completion_tokens"] if self.usage else None
        growth = list(_spread(self.output, total)) if estimated else self.growth
        events = _merged(growth)
        prompt = self.usage.get("prompt_tokens") if self.usage else None
        return Stream(
            events=events,
            first_text_s=self.first_text_s,
            last_s=self.last_s,
            prompt_tokens=prompt if isinstance(prompt, int) else None,
            output_tokens=total,
            finish=self.finish,
            text="".join(self.text),
            done=self.done and not self.error,
            error=self.error,
            error_code=self.error_code,
            last_chunk=self.last_chunk,
            estimated=estimated,
            fell=self.fell,
            late=0 if estimated else len(growth) - len(events),
        )


def recorded(record: RequestRecord, stream: Stream, told: RequestAcceptance | None) -> RequestRecord:
    """The record with what came in its stream, but for the text, and what the engine `told` of its drafts."""
    told = told or RequestAcceptance()
    return replace(
        record,
        events=stream.events,
        first_text_s=stream.first_text_s,
        prompt_tokens=stream.prompt_tokens,
        output_tokens=stream.output_tokens,
        finish=stream.finish,
        steps=told.steps,
        drafts=told.drafts,
        proposed=told.proposed_tokens,
        accepted=told.accepted_tokens,
    )


def read_stream(responses: Iterable[Mapping[str, Any]]) -> Stream:
    """Read what arrived: objects with ``perf_ns`` and ``packets`` (SSE fields), or ``text`` (a whole JSON answer)."""
    reading = _Reading()
    for response in responses:
        at_s = response["perf_ns"] / 1e9
        if response.get("text") is not None:  # the server did not stream: all of it came in this moment
            reading.chunk(at_s, response["text"])
            reading.counted_while_streaming, reading.done = True, not reading.error
        for packet in response.get("packets") or ():
            if packet.get("name") == "data" and packet.get("value") is not None:
                reading.chunk(at_s, packet["value"])
    return reading.stream()


def _spread(output: list[float], total: int | None) -> Iterator[tuple[float, int]]:
    """The moments with output and their share of `total` tokens; one each if the server told no total."""
    moments = sorted(set(output))
    total = len(moments) if total is None else total
    for index, at_s in enumerate(moments):
        # Rounded up, so that the first event has a token whatever the total is.
        yield at_s, -(-(index + 1) * total // len(moments)) - -(-index * total // len(moments))


def _merged(growth: Iterable[tuple[float, int]]) -> tuple[TokenEvent, ...]:
    """Growth to events: what came at one time is one event, what grew nothing is none."""
    events: list[TokenEvent] = []
    for at_s, tokens in growth:
        if tokens <= 0:
            continue
        if events and events[-1].at_s == at_s:
            events[-1] = TokenEvent(at_s, events[-1].tokens + tokens)
        else:
            events.append(TokenEvent(at_s, tokens))
    return tuple(events)

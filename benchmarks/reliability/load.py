"""Sends a cell's requests and keeps what came back, chunk by chunk, with the time of each.

Not by aiperf, as `outrider bench` does: each of its starts takes both cores for seconds, here in the middle of traffic, and arms
must be sent the same requests at the same moments, late ones included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import httpx

from outrider.engines.vllm.metrics import request_acceptance
from outrider.measure.records import OK, RequestRecord
from outrider.measure.streams import Stream, read_stream, recorded

TIMEOUT_S = 120.0
MOST_BYTES = 4 * 2**20  # of one answer
Prompts = Iterator[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go, and how long every answer is (``ignore_eos``: the same work for every arm)."""

    url: str
    model: str
    output_tokens: int

    def body(self, prompt: str) -> dict[str, object]:
        """One greedy request. Source: OpenAI chat completions; ``ignore_eos``, ``continuous_usage_stats``: vLLM."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }


class Sender:
    """One cell's requests to one server. `records`: those that have ended, in order of their ends."""

    def __init__(self, server: Server, prompts: Callable[[str], Prompts]) -> None:
        self._server, self._prompts = server, prompts
        self.records: list[RequestRecord] = []

    async def open_loop(self, moments_s: Sequence[float]) -> None:
        """One request at each moment (seconds from now), whatever became of those before; until all have ended."""
        began_s, prompts = time.monotonic(), self._prompts("open")
        async with self._client() as client, asyncio.TaskGroup() as group:
            for number, (moment_s, prompt) in enumerate(zip(moments_s, prompts, strict=False)):
                await asyncio.sleep(max(began_s + moment_s - time.monotonic(), 0.0))
                # From the moment it was due: a sender that is late must not make the server look quick.
                group.create_task(self._one(client, f"open/{number}", prompt, began_s + moment_s))

    async def closed_loop(self, streams: int, length_s: float) -> None:
        """`streams` requests under way for `length_s` seconds; until the last ones have ended."""
        end_s, prompts = time.monotonic() + length_s, self._prompts("closed")

        async def stream(place: int) -> None:
            number = 0
            while time.monotonic() < end_s:
                name = f"closed/{place}/{number}"
                record = await self._one(client, name, next(prompts), time.monotonic())
                if not record.ok:  # a server that refuses at once is not asked a thousand times a second
                    await asyncio.sleep(1.0)
                number += 1

        async with self._client() as client, asyncio.TaskGroup() as group:
            for place in range(streams):
                group.create_task(stream(place))

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(base_url=self._server.url, timeout=TIMEOUT_S, limits=limits, trust_env=False)

    async def _one(
        self, client: httpx.AsyncClient, name: str, prompt: tuple[int, str], due_s: float
    ) -> RequestRecord:
        status, fault, pieces = None, "", []
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                client.stream("POST", "/v1/chat/completions", json=self._server.body(prompt[1])) as answer,
            ):
                status, size = answer.status_code, 0
                async for piece in answer.aiter_raw():
                    pieces.append((time.monotonic_ns(), piece))
                    size += len(piece)
                    if size > MOST_BYTES:
                        fault = "cut"
                        break
        except (TimeoutError, httpx.TimeoutException):
            fault = "timeout"
        except httpx.ConnectError:
            fault = "refused"
        except httpx.HTTPError:
            fault = "cut"
        ended_s = time.monotonic()
        stream = read_stream(packets(pieces))
        outcome = outcome_of(status, fault, stream, self._server.output_tokens)
        record = RequestRecord(
            id=name,
            prompt_id=str(prompt[0]),
            turn=0,
            started_s=due_s,
            ended_s=ended_s,
            outcome=outcome,
            reason="" if outcome == OK else stream.error[:200],
        )
        record = recorded(record, stream, request_acceptance(stream.last_chunk))
        self.records.append(record)
        return record


def packets(pieces: Sequence[tuple[int, bytes]]) -> Iterator[dict[str, object]]:
    """Reads (nanoseconds, bytes) as `read_stream` takes them: the ``data:`` lines, each at the time of the read that ended it."""
    rest = b""
    for at_ns, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        values = [line[5:].strip().decode("utf-8", "replace") for line in lines if line.startswith(b"data:")]
        if values:
            yield {"perf_ns": at_ns, "packets": [{"name": "data", "value": value} for value in values]}


def outcome_of(status: int | None, fault: str, stream: Stream, tokens: int) -> str:
    """How a request ended, by the names of `measure.records`; `tokens` is what was asked for, so what its answer must have."""
    if fault:
        return fault
    if status != 200:
        return f"http-{status}"
    if stream.error:
        return f"http-{stream.error_code}" if stream.error_code else "cut"
    if not stream.done:
        return "cut"
    return OK if stream.output_tokens == tokens else "tokens-missing"

"""A closed-loop load of streams over kept-alive connections, cheap enough not to disturb what it measures."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

END = b"0\r\n\r\n"
OUTPUT = b'"content":"tok'


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` at once, `requests` in all, of `chunks` chunks each; `varied`: of half to one and a half times as many,
    so that streams do not all end, and the next all begin, in one moment."""

    streams: int
    requests: int
    chunks: int
    varied: bool = False

    def length(self, number: int) -> int:
        """Chunks of the request of this number."""
        return self.chunks // 2 + number * 7 % (self.chunks + 1) if self.varied else self.chunks


@dataclass(slots=True)
class Outcome:
    """Times to the first token, chunks seen, requests that did not end as they should."""

    ttft_s: list[float] = field(default_factory=list)
    chunks: int = 0
    failed: int = 0


class Stream(asyncio.Protocol):
    """One connection: sends its next request when the last answer is whole."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.whole = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self.transport = transport
        self.next()

    def next(self) -> None:
        """Send a request, or close when there are none left."""
        if self.run.left == 0:
            self.transport.close()
            return
        self.run.left -= 1
        self.asked = self.run.load.length(self.run.left)
        self.whole = False
        self.begun = time.perf_counter()
        self.first = 0.0
        self.chunks = 0
        self.transport.write(self.run.request(self.asked))

    def data_received(self, data: bytes) -> None:
        """Count output chunks; the response ends with the last HTTP chunk."""
        seen = data.count(OUTPUT)
        if seen:
            self.chunks += seen
            if not self.first:
                self.first = time.perf_counter() - self.begun
        if data.endswith(END):
            self.whole = True
            outcome = self.run.outcome
            outcome.chunks += self.chunks
            if self.chunks == self.asked:
                outcome.ttft_s.append(self.first)
            else:
                outcome.failed += 1
            self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection lost in the middle of an answer is a failure."""
        if not self.whole:
            self.run.outcome.failed += 1
        self.run.open -= 1
        if self.run.open == 0:
            self.run.done.set()


class Run:
    """One load against one port."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.left = load.requests
        self.open = load.streams
        self.outcome = Outcome()
        self.done = asyncio.Event()
        self._requests: dict[int, bytes] = {}

    def request(self, chunks: int) -> bytes:
        """The bytes of a request for so many chunks."""
        if chunks not in self._requests:
            self._requests[chunks] = self._build(chunks)
        return self._requests[chunks]

    @staticmethod
    def _build(chunks: int) -> bytes:
        body = json.dumps(
            {
                "model": "sim",
                "stream": True,
                "max_tokens": chunks,
                "temperature": 0.7,
                "messages": [
                    {"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": "Tell me about the sea. " * 20},
                ],
            }
        ).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nuser-agent: OpenAI/Python 2.0\r\n"
            "accept: application/json\r\nauthorization: Bearer sk-bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def against(self, port: int, spread_s: float) -> Outcome:
        """Run it; connections start spread over `spread_s`, so that streams do not tick in step."""
        loop = asyncio.get_running_loop()
        for _ in range(self.load.streams):
            await loop.create_connection(lambda: Stream(self), "127.0.0.1", port)
            await asyncio.sleep(spread_s / self.load.streams)
        await self.done.wait()
        return self.outcome

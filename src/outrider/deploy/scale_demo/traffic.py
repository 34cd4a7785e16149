"""Clients of the run: streams that are sent when they are due, whatever became of those before, and read to their last token."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from outrider.deploy.scale_demo.replicas import MODEL

TIMEOUT_S = 300.0
_DONE = b"data: [DONE]"


@dataclass(slots=True)
class Tally:
    """What became of the requests: sent, answered to the last token, and the others by what went wrong."""

    sent: int = 0
    whole: int = 0
    lost: Counter[str] = field(default_factory=Counter)


class Clients:
    """Sends requests to the front at `url`; `tally` counts."""

    def __init__(self, url: str, output_tokens: int) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._http = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False)
        self._tokens = output_tokens
        self._under_way: set[asyncio.Task[None]] = set()
        self.tally = Tally()

    async def send_at(self, moments_s: list[float], began_s: float) -> None:
        """One request at each moment (seconds after `began_s` of the monotonic clock)."""
        for moment_s in moments_s:
            await asyncio.sleep(max(began_s + moment_s - time.monotonic(), 0.0))
            self.tally.sent += 1
            task = asyncio.create_task(self._one())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def finish(self) -> None:
        """Until every answer has ended."""
        await asyncio.gather(*self._under_way)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._http.aclose()

    async def _one(self) -> None:
        why = await self._outcome()
        if why:
            self.tally.lost[why] += 1
        else:
            self.tally.whole += 1

    async def _outcome(self) -> str:
        """Empty for an answer with all of its tokens and its end."""
        body = {
            "model": MODEL,
            "prompt": "one of many",
            "max_tokens": self._tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        tail = b""
        try:
            async with self._http.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    return f"status {answer.status_code}"
                async for part in answer.aiter_raw():
                    tail = (tail + part)[-4096:]
        except httpx.HTTPError as error:
            return type(error).__name__
        return whole_or_why(tail, self._tokens)


def whole_or_why(tail: bytes, tokens: int) -> str:
    """Empty where a stream's last bytes say that it came to its end with `tokens` tokens; else what is wrong."""
    events = [line for line in tail.splitlines() if line.startswith(b"data: ")]
    if not events or events[-1] != _DONE:
        return "cut short"
    try:
        told = json.loads(events[-2].removeprefix(b"data: "))["usage"]["completion_tokens"]
    except (IndexError, ValueError, KeyError, TypeError):
        return "no usage"
    return "" if told == tokens else "tokens missing"

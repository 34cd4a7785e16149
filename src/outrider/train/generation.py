"""The target, asked through the running engine: token ids in, token ids out.

Source: vLLM's `/v1/completions` (prompts of token ids, `return_token_ids`), `/tokenize` and `/detokenize`; the same fields in
0.26.0 and 0.32.0. No request carries a seed: seeded sampling is several times slower there.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from outrider.core.errors import TrainingError
from outrider.train.rows import AGAIN

SILENCE_S = 900.0
CONNECT_S = 15.0
TRIES = 4
BUSY_TRIES = 12
# A pool of httpx looks at all its connections for every request: 1,024 in one gave 28 requests a second, 64 pools of 16 gave 420.
POOL_CONNECTIONS = 16
OVERFLOW = "prompt longer than the engine's context"
_OVERFLOW = ("context length", "max_model_len")


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """Where the engine is, and how many prompts it may be given at a time.

    `url` without a path (``http://127.0.0.1:8001``), `key` of its launch, `model` as it serves it.
    """

    url: str
    key: str
    model: str
    concurrency: int = 16


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one text is written. `plain` switches off what the model's own generation config would add to sampling (top-p,
    top-k, penalties). `stop_tokens` and `stop_texts` end it beside the model's own end tokens."""

    max_tokens: int
    temperature: float
    plain: bool = False
    stop_tokens: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()

    def members(self) -> dict[str, object]:
        """As members of a request."""
        members: dict[str, object] = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        if self.plain:
            members |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        if self.stop_tokens:
            members["stop_token_ids"] = self.stop_tokens
        if self.stop_texts:
            members["stop"] = self.stop_texts
        return members


@dataclass(frozen=True, slots=True)
class Written:
    """What the target wrote: its tokens (the end token included where it ended), their text, ``stop`` or ``length``."""

    ids: tuple[int, ...]
    text: str
    finish_reason: str


class Refused(Exception):
    """The engine will not take this one prompt; the reason is counted, and the run goes on."""


class Target:
    """A client of one engine. Use as an async context manager."""

    def __init__(self, access: EngineAccess) -> None:
        self.access = access
        self.context_tokens = 0
        self._pools: list[httpx.AsyncClient] = []
        self._busy: list[int] = []

    async def __aenter__(self) -> Target:
        count = -(-max(1, self.access.concurrency) // POOL_CONNECTIONS)
        trust = ssl.create_default_context()  # made once: it takes longer than a pool
        for _ in range(count):
            self._pools.append(
                httpx.AsyncClient(
                    base_url=self.access.url,
                    headers={
                        "Authorization": f"Bearer {self.access.key}",
                        "Content-Type": "application/json",
                    },
                    timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None),
                    limits=httpx.Limits(
                        max_connections=POOL_CONNECTIONS, max_keepalive_connections=POOL_CONNECTIONS
                    ),
                    trust_env=False,  # a proxy in the environment must not see loopback traffic or the key
                    verify=trust,
                )
            )
        self._busy = [0] * count
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools:
            await pool.aclose()

    async def write(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Written]:
        """One text for each prompt (token ids), in one request.

        Raises:
            Refused: the engine does not take one of them.
            TrainingError: the engine is gone, silent, or answers with no token ids.
        """
        body = {
            "model": self.access.model,
            "prompt": prompts[0] if len(prompts) == 1 else prompts,
            "return_token_ids": True,
            **sampling.members(),
        }
        answer = await self._post("/v1/completions", body)
        choices = sorted(answer.get("choices") or (), key=lambda choice: int(choice.get("index", 0)))
        if len(choices) != len(prompts):
            raise _odd(f"{len(choices)} texts for {len(prompts)} prompts")
        if any(choice.get("token_ids") is None for choice in choices):
            raise _odd("text without token ids")
        if broken := {str(choice["finish_reason"]) for choice in choices} - {"stop", "length"}:
            raise _gone(f"broke off a text ({', '.join(broken)})")
        return [
            Written(tuple(choice["token_ids"]), choice["text"], str(choice["finish_reason"]))
            for choice in choices
        ]

    async def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Tokens of a conversation by the engine's chat template, up to where its next answer begins.

        Raises:
            Refused: the template does not take these messages.
            TrainingError: as `write`.
        """
        body = {"model": self.access.model, "messages": messages, "add_generation_prompt": True}
        answer = await self._post("/tokenize", body)
        if not isinstance(answer.get("tokens"), list):
            raise _odd("no tokens from /tokenize")
        self.context_tokens = int(answer.get("max_model_len") or 0)
        return tuple(answer["tokens"])

    async def text_of(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones shown. Raises as `chat_ids`."""
        answer = await self._post("/detokenize", {"model": self.access.model, "tokens": ids})
        return str(answer.get("prompt", ""))

    async def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        content = json.dumps(body).encode()
        tried = busy = 0
        while True:
            try:
                answer = await self._send(path, content)
            except httpx.TimeoutException as error:
                raise _gone(f"did not answer within {SILENCE_S:.0f} s") from error
            except (
                httpx.TransportError
            ) as error:  # refused, reset, or a kept connection that was closed meanwhile
                tried += 1
                if tried >= TRIES:
                    raise _gone(f"does not answer any more ({type(error).__name__})") from error
                await asyncio.sleep(0.1 * 4**tried)
                continue
            status = answer.status_code
            if status == 200:
                return _object(answer.content)
            if status in (429, 503) and busy < BUSY_TRIES:
                busy += 1
                await asyncio.sleep(_wait_s(answer.headers.get("retry-after"), busy))
            elif status >= 500 and status != 503 and tried < TRIES - 1:
                tried += 1
                await asyncio.sleep(0.1 * 4**tried)
            else:
                raise _fault(status, answer.text, self.access.model)

    async def _send(self, path: str, content: bytes) -> httpx.Response:
        place = min(range(len(self._busy)), key=self._busy.__getitem__)
        self._busy[place] += 1
        try:
            return await self._pools[place].post(path, content=content)
        finally:
            self._busy[place] -= 1


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _odd("what is no JSON object")
    return found


def _wait_s(retry_after: str | None, number: int) -> float:
    """Seconds before a busy engine is asked again: as it says, at most a minute; else 0.5, 1, 2, … 30."""
    if retry_after and retry_after.strip().isdigit():
        return min(float(retry_after), 60.0)
    return min(0.25 * float(2**number), 30.0)


def _fault(status: int, text: str, model: str) -> Exception:
    """What an answer that is none means: one prompt refused, or nothing to be had here."""
    message = _message(text)
    if status in (400, 422):
        if any(words in message for words in _OVERFLOW):
            return Refused(OVERFLOW)
        return Refused(
            f"refused by the engine: {re.sub(r'[0-9]+', 'N', message)}"
        )  # one reason, whatever the numbers
    if status in (401, 403):
        return TrainingError("the engine refuses the key", hint="Is another server listening on its port?")
    if status == 404:
        return TrainingError(f"the engine does not serve {model}: {message}", hint="Look at `served_name`.")
    return _gone(f"answered {status}: {message}")


def _message(text: str) -> str:
    """The engine's own words, short."""
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:160]


def _gone(what: str) -> TrainingError:
    return TrainingError(f"the engine {what}", hint=f"Look at the end of its log. {AGAIN}")


def _odd(what: str) -> TrainingError:
    return TrainingError(
        f"the engine answered with {what}", hint="Training data needs vLLM 0.26 or later, asked directly."
    )

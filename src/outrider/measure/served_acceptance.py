"""Served acceptance: how many drafted tokens the engine accepts on a prompt set, by its own counters.

What a head does in training says little: only the engine, with its own kernels, positions and rejection, says what is accepted.
Answers end where the model ends them (no ``ignore_eos``: text after the end is text nobody is served), greedily by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from outrider.control.running import RunningEngine
from outrider.core.acceptance import AcceptanceWindow, difference
from outrider.core.errors import MeasurementError
from outrider.measure.prompts import Prompt, PromptSet

REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ServedSettings:
    """`concurrency` requests at once; `output_tokens` an answer at most; `temperature` 0 is greedy."""

    output_tokens: int = 128
    concurrency: int = 4
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Served:
    """What one prompt set came to: answers asked for and got, their tokens, and the engine's counts over them."""

    prompt_set: str
    requests: int
    output_tokens: int
    window: AcceptanceWindow
    settings: ServedSettings


async def served_acceptance(
    engine: RunningEngine,
    prompts: PromptSet,
    settings: ServedSettings,
    say: Callable[[int, int], None] = lambda done, of: None,
) -> Served:
    """Send every prompt of the set (all turns, each answered before the next), with nobody else on the engine.

    Raises:
        MeasurementError: a request failed, the counters fell meanwhile, or nothing was drafted.
        EngineUnreachable: the counters cannot be read.
    """
    before = (await engine.client.counters()).spec
    places, done, tokens = asyncio.Semaphore(settings.concurrency), 0, 0
    async with httpx.AsyncClient(
        base_url=engine.url,
        headers={"Authorization": f"Bearer {engine.key}"},
        timeout=REQUEST_TIMEOUT_S,
        trust_env=False,
    ) as http:

        async def one(prompt: Prompt) -> None:
            nonlocal done, tokens
            async with places:
                used = await _conversation(http, engine, prompt, settings)
            tokens += used  # not `tokens += await …`: that reads the sum before it waits
            done += 1
            say(done, len(prompts.prompts))

        try:
            async with asyncio.TaskGroup() as group:
                for prompt in prompts.prompts:
                    group.create_task(one(prompt))
        except* MeasurementError as failed:
            raise failed.exceptions[0] from None
    window = difference(before, (await engine.client.counters()).spec)
    if window.void or not window.defined:
        raise MeasurementError(
            f"no acceptance on {prompts.name}: {window.void or 'the engine drafted nothing'}",
            hint="Look at the engine's log: is the draft loaded?",
        )
    return Served(prompts.name, len(prompts.prompts), tokens, window, settings)


async def _conversation(
    http: httpx.AsyncClient, engine: RunningEngine, prompt: Prompt, settings: ServedSettings
) -> int:
    """Tokens answered over all turns. Raises MeasurementError."""
    messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
    tokens = 0
    for turn in prompt.turns:
        messages.append({"role": "user", "content": turn})
        body = {
            "model": engine.model,
            "messages": messages,
            "max_tokens": settings.output_tokens,
            "temperature": settings.temperature,
            **engine.stamp,
        }
        try:
            answer = await http.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            value = answer.json()
            text, used = value["choices"][0]["message"]["content"], value["usage"]["completion_tokens"]
        except httpx.HTTPStatusError as error:
            raise _failed(
                prompt, f"answered {error.response.status_code}: {error.response.text[:300]}"
            ) from error
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise _failed(prompt, str(error) or type(error).__name__) from error
        messages.append({"role": "assistant", "content": text or ""})
        tokens += int(used)
    return tokens


def _failed(prompt: Prompt, why: str) -> MeasurementError:
    hint = "Prompts longer than the context leave no room: lower the output tokens, or raise `target.max_context_tokens`."
    return MeasurementError(f"the request of {prompt.id} failed: {why}", hint=hint)


def pooled(parts: Sequence[Served]) -> float | None:
    """AL over all sets: out of the summed counts, not a mean of means."""
    drafts = sum(part.window.delta.drafts for part in parts)
    return 1 + sum(part.window.delta.accepted for part in parts) / drafts if drafts else None

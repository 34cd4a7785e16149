"""Warm-up before a cell: waves at the cell's own concurrency until two in a row take the same time.

An engine compiles kernels, captures graphs and grows caches when a shape comes up for the first time; where that falls into the
counted part it is up to a fifth of a short cell. A number of requests fixed beforehand cannot know when the engine is done; the
time of a wave can.

A wave is one answer's tokens for each place, in two requests whose lengths differ from place to place: places end and begin again
one by one, so prompts are read beside running answers in every mixture, as in the counted part. All waves are the same requests:
what differs between two of them is the engine.

Sent from here and not by the load generator, which takes 5.5 s to start: only the time of a whole wave is taken, no figure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import httpx

from outrider.measure.bounds import MIB, answer_bytes
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt

MOST_WAVES = 5
LIMIT_S = 120.0  # after this no further wave is begun, but for the second: one alone tells nothing
AGREE_RATIO = 0.10
AGREE_S = 0.05  # below this two waves agree, whatever the ratio: that is the machine, no kernel


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What it came to: seconds of each wave in order, and why it ended before two in a row agreed (empty: they did)."""

    waves_s: tuple[float, ...] = ()
    unsettled: str = ""


class WaveFailed(Exception):
    """A request of a wave was not answered; the text says how."""


def agree(one_s: float, other_s: float) -> bool:
    """Whether two waves took the same time: within 10 % of the shorter, or 50 ms."""
    return abs(one_s - other_s) <= max(AGREE_S, AGREE_RATIO * min(one_s, other_s))


def settle(
    wave: Callable[[], None], say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> WarmUp:
    """Send waves until the last two agree, at most `MOST_WAVES`, within `LIMIT_S` or at least two. `say` tells of each.

    A wave that fails ends it: the load that follows finds out what there is to know.
    """
    waves: list[float] = []
    began = clock()
    while len(waves) < MOST_WAVES:
        if len(waves) > 1 and clock() - began > LIMIT_S:
            return WarmUp(tuple(waves), f"no further wave after {LIMIT_S:.0f} s")
        start = clock()
        try:
            wave()
        except WaveFailed as failed:
            return WarmUp(tuple(waves), str(failed))
        waves.append(clock() - start)
        say(f"warm-up: {waves_words(waves)}")
        if len(waves) > 1 and agree(*waves[-2:]):
            return WarmUp(tuple(waves))
    return WarmUp(tuple(waves), f"still changing after {MOST_WAVES} waves")


def waves_words(waves_s: Sequence[float]) -> str:
    """``8.1, 2.2, 2.2 s``."""
    return f"{', '.join(f'{one:.1f}' for one in waves_s)} s"


def warm_up(plan: LoadPlan, say: Callable[[str], None]) -> WarmUp:
    """Warm the plan's server for the plan's load."""
    return settle(lambda: asyncio.run(_wave(plan)), say)


def place_lengths(output_tokens: int, place: int, places: int) -> tuple[int, ...]:
    """Tokens of the two requests of a place (from 0): together one answer; one request where the answer is a single token."""
    first = max(1, output_tokens * (place + 1) // (places + 1))
    return (first, output_tokens - first) if output_tokens > first else (first,)


async def _wave(plan: LoadPlan) -> None:
    """All places at once. Raises WaveFailed with the first that failed."""
    most = answer_bytes(plan)
    prompts = list(islice(cycle(plan.prompts), 2 * plan.concurrency))
    headers = {"authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
    limits = httpx.Limits(max_connections=plan.concurrency)
    async with httpx.AsyncClient(
        base_url=plan.url, headers=headers, timeout=plan.timeout_s, limits=limits, trust_env=False
    ) as client:

        async def place(number: int) -> None:
            for turn, tokens in enumerate(place_lengths(plan.output_tokens, number, plan.concurrency)):
                await _ask(client, _body(plan, prompts[2 * number + turn], tokens), most, plan.timeout_s)

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(plan.concurrency):
                    group.create_task(place(number))
        except* WaveFailed as failed:
            raise WaveFailed(*failed.exceptions[0].args) from None


def _body(plan: LoadPlan, prompt: Prompt, tokens: int) -> dict[str, object]:
    """One request as the load sends them. Source: OpenAI chat completions; ``ignore_eos``, ``continuous_usage_stats``: vLLM."""
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return {
        "model": plan.model,
        "messages": [*system, {"role": "user", "content": prompt.turns[0]}],
        "max_tokens": tokens,
        "temperature": plan.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **({"ignore_eos": True} if plan.fixed_length else {}),
    }


async def _ask(client: httpx.AsyncClient, body: dict[str, object], most: int, within_s: float) -> None:
    """Send one request and read its answer to the end, keeping none of it. Raises WaveFailed."""
    taken = 0
    try:
        async with (
            asyncio.timeout(within_s),
            client.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            if answer.status_code != 200:
                raise WaveFailed(f"a request was answered {answer.status_code}")
            async for piece in answer.aiter_raw():
                taken += len(piece)
                if taken > most:
                    raise WaveFailed(
                        f"an answer of {body['max_tokens']} tokens was over {most / MIB:.0f} MiB"
                    )
    except TimeoutError:
        raise WaveFailed(f"a request had no end within {within_s:g} s") from None
    except httpx.HTTPError as error:
        raise WaveFailed(f"a request failed: {error or type(error).__name__}") from error

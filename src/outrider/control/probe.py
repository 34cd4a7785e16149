"""Is the engine there, warm, and does the draft really draft? Small requests that answer that before users come.

A server that answers is not yet a server that drafts: a head that does not fit proposes and nothing is accepted; an n-gram
draft proposes only where text repeats. So the probe asks for text that repeats, and reads what the engine counted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from outrider.control.upstreams import Upstream
from outrider.core.acceptance import AcceptanceWindow, difference
from outrider.core.errors import EngineUnreachable
from outrider.engines.base import Engine, EngineCounters, LaunchPlan
from outrider.governor.ladder import NO_DRAFT
from outrider.governor.snapshot import StartProbe, StepReading
from outrider.telemetry.scrape import lean, parse

PROBE_TOKENS = 48
TIMED_TOKENS = 16
SLOW_STEP_S = 0.04  # where a step takes this long, half of the tokens time it as well
REQUEST_TIMEOUT_S = 120.0
# Three kinds of repetition: counting, a phrase, code. Any one that drafts is enough. Short: a slow machine reads them 20 times.
PROBE_PROMPTS = (
    "1 2 3 4 5 6 7 8 9 10 " * 4,
    "the quick brown fox jumps over the lazy dog. " * 4,
    "x = x + 1\ny = y + 1\n" * 6,
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe saw: ready or why not, and whether the draft is broken (proposes, nothing is accepted).

    `seen`: the tokens behind it, for the governor; empty where they say nothing of the draft.
    """

    ready: bool
    reason: str
    broken: bool = False
    seen: tuple[StartProbe, ...] = ()


def judge(method: str, window: AcceptanceWindow, probes: int, *, made_up: bool = False) -> ProbeResult:
    """Pure: what `probes` requests made of the counters says of the draft.

    `made_up`: the weights are random, so that it drafts is all there is to see; nothing accepted is no fault of the head.
    """
    if method in ("none", *NO_DRAFT):
        return ProbeResult(True, "ready, without a draft")
    if window.void:
        return ProbeResult(False, f"draft probe void: {window.void}")
    if not window.delta.proposed:
        return ProbeResult(
            False,
            f"the draft ({method}) proposed nothing in {probes} probe requests; look at the engine's log, or serve with "
            "`draft: {method: none}`",
        )
    proposed, accepted = int(window.delta.proposed), int(window.delta.accepted)
    if accepted > proposed:
        return ProbeResult(False, f"draft probe void: {accepted} tokens accepted of {proposed} proposed")
    seen = (StartProbe(method, proposed, accepted),)
    if made_up:
        return ProbeResult(
            True,
            f"ready, {method} drafts: {proposed} tokens proposed; of dummy weights acceptance says nothing",
        )
    if not accepted:
        return ProbeResult(
            True,
            f"ready, but the draft ({method}) is broken: {proposed} tokens proposed on probe prompts, 0 accepted; it costs "
            "time and gives nothing. Does the head belong to this target? `outrider check` compares them",
            broken=True,
            seen=seen,
        )
    return ProbeResult(
        True, f"ready, {method} drafts: {accepted} of {proposed} probe tokens accepted", seen=seen
    )


class EngineClient:
    """The requests control itself sends to one engine, with its key. `unknown`: names of the last scrape nobody knows."""

    unknown: tuple[str, ...] = ()

    def __init__(self, engine: Engine, plan: LaunchPlan, upstream: Upstream, model: str) -> None:
        self._engine, self._plan, self._model = engine, plan, model
        self._http = httpx.AsyncClient(
            base_url=plan.base_url,
            # without a key no header: one that holds nothing is none that can be sent
            headers={"Authorization": f"Bearer {upstream.api_key}"} if upstream.api_key else {},
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,  # a proxy in the environment must not see loopback traffic or the key
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether the engine's health route answers 200 now."""
        try:
            return (await self._http.get(self._plan.health_path, timeout=5.0)).status_code == 200
        except httpx.HTTPError:
            return False

    async def counters(self) -> EngineCounters:
        """One scrape in engine-neutral terms. Raises EngineUnreachable."""
        try:
            answer = await self._http.get(self._plan.metrics_path, timeout=5.0)
            answer.raise_for_status()
            scrape = parse(lean(answer.content))
            counters = self._engine.counters(scrape)
        except (httpx.HTTPError, ValueError) as error:
            raise EngineUnreachable(f"no metrics from {self._plan.base_url}: {error}") from error
        self.unknown = tuple(self._engine.unknown_metrics(scrape))
        return counters

    async def complete(
        self, draft: str, prompt: str, temperature: float, tokens: int = PROBE_TOKENS
    ) -> tuple[float, float]:
        """One small completion with the draft: when (monotonic s) its first text came, and when it was over.

        Raises:
            EngineUnreachable: with what the engine said.
        """
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": temperature,
            "ignore_eos": True,
            "stream": True,
            **self._engine.stamp(draft),
        }
        first_s = None
        try:
            async with self._http.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    said = (await answer.aread()).decode(errors="replace")[:300]
                    raise EngineUnreachable(f"a warm-up request was answered {answer.status_code}: {said}")
                async for _ in answer.aiter_raw():
                    first_s = first_s or time.monotonic()
        except httpx.HTTPError as error:
            raise EngineUnreachable(f"a warm-up request failed: {error or type(error).__name__}") from error
        over_s = time.monotonic()
        return first_s or over_s, over_s


async def warm_up(client: EngineClient, draft: str, requests: int) -> None:
    """Greedy and sampled requests in turn, so that no user pays for what the engine does only once."""
    for number in range(requests):
        await client.complete(
            draft, PROBE_PROMPTS[number % len(PROBE_PROMPTS)], 0.0 if number % 2 == 0 else 0.8, TIMED_TOKENS
        )


async def probe(client: EngineClient, draft: str, *, made_up: bool = False) -> ProbeResult:
    """Send probe prompts until one drafts with success; judge what the engine counted over all of them."""
    before = (await client.counters()).spec
    result = ProbeResult(False, "not probed")
    for number, prompt in enumerate(PROBE_PROMPTS, 1):
        await client.complete(draft, prompt, 0.0)
        window = difference(before, (await client.counters()).spec)
        result = judge(draft, window, number, made_up=made_up)
        if result.ready and not result.broken:
            break
    return result


async def time_steps(client: EngineClient, draft: str, readings: int) -> AsyncIterator[StepReading]:
    """That many readings of `time_step`, one after the other; shorter ones where the engine is slow."""
    tokens = TIMED_TOKENS
    for _ in range(readings):
        yield (reading := await time_step(client, draft, tokens))
        tokens = TIMED_TOKENS if reading.step_s < SLOW_STEP_S else TIMED_TOKENS // 2


async def time_step(client: EngineClient, draft: str, tokens: int = TIMED_TOKENS) -> StepReading:
    """How long a step of one request takes with this draft, nothing else running: of a small request, from its first token on.

    The step before, which reads the prompt, is left out: on a slow machine it takes as long as all others together.
    """
    before = await client.counters()
    first_s, over_s = await client.complete(draft, PROBE_PROMPTS[0], 0.0, tokens)
    after = await client.counters()
    accepted = max(after.spec.accepted - before.spec.accepted, 0)
    steps = max(tokens - 1 - int(accepted), 1)
    return StepReading(draft, over_s, 1.0, (over_s - first_s) / steps, steps)

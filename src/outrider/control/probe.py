"""Is the engine there, warm, and does the draft really draft? Small requests that answer that before users come.

A server that answers is not yet a server that drafts: a head that does not fit proposes and nothing is accepted; an n-gram
draft proposes only where text repeats. So the probe asks for text that repeats, and reads what the engine counted.
"""

from __future__ import annotations

import time
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
REQUEST_TIMEOUT_S = 120.0
# Three kinds of repetition: counting, a phrase, code. Any one that drafts is enough.
PROBE_PROMPTS = (
    "1 2 3 4 5 6 7 8 9 10 " * 12,
    "the quick brown fox jumps over the lazy dog. " * 10,
    "x = x + 1\ny = y + 1\n" * 16,
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

    async def complete(self, draft: str, prompt: str, temperature: float, tokens: int = PROBE_TOKENS) -> None:
        """One small completion with the draft. Raises EngineUnreachable with what the engine said."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": temperature,
            "ignore_eos": True,
            **self._engine.stamp(draft),
        }
        try:
            answer = await self._http.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise EngineUnreachable(f"a warm-up request failed: {error or type(error).__name__}") from error
        if answer.status_code != 200:
            raise EngineUnreachable(
                f"a warm-up request was answered {answer.status_code}: {answer.text[:300]}"
            )


async def warm_up(client: EngineClient, draft: str, requests: int) -> None:
    """Greedy and sampled requests in turn, so that no user pays for what the engine does only once."""
    for number in range(requests):
        await client.complete(
            draft, PROBE_PROMPTS[number % len(PROBE_PROMPTS)], 0.0 if number % 2 == 0 else 0.8
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


async def time_step(client: EngineClient, draft: str) -> StepReading:
    """How long a step of one request takes with this draft, nothing else running: a small request's time over its steps."""
    before, began_s = await client.counters(), time.monotonic()
    await client.complete(draft, PROBE_PROMPTS[0], 0.0, TIMED_TOKENS)
    took_s, after = time.monotonic() - began_s, await client.counters()
    accepted = max(after.spec.accepted - before.spec.accepted, 0)
    steps = max(TIMED_TOKENS - int(accepted), 1)
    return StepReading(draft, began_s + took_s, 1.0, took_s / steps, steps)

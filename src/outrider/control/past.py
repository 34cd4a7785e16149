"""The last minutes as the live page shows them: a sample a second, and the switches with their reasons. Bounded; no text of
anybody's request is in it."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from outrider.cost.price import usd_per_million_output_tokens
from outrider.governor.decision import Turn
from outrider.governor.estimator import evidence
from outrider.governor.snapshot import Credit
from outrider.stack.models import Price

KEPT_S = 900
SWITCHES = 50
# What a sample says of acceptance and tokens is of requests that ended, and tokens made, within this.
WINDOW_S = 15.0
MAX_CREDITS = 2048


@dataclass(frozen=True, slots=True)
class Sample:
    """One second. `t`: seconds since 1970. None where nothing was measured; acceptance is of `draft` alone.

    running: requests at the engine; step figures over `WINDOW_S`: AL with the bonus token, TPOT in ms, USD per 1M output tokens.
    """

    t: float
    draft: str
    running: float
    waiting: int
    queue_wait_ms: float
    tokens_per_s: float | None
    acceptance_length: float | None
    acceptance_rate: float | None
    tpot_ms: float | None
    usd_per_million: float | None


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of the draft in force."""

    t: float
    before: str
    after: str
    reason: str
    why: str


class Past:
    """Remembers. `price` turns tokens per second into cost; `wall` tells the time of day."""

    def __init__(self, price: Price | None = None, wall: Callable[[], float] = time.time) -> None:
        self._price, self._wall = price, wall
        self._samples: deque[tuple[float, str]] = deque(maxlen=KEPT_S)
        self._switches: deque[Switch] = deque(maxlen=SWITCHES)
        self._credits: deque[Credit] = deque(maxlen=MAX_CREDITS)
        self._tokens: deque[tuple[float, float]] = deque()

    def finished(self, credits: Iterable[Credit]) -> None:
        """Requests that ended."""
        self._credits.extend(credits)

    def generated(self, now_s: float, tokens: float) -> None:
        """Tokens the engines made since they were last asked."""
        self._tokens.append((now_s, tokens))

    def switched(self, before: str, after: str, reason: str, why: str) -> None:
        """The draft in force changed."""
        self._switches.append(Switch(self._wall(), before, after, reason, why))

    def sample(self, now_s: float, turn: Turn, waiting: int, queue_wait_s: float) -> None:
        """One second more."""
        since_s = now_s - WINDOW_S
        while self._tokens and self._tokens[0][0] < since_s:
            self._tokens.popleft()
        recent = [one for one in self._credits if one.ended_s >= since_s]
        window = evidence([one for one in recent if one.draft == turn.decision.draft]).window
        decoded = [(one.decode_s, one.steps + one.accepted) for one in recent if one.decode_s and one.steps]
        tokens = sum(count for _, count in decoded)
        rate = sum(count for _, count in self._tokens) / WINDOW_S if self._tokens else None
        price = self._price
        usd = (
            usd_per_million_output_tokens(price.usd_per_hour, price.accelerators, rate)
            if price and rate
            else None
        )
        sample = Sample(
            t=round(self._wall(), 1),
            draft=turn.decision.draft,
            running=turn.state.running,
            waiting=waiting,
            queue_wait_ms=queue_wait_s * 1e3,
            tokens_per_s=rate,
            acceptance_length=window.acceptance_length,
            acceptance_rate=window.acceptance_rate,
            tpot_ms=1e3 * sum(took_s for took_s, _ in decoded) / tokens if tokens else None,
            usd_per_million=usd,
        )
        if self._samples and sample.t < self._samples[-1][0]:
            # The clock was set back: samples of the time to come would be newer than all that follow.
            self._samples.clear()
        # Written once, not once for everybody who asks.
        self._samples.append((sample.t, json.dumps(asdict(sample))))

    def switches(self) -> list[dict[str, object]]:
        """The last switches, oldest first."""
        return [asdict(one) for one in self._switches]

    def samples(self, since: float) -> str:
        """Samples later than `since` (seconds since 1970), oldest first, as a JSON array.

        All of them where `since` is a moment to come: whoever asks was told it before the clock was set back.
        """
        if since > self._wall() + 1:
            since = 0.0
        return f"[{', '.join(text for t, text in self._samples if t > since)}]"

"""What one request did: its token events, on one monotonic clock, and the figures that follow.

Definitions: token events (t_i, n_i), n_i = growth of the running ``usage.completion_tokens``; a chunk without growth makes no
event. Step gap = t_i - t_(i-1): what a reader sees as stutter. Token ITL = step gap / n_i, n_i times. With speculation one
chunk holds several tokens, so the two differ. TTFT, TPOT, E2E: `outrider.core.latency`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from outrider.core.latency import RequestTiming

OK = "ok"


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """`tokens` output tokens arrived at `at_s` (seconds, monotonic clock)."""

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as the client saw it. Times in seconds on the machine's monotonic clock (CLOCK_MONOTONIC).

    outcome: ``ok``, ``http-429``, ``http-500``, … , ``cut`` (the stream ended without its end), ``timeout``, ``refused`` (no
    connection), ``no-output`` (200, but not one token); `reason` says more. Failed requests keep the events they got.
    output_tokens: N of the last usage, None if the server told none. finish: ``stop``, ``length``, … or empty.
    first_text_s: first visible text, which may come later than the first token. steps, drafts, proposed, accepted: what the
    engine said of this request's drafts, None where it does not say.
    """

    id: str
    prompt_id: str
    turn: int
    started_s: float
    ended_s: float
    events: tuple[TokenEvent, ...] = ()
    first_text_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish: str = ""
    outcome: str = OK
    reason: str = ""
    text: str = ""
    steps: int | None = None
    drafts: int | None = None
    proposed: int | None = None
    accepted: int | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended as it should."""
        return self.outcome == OK

    @property
    def timing(self) -> RequestTiming:
        """Its moments: TTFT, TPOT and E2E follow from them."""
        return RequestTiming(
            arrived_s=self.started_s,
            first_token_s=self.events[0].at_s if self.events else None,
            last_token_s=self.events[-1].at_s if self.events else None,
            output_tokens=self.output_tokens,
            first_tokens=self.events[0].tokens if self.events else 1,
        )

    def step_gaps_s(self) -> tuple[float, ...]:
        """Time between token events, seconds; one fewer than events."""
        return tuple(after.at_s - before.at_s for before, after in pairwise(self.events))

    def token_itl_s(self) -> tuple[float, ...]:
        """Inter-token latency: each step gap divided by its tokens, once a token; seconds."""
        return tuple(
            (after.at_s - before.at_s) / after.tokens
            for before, after in pairwise(self.events)
            for _ in range(after.tokens)
        )

"""Acceptance of exactly 0 or exactly 1, request after request: real text does not do that for long.

A head whose logits are NaN proposes one token for ever and has all of it accepted, or none; but a user who asks for one sentence
two hundred times gets every draft accepted too. So it takes many requests and a long time to be called trouble, and a lookup
draft, which copies by design, is never more than a warning.

Source: TensorRT-LLM#5146, vllm#55605.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from outrider.governor.ladder import HEADS
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit

Level = Literal["", "warning", "trouble"]


@dataclass(frozen=True, slots=True)
class ExactRun:
    """Credits in a row whose acceptance rate was exactly `rate` (0 or 1; None: the last one's was neither)."""

    rate: float | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    requests: int = 0
    drafts: int = 0

    def after(self, credit: Credit) -> ExactRun:
        """With one more; of one that proposed nothing it learns nothing."""
        if not credit.proposed:
            return self
        rate = credit.accepted / credit.proposed
        if rate not in (0.0, 1.0):
            return ExactRun()
        if rate != self.rate:
            return ExactRun(rate, credit.started_s, credit.ended_s, credit.requests, credit.drafts)
        return replace(
            self,
            ended_s=max(self.ended_s, credit.ended_s),
            requests=self.requests + credit.requests,
            drafts=self.drafts + credit.drafts,
        )

    def level(self, draft: str, settings: PolicySettings) -> Level:
        """Nothing, a warning, or numerical trouble."""
        if self.rate is None or self.drafts < settings.exact_drafts:
            return ""
        long = self.ended_s - self.began_s >= settings.exact_s and self.requests >= settings.exact_requests
        return "trouble" if long and draft in HEADS else "warning"

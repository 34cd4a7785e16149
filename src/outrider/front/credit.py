"""What a request that has ended says of the draft it ran with, for the governor. Pure."""

from __future__ import annotations

from outrider.front.journal import RequestRecord
from outrider.governor.ladder import NO_DRAFT
from outrider.governor.snapshot import Credit


def credit_of(record: RequestRecord) -> Credit | None:
    """The record as a credit; None where it says nothing: it failed, holds several answers, or the engine tells no request's
    acceptance.

    Raises ValueError where the engine's figures do not fit each other.
    """
    timing, seen = record.timing, record.acceptance
    if record.outcome != "ok" or record.draft is None or not record.single or timing.dispatched_s is None:
        return None
    drafts = proposed = accepted = 0
    steps: int | None = None
    if seen is not None and seen.drafts is not None:
        drafts, proposed, accepted = seen.drafts, seen.proposed_tokens or 0, seen.accepted_tokens or 0
        steps = seen.steps
    elif record.draft not in NO_DRAFT:
        return None
    if steps is None and timing.output_tokens is not None:
        steps = max(timing.output_tokens - timing.first_tokens - accepted, drafts)
    spoke = timing.first_token_s is not None and timing.last_token_s is not None
    return Credit(
        draft=record.draft,
        started_s=timing.dispatched_s,
        ended_s=record.ended_s,
        drafts=drafts,
        proposed=proposed,
        accepted=accepted,
        steps=steps,
        decode_s=timing.last_token_s - timing.first_token_s if spoke else None,  # type: ignore[operator]  # both are there
        running=record.batch,
        alike_ratio=None if record.alike_ratio is None else min(record.alike_ratio, 1.0),
    )

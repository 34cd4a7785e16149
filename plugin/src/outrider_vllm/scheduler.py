"""`--scheduler-cls outrider_vllm.scheduler.CountingScheduler`: the plain scheduler, and drafts counted by their name."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from outrider_vllm.counters import Counts, counts_of_this_process
from outrider_vllm.drafts import draft_of, server_draft
from outrider_vllm.faults import guarded


class CountingScheduler(Scheduler):  # type: ignore[misc]  # vLLM is not there when types are checked
    """Counts each verified draft where the engine counts it, so that the sum over drafts is the engine's own count.

    Source: vLLM 0.32.0 `v1/core/sched/scheduler.py`, `make_spec_decoding_stats`.
    """

    outrider_counts: Counts | None = None

    def make_spec_decoding_stats(self, *args: Any, **kwargs: Any) -> Any:
        """The engine's own, after ours."""
        guarded("counters", lambda: self._count(**kwargs))
        return super().make_spec_decoding_stats(*args, **kwargs)

    def _count(
        self,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
        **_: Any,
    ) -> None:
        if self.outrider_counts is None:
            self.outrider_counts = counts_of_this_process()
        own = server_draft(self.vllm_config.speculative_config)
        name = draft_of(self.requests[request_id].sampling_params, own)
        proposed = num_draft_tokens - (num_invalid_spec_tokens or {}).get(request_id, 0)
        if num_draft_tokens:
            self.outrider_counts.add(name, proposed, num_accepted_tokens)

"""The draft of each request in a running engine: model runner V1 with scheduling in step (vLLM's CPU build).

A request keeps the draft it is stamped with from its first token to its last. So nothing has to be remembered here: the head
reads in every step that has a row which it must read, and a row that it must not miss is missed in none. What the runner asks
the drafter for a batch is answered row by row:

eagle3, p-eagle, draft-model: the head's draft · ngram: the tokens' own continuation, or none · mix: n-gram where it matches, else
the head · warm: none, but the head reads · off: none.

Source: vLLM 0.32.0 `v1/worker/gpu_model_runner.py` (propose_draft_token_ids), `v1/spec_decode/llm_base_proposer.py` (K = 0: only
the first pass, which reads), `v1/worker/gpu_input_batch.py` (drafts under way stand in token_ids_cpu, behind the tokens).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from outrider_vllm.cpu import minor
from outrider_vllm.drafts import HEADS, READ_BY_HEAD, answered, draft_of, server_draft
from outrider_vllm.faults import LOG, guarded
from outrider_vllm.ngram import continuation

SEEN_IN = ((0, 32),)  # minor versions in which the seams were seen and the switch tried

_HEAD_ASKED = {
    "num_speculative_tokens",
    "target_positions",
    "next_token_ids",
    "token_indices_to_sample",
    "common_attn_metadata",
}
_NGRAM_ASKED = {"num_speculative_tokens", "sampled_token_ids"}


class Unswitchable(Exception):
    """Why drafts are not switched in this engine; the engine goes on as it would alone."""


def put_in(runner: Any, version: str, ngram: tuple[int, int]) -> frozenset[str]:
    """Have the runner's drafter answer by request: the drafts that it answers. `ngram`: shortest and longest match.

    Raises Unswitchable where something is not as it was when this was written; nothing is changed then.
    """
    if minor(version) not in SEEN_IN:
        raise Unswitchable(f"vLLM {version} was not tried")
    drafter = getattr(runner, "drafter", None)
    if drafter is None:
        raise Unswitchable("this worker has no drafter")
    if runner.use_async_scheduling:
        raise Unswitchable("the scheduler runs ahead of the worker")
    draft = server_draft(runner.speculative_config)
    if draft not in HEADS | {"ngram"}:
        raise Unswitchable(f"method {draft} was not tried")
    _expect(runner, ("requests", "input_batch", "_input_fits_in_drafter", "effective_drafter_max_model_len"))
    _expect(runner.input_batch, ("req_ids", "token_ids_cpu"))
    asked = set(inspect.signature(drafter.propose).parameters)
    if missing := (_HEAD_ASKED if draft in HEADS else _NGRAM_ASKED) - asked:
        raise Unswitchable(f"the drafter is not asked for {', '.join(sorted(missing))}")
    if draft == "ngram":
        drafter.propose = ngram_only(runner, drafter.propose)
    else:
        _expect(drafter, ("net_num_new_slots_per_request", "_enable_probabilistic_draft_probs"))
        if drafter._enable_probabilistic_draft_probs:
            raise Unswitchable("sampled drafts need a distribution, which an n-gram has not")
        head = Head(runner, draft, ngram)
        drafter.propose = head.propose
        runner._input_fits_in_drafter = head.fits
    return answered(draft)


def _expect(holder: Any, names: Collection[str]) -> None:
    if missing := [name for name in names if not hasattr(holder, name)]:
        raise Unswitchable(f"{type(holder).__name__} has no {', '.join(missing)}")


def rows_of(runner: Any, draft: str) -> list[str]:
    """The draft of each row of the batch."""
    return [draft_of(runner.requests[name].sampling_params, draft) for name in runner.input_batch.req_ids]


def ngram_only(runner: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """An n-gram drafter that leaves out the rows that are off: they look to it as if nothing had been sampled."""

    def propose(
        num_speculative_tokens: int, sampled_token_ids: list[list[int]], *args: Any, **kwargs: Any
    ) -> Any:
        rows = guarded("switch", lambda: rows_of(runner, "ngram"))
        if rows:
            pairs = zip(rows, sampled_token_ids, strict=True)
            sampled_token_ids = [sampled if row == "ngram" else [] for row, sampled in pairs]
        return plain(num_speculative_tokens, sampled_token_ids, *args, **kwargs)

    return propose


class Head:
    """Stands before a head's own `propose`; with a fault of ours, everything gets the head's draft, as it would alone."""

    def __init__(self, runner: Any, draft: str, ngram: tuple[int, int]) -> None:
        self._runner, self._draft, self._ngram = runner, draft, ngram
        self._plain: Callable[..., Any] = runner.drafter.propose
        self._plain_fits: Callable[[Any], bool] = runner._input_fits_in_drafter
        self._room = True

    def fits(self, metadata: Any) -> bool:
        """Whether the head is asked: also where a draft would reach past the context. There it reads and drafts nothing.

        Alone, the engine leaves the head out for the whole batch while one request is that near to its context's end, which
        leaves a hole in what the head has read of every other. A draft model and P-EAGLE need room for what they add
        themselves; in the last steps before the end they are left out still.
        """
        self._room = self._plain_fits(metadata)
        if self._room or metadata is None:
            return self._room
        limit: int = self._runner.effective_drafter_max_model_len
        needed: int = metadata.max_seq_len + self._runner.drafter.net_num_new_slots_per_request
        return needed <= limit

    def propose(self, num_speculative_tokens: int, **asked: Any) -> Any:
        """The drafts of the batch: [rows, K] where all are the head's, else a list a row, empty where there is none."""
        length = num_speculative_tokens if self._room else 0
        rows = guarded("switch", lambda: rows_of(self._runner, self._draft))
        if rows is None or all(row == self._draft for row in rows):
            return self._plain(num_speculative_tokens=length, **asked)
        found = guarded("switch", lambda: self._continuations(rows, length, asked)) or [[] for _ in rows]
        drafted: Any = None
        if any(
            row == self._draft or (row == "mix" and not ours) for row, ours in zip(rows, found, strict=True)
        ):
            drafted = self._plain(num_speculative_tokens=length, **asked)
        elif any(row in READ_BY_HEAD for row in rows):
            self._plain(num_speculative_tokens=0, **asked)
        theirs = drafted.tolist() if drafted is not None else found
        return [
            ours or (head if row in (self._draft, "mix") else [])
            for row, ours, head in zip(rows, found, theirs, strict=True)
        ]

    def _continuations(self, rows: list[str], length: int, asked: dict[str, Any]) -> list[list[int]]:
        """The n-gram drafts of the rows that want one.

        A row's tokens are those before the position from which the next is sampled, that one, and the one just sampled; the
        runner has not written down the last yet. Rejected drafts stand behind that position.
        """
        found: list[list[int]] = [[] for _ in rows]
        wanting = [i for i, row in enumerate(rows) if row in ("ngram", "mix")] if length else []
        if not wanting:
            return found
        last = asked["token_indices_to_sample"]
        if last is None:
            last = asked["common_attn_metadata"].query_start_loc[1 : len(rows) + 1] - 1
        positions = asked["target_positions"]
        ends = (positions[0] if positions.dim() == 2 else positions)[last.long()].tolist()
        sampled = asked["next_token_ids"].tolist()
        for i in wanting:
            known = self._runner.input_batch.token_ids_cpu[i, : ends[i] + 1]
            found[i] = continuation(np.append(known, np.int32(sampled[i])), length, *self._ngram)
        return found


def log_outcome(attempt: Callable[[], frozenset[str]]) -> None:
    """Say in the engine's log what became of an attempt to put it in."""
    try:
        LOG.info("outrider: each request has its own draft, of %s", ", ".join(sorted(attempt())))
    except Unswitchable as why:
        LOG.warning("outrider: drafts are not switched, %s: every request has the server's draft", why)

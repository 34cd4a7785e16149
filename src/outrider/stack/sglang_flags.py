"""Rules about SGLang's speculation flags, for its adapter. Pure.

Source: SGLang 0.5, `python/sglang/srt/server_args.py`; sglang#6309.
"""

from __future__ import annotations

from outrider.core.errors import Problem

PATH = "speculative_num_draft_tokens"


def judge_tree(steps: int | None, topk: int | None, draft_tokens: int | None) -> list[Problem]:
    """What is wrong with a draft tree of `steps` levels, `topk` branches and `draft_tokens` verified tokens.

    All three are given, or none. With topk 1 the tree is a chain: its tokens are the steps and the root. A wider tree has at most
    1 + topk + topk² × (steps - 1) nodes.
    """
    given = [value is not None for value in (steps, topk, draft_tokens)]
    if steps is None or topk is None or draft_tokens is None:
        if any(given):
            hint = "Give num_steps, eagle_topk and num_draft_tokens, or none of them."
            return [Problem("the draft tree is half described", PATH, "config-tree", hint)]
        return []
    if min(steps, topk, draft_tokens) < 1:
        return [Problem("steps, topk and draft tokens are each at least 1", PATH, "config-tree")]
    if topk == 1 and draft_tokens != steps + 1:
        message = f"{draft_tokens} draft tokens with topk 1 and {steps} steps: draft tokens = steps + 1 = {steps + 1}"
        return [Problem(message, PATH, "config-tree", f"Set it to {steps + 1}, or raise topk.")]
    largest = 1 + topk + topk * topk * (steps - 1)
    if draft_tokens > largest:
        message = f"{draft_tokens} draft tokens, but a tree of {steps} steps with topk {topk} has {largest}"
        return [Problem(message, PATH, "config-tree", f"At most {largest}.")]
    return []

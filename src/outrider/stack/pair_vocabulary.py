"""Do target and draft speak of the same tokens? Sizes alone never tell: two tokenizers of one size may share no token.

Source: vllm#5203; `SpeculativeConfig.verify_equal_vocab_size_if_draft_model`, vLLM 0.32, `vllm/config/speculative.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.core.errors import Problem
from outrider.stack.facts import ModelFacts, TokenizerFacts
from outrider.stack.models import HEAD_METHODS, Stack

RULE = "pair-vocabulary"


def judge_vocabulary(stack: Stack, target: ModelFacts, draft: ModelFacts) -> Iterator[Problem]:
    """Token text first, then sizes; a head without a tokenizer of its own is judged by its sizes and its named verifier."""
    is_head = stack.draft.method in HEAD_METHODS
    same = _same_tokens(target.tokenizer, draft.tokenizer)
    sizes = f"target {target.vocab_size:,} tokens, draft {draft.vocab_size:,}"
    if same is False:
        yield _refused(f"different tokens: {_first_difference(target.tokenizer, draft.tokenizer)} ({sizes})")
    elif target.vocab_size != draft.vocab_size:
        yield from _unequal_sizes(sizes, bool(same), is_head)
    elif same is None and not is_head:
        lacking = "draft" if target.tokenizer else "target" if draft.tokenizer else "target and draft"
        message = f"equal sizes ({sizes}) prove nothing, and {lacking}: no tokenizer.json to compare"
        yield _refused(message, "Put each model's tokenizer.json beside its config.json.")
    if is_head:
        yield from _judge_head_vocabulary(target, draft)


def _unequal_sizes(sizes: str, same: bool, is_head: bool) -> Iterator[Problem]:
    if not same:
        yield _refused(f"different vocabularies: {sizes}")
    elif is_head:
        message = f"the tokens are the same, one embedding is padded further: {sizes}"
        yield Problem(message, "draft.model", RULE, severity="warning")
    else:
        message = f"the tokens are the same but one embedding is padded further ({sizes}), which vLLM refuses"
        yield _refused(message, "Take a draft whose config.json has the target's vocab_size.")


def _judge_head_vocabulary(target: ModelFacts, draft: ModelFacts) -> Iterator[Problem]:
    head = draft.head
    if head is None:
        return
    if (head.draft_vocab_size or 0) > target.vocab_size:
        message = (
            f"draft_vocab_size {head.draft_vocab_size:,} is more than the target's {target.vocab_size:,}"
        )
        yield _refused(message)
    t2d = draft.tensor("t2d")
    if t2d and t2d.shape != (target.vocab_size,):
        yield _refused(
            f"its t2d map covers {t2d.shape[0]:,} target tokens, the target has {target.vocab_size:,}"
        )
    verifier, served = (
        head.verifier.rpartition("/")[2].lower(),
        target.source.rstrip("/").rpartition("/")[2].lower(),
    )
    if (
        verifier
        and "/" in target.source
        and not target.source.startswith(("/", "."))
        and verifier not in served
    ):
        message = f"the head says it was trained for {head.verifier}, the target is {target.source}"
        hint = "A quantised or finetuned target is fine if its acceptance is; measure it."
        yield Problem(message, "draft.model", "pair-verifier", hint, "warning")


def _same_tokens(target: TokenizerFacts | None, draft: TokenizerFacts | None) -> bool | None:
    """None where it cannot be known: one is absent, or they are of formats that cannot be compared."""
    if target is None or draft is None:
        return None
    if target.fingerprint == draft.fingerprint:
        return True
    return False if bool(target.tokens) == bool(draft.tokens) else None


def _first_difference(target: TokenizerFacts | None, draft: TokenizerFacts | None) -> str:
    if not (target and draft and target.tokens and draft.tokens):
        return "the tokenizer files differ"
    theirs = draft.tokens
    for number in sorted({*target.tokens, *theirs}):
        if target.tokens.get(number) != theirs.get(number):
            return f"id {number} is {_token(target, number)} for the target, {_token(draft, number)} for the draft"
    return "the tokenizer files differ"


def _token(tokenizer: TokenizerFacts, number: int) -> str:
    text = tokenizer.tokens.get(number)
    return "no token" if text is None else repr(text[:40])


def _refused(message: str, hint: str = "Take a draft of the same model family and tokenizer.") -> Problem:
    return Problem(message, "draft.model", RULE, hint)

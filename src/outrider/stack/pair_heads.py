"""Rules about EAGLE-3 and P-EAGLE heads: shapes that must agree with the target, and defects seen in published heads.

Source: `vllm/model_executor/models/llama_eagle3.py` and `interfaces.py` (`get_eagle3_default_aux_hidden_state_layers`),
vLLM 0.32; EAGLE#258, TensorRT-LLM#10124, speculators#1065, vllm#54526.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.core.errors import Problem
from outrider.stack.facts import HeadFacts, ModelFacts
from outrider.stack.models import Stack

PATH = "draft.model"


def judge_head(stack: Stack, target: ModelFacts, draft: ModelFacts) -> Iterator[Problem]:
    """Every rule about a head; a model that is no head at all is one problem."""
    head = draft.head
    if head is None:
        message = f"{draft.architecture or draft.source} is a whole model, not a draft head"
        yield Problem(message, PATH, "pair-method", "Use method draft-model for it.")
        return
    if head.generation != 3:
        message = "an EAGLE-1 head: its config names neither EAGLE-3 nor a draft_vocab_size"
        hint = "It needs an EAGLE-3 head of this target; EAGLE-1 heads read one layer, not three."
        yield Problem(message, PATH, "head-is-eagle-1", hint)
        return
    yield from hidden_size(target, draft, head)
    yield from aux_layers(target, draft, head)
    yield from draft_vocabulary(target, draft, head)
    yield from parallel_drafting(stack, draft, head)


def default_aux_layers(layers: int) -> tuple[int, ...]:
    """The layers vLLM taps when the head does not say which."""
    return (2, layers // 2, layers - 3)


def hidden_size(target: ModelFacts, draft: ModelFacts, head: HeadFacts) -> Iterator[Problem]:
    """The head reads the target's states, so it must be made for their width."""
    if head.target_hidden_size != target.hidden_size:
        message = f"made for hidden size {head.target_hidden_size}, the target has {target.hidden_size}"
        yield Problem(message, PATH, "pair-hidden-size", "Take a head that was trained for this target.")
    fc = draft.tensor("fc.weight")
    if fc and len(fc.shape) == 2 and fc.shape[0] != draft.hidden_size:
        message = f"fc makes {fc.shape[0]} values, config.json says hidden size {draft.hidden_size}"
        yield Problem(message, PATH, "pair-hidden-size", "Config and weights are not of one head.")


def aux_layers(target: ModelFacts, draft: ModelFacts, head: HeadFacts) -> Iterator[Problem]:
    """Tapped layers × their width is what fc takes in, and the layers must exist.

    vLLM counts states, not layers: 0 is the embedding, n the last layer's output.
    """
    ids = head.aux_layer_ids
    used = ids or default_aux_layers(target.layers)
    fc = draft.tensor("fc.weight")
    width = len(used) * head.target_hidden_size
    if fc and len(fc.shape) == 2 and fc.shape[1] != width:
        message = (
            f"{len(used)} aux layers {list(used)} × hidden size {head.target_hidden_size} = {width}, "
            f"but fc takes {fc.shape[1]} ({fc.shape[0]} × {fc.shape[1]})"
        )
        hint = f"fc fits {fc.shape[1] / head.target_hidden_size:g} layers: mend eagle_aux_hidden_state_layer_ids."
        yield Problem(message, PATH, "pair-aux-layers", hint)
    outside = [one for one in used if not 0 <= one <= target.layers]
    if outside:
        message = f"aux layers {outside} are not within the target's {target.layers} layers"
        yield Problem(message, PATH, "pair-aux-layers", "Take a head that was trained for this target.")
    elif ids is None:
        message = f"the head does not name its aux layers; the engine's default is used: {list(used)}"
        yield Problem(message, PATH, "pair-aux-layers", severity="note")


def draft_vocabulary(target: ModelFacts, draft: ModelFacts, head: HeadFacts) -> Iterator[Problem]:
    """A smaller draft vocabulary must be said, and its map to target tokens must map somewhere."""
    output = draft.tensor("lm_head.weight")
    rows = output.shape[0] if output else None
    if head.draft_vocab_size is None and rows is not None and rows != draft.vocab_size:
        message = f"config.json has no draft_vocab_size, though its lm_head has {rows:,} rows of {draft.vocab_size:,}"
        yield Problem(
            message, PATH, "head-no-draft-vocab", f'Add "draft_vocab_size": {rows} to its config.json.'
        )
    elif head.draft_vocab_size is not None and rows is not None and rows != head.draft_vocab_size:
        message = f"draft_vocab_size is {head.draft_vocab_size:,}, its lm_head has {rows:,} rows"
        yield Problem(message, PATH, "head-no-draft-vocab", "Config and weights are not of one head.")
    smaller = (head.draft_vocab_size or rows or target.vocab_size) < target.vocab_size
    if smaller and head.d2t_all_zero:
        message = "its d2t map is all zero: every draft token would stand for the wrong target token"
        yield Problem(
            message,
            PATH,
            "head-map-all-zero",
            "Build d2t from the training data again, or take another head.",
        )
    if smaller and draft.tensors and draft.tensor("d2t") is None:
        message = "it drafts from a smaller vocabulary, and has no d2t map to the target's"
        yield Problem(
            message, PATH, "head-map-missing", "Build d2t from the training data, or take another head."
        )


def parallel_drafting(stack: Stack, draft: ModelFacts, head: HeadFacts) -> Iterator[Problem]:
    """P-EAGLE drafts all tokens in one pass from a mask token; another head cannot."""
    if stack.draft.method != "p-eagle":
        if head.parallel:
            message = (
                "a P-EAGLE head run as eagle3 drafts one token after another, which it was not trained for"
            )
            yield Problem(message, "draft.method", "pair-p-eagle", "Use method p-eagle.", "warning")
        return
    has_state = draft.tensor("mask_hidden") is not None
    if head.parallel_token is None:
        parallel = head.parallel or has_state
        what = "a P-EAGLE head without its mask token" if parallel else "not a P-EAGLE head"
        message = f"{what}: config.json has no ptd_token_id, pard_token or mask_token_id"
        hint = "Add the token it was trained with." if parallel else "Use method eagle3 for it."
        yield Problem(message, PATH, "pair-p-eagle", hint)
        if not parallel:
            return
    elif head.parallel_token >= draft.vocab_size:
        message = f"mask token {head.parallel_token:,} is beyond the vocabulary of {draft.vocab_size:,}"
        yield Problem(message, PATH, "pair-p-eagle", "Mend its config.json.")
    if draft.tensors and not has_state:
        message = "its weights have no mask_hidden, the state that stands for tokens not drafted yet"
        yield Problem(message, PATH, "pair-p-eagle", "Take a head that was trained for parallel drafting.")

"""Can this target and this draft work together? Pure rules over facts; each has a stable name and says what to do.

`judge_pair` gives every reason at once: errors refuse the pair, warnings and notes are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from outrider.core.errors import Problem
from outrider.stack.facts import ModelFacts
from outrider.stack.fields import judge_sections, sections_of
from outrider.stack.models import HEAD_METHODS, METHODS_WITH_WEIGHTS, Quantization, Stack
from outrider.stack.pair_heads import judge_head
from outrider.stack.pair_vocabulary import judge_vocabulary
from outrider.stack.yaml_source import dotted

# Labels that mean the same storage: a 4-bit AWQ result is saved as awq or as compressed-tensors int4.
_SAME_STORAGE = ({"awq", "int4"},)


def judge_pair(stack: Stack, target: ModelFacts, draft: ModelFacts | None) -> list[Problem]:
    """Every reason against the pair, and what to know about it. `draft` None: no weights, or facts that are not known."""
    problems = [
        Problem(message, dotted(path), rule, hint)
        for path, message, rule, hint in judge_sections(sections_of(stack))
    ]
    problems += stored_safely(target, draft)
    problems += context(stack, target, draft)
    problems += quantization(stack, target, draft)
    if draft is not None:
        problems += judge_vocabulary(stack, target, draft)
        if stack.draft.method in HEAD_METHODS:
            problems += judge_head(stack, target, draft)
        elif draft.head is not None:
            message = f"{draft.architecture} is a draft head, not a whole model"
            problems.append(
                Problem(message, "draft.method", "pair-method", "Use method eagle3 or p-eagle for it.")
            )
    problems += features(stack, target)
    problems += pinned(stack)
    return problems


def stored_safely(target: ModelFacts, draft: ModelFacts | None) -> Iterator[Problem]:
    """Hub weights must be safetensors: pickled ones can run code when they are opened."""
    for side, facts in (("target", target), ("draft", draft)):
        if facts and facts.files and not facts.tensors:
            message = f"{facts.source} has no safetensors; pickled weights can run code when they are opened"
            hint = "Take a repository with safetensors, or convert it where you trust it and name the folder."
            yield Problem(message, f"{side}.model", "weights-format", hint)


def context(stack: Stack, target: ModelFacts, draft: ModelFacts | None) -> Iterator[Problem]:
    """No more context than the target has; a draft with less accepts little beyond its own.

    Source: vllm#41456, SpecForge#271.
    """
    served = stack.target.max_context_tokens or target.max_positions
    if target.max_positions and served > target.max_positions:
        message = f"{served:,} tokens are asked, the target knows {target.max_positions:,} positions"
        yield Problem(
            message, "target.max_context_tokens", "target-context", f"At most {target.max_positions}."
        )
    if draft and draft.max_positions and draft.max_positions < served:
        message = (
            f"the draft knows {draft.max_positions} positions, {served} tokens are served: "
            f"acceptance falls past {draft.max_positions}"
        )
        hint = "Lower target.max_context_tokens, or take a draft that was trained on longer text."
        yield Problem(message, "draft.model", "pair-context", hint, "warning")


def quantization(stack: Stack, target: ModelFacts, draft: ModelFacts | None) -> Iterator[Problem]:
    """What the stack says of the weights must be what the checkpoint is; only FP8 can be made while loading."""
    for path, stated, facts in (
        ("target.quantization", stack.target.quantization, target),
        ("draft.quantization", stack.draft.quantization, draft),
    ):
        if stated is None or facts is None:
            continue
        stored = facts.quantization.label
        if stated == stored or any({stated, stored} <= same for same in _SAME_STORAGE):
            continue
        if stated == "fp8" and stored == "none":
            message = "the checkpoint is unquantised; the engine makes FP8 of it while loading, and reads the larger files"
            yield Problem(message, path, "quantization", "An FP8 checkpoint loads faster.", "warning")
            continue
        known = stored in get_args(Quantization)
        hint = (
            f"Write `{stored}`, or leave it out." if known else "Leave it out: the engine reads config.json."
        )
        yield Problem(f"the stack says {stated}, the checkpoint is {stored}", path, "quantization", hint)


def features(stack: Stack, target: ModelFacts) -> Iterator[Problem]:
    """What other features do beside a draft.

    Source: vLLM 0.32: `_warn_if_multimodal` in `vllm/v1/spec_decode/llm_base_proposer.py`; the scheduler drops draft tokens that
    the grammar of a structured output forbids.
    """
    method = stack.draft.method
    if method == "none":
        return
    flags = {name.lstrip("-").replace("_", "-") for name in stack.engine.extra_args}
    if method in METHODS_WITH_WEIGHTS:
        if target.multimodal:
            message = (
                "the draft sees text only: requests with images or audio are served, their drafts accept less"
            )
            yield Problem(message, "draft.method", "feature-multimodal", severity="warning")
        if "enable-lora" in flags:
            message = "the draft knows the base model only: requests with an adapter are served, their drafts accept less"
            yield Problem(message, "engine.extra_args", "feature-lora", severity="warning")
    message = "structured output works with a draft; tokens its grammar forbids are not drafted, so less is accepted"
    yield Problem(message, "draft.method", "feature-structured-output", severity="note")


def pinned(stack: Stack) -> Iterator[Problem]:
    """A pair from a hub is only the same pair tomorrow when both commits are named."""
    parts = [("target", stack.target.model, stack.target.revision)]
    if stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model:
        parts.append(("draft", stack.draft.model, stack.draft.revision))
    for name, model, revision in parts:
        if is_hub_id(model) and revision is None:
            message = f"{model} is not pinned to a commit: a change on the hub changes what is served"
            yield Problem(
                message, f"{name}.revision", "unpinned", "Set it to the commit that you tried.", "warning"
            )


def is_hub_id(model: str) -> bool:
    """Whether `model` names something on a hub, rather than a folder, a file or a package."""
    return not model.startswith(("/", "./", "../", "~", "pypi:", "builtin:")) and not model.endswith(".gguf")

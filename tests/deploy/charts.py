"""The renderings that are tested, and Helm, promtool and the schemas that test them."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.deploy.render import CHART, as_yaml, with_profiles
from outrider.deploy.values import Wish, values_of
from outrider.engines.choose import engine_of
from outrider.stack.find_facts import Source
from outrider.stack.load import load_stack

HERE = Path(__file__).parent
SHAPES = HERE.parents[1] / "benchmarks" / "h200" / "shapes"
HELMS = ("helm3", "helm4")
RELEASE, NAMESPACE = "llama", "serving"
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One rendering: a stack, profiles, options of `render`, and values that a user adds."""

    stack: str = "llama"
    profiles: tuple[str, ...] = ()
    wish: Mapping[str, Any] = field(default_factory=dict)
    more: Json = field(default_factory=dict)


KEY = {"engineKey": {"existingSecret": "engine-key"}}
BASELINE = {
    "pair": {"baseline": {"acceptanceLength": 3.06, "breakEvenAcceptanceLength": 1.4, "source": "bench"}}
}
CASES = {
    "minimal": Case(more=KEY),
    "keda": Case(
        profiles=("keda", "prometheus"),
        wish={"split_lanes": True},
        more={**KEY, **BASELINE, "engines": {"batch": {"min": 0}}, "watching": {"positionZeroRate": 0.6}},
    ),
    "pools": Case(
        stack="pools", profiles=("keda", "prometheus", "kueue"), wish={"split_lanes": True}, more=KEY
    ),
    "hpa": Case(profiles=("hpa", "prometheus"), more=KEY),
    "tenants": Case(
        profiles=("keda", "prometheus", "kueue", "argocd"),
        wish={"split_lanes": True},
        more={
            "weights": {"source": "claim", "claim": "weights"},
            "argocd": {
                "gate": {
                    "enabled": True,
                    "image": "registry.example/outrider-bench:1",
                    "referenceClaim": "reference",
                    "benchArguments": ["--trials", "5"],
                }
            },
            "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]},
        },
    ),
    "mig": Case(
        stack="mig",
        more={**KEY, "weights": {"source": "image", "image": "registry.example/weights@sha256:00"}},
    ),
    "cpu": Case(stack="cpu", more={**KEY, "compileCache": {"claim": "compiled"}}),
    "sglang": Case(stack="sglang", wish={"engine_image": ""}, more=KEY),
    "trtllm": Case(
        stack="trtllm",
        profiles=("keda", "prometheus"),
        wish={"engine_image": "", "split_lanes": True},
        more=KEY,
    ),
}


def tool(name: str) -> str:
    """A program of scripts/install_deploy.sh. Without it the test is skipped, but under `make deploy-test` it fails."""
    found = shutil.which(name)
    if found is None:
        reason = f"not checked: no {name} on PATH; `make deploy-test` brings it"
        if os.environ.get("OUTRIDER_DEPLOY_TEST"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def values(case: Case) -> Json:
    """What `outrider render` writes for a case."""
    images = {
        "front_image": "registry.example/outrider-front:1",
        "engine_image": "registry.example/outrider-engine:1",
    }
    wish = Wish(**{**images, **case.wish})
    stack = load_stack(HERE / "stacks" / f"{case.stack}.yaml")
    source = Source(SHAPES, offline=True)
    made = values_of(stack, engine_of(stack), wish, source, lambda line: None)
    return merged(with_profiles(made, case.profiles), case.more)


def merged(below: Json, above: Mapping[str, Any]) -> Json:
    """`above` laid over `below`, mapping by mapping; None takes a value out."""
    result = json.loads(json.dumps(below))
    for name, value in above.items():
        if value is None:
            result.pop(name)
            continue
        under = result.get(name)
        result[name] = (
            merged(under, value) if isinstance(value, Mapping) and isinstance(under, dict) else value
        )
    return dict(result)


def template(
    helm: str, given: Json, *options: str, release: str = RELEASE, namespace: str = NAMESPACE
) -> "subprocess.CompletedProcess[str]":
    """`helm template` of the chart with these values."""
    command = [tool(helm), "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version", "1.37.0", "--values", "-", *options]
    return subprocess.run(
        command, input=as_yaml(given), capture_output=True, text=True, check=False, timeout=60
    )


@cache
def rendered(helm: str, name: str) -> tuple[Json, ...]:
    """The manifests of a case, sorted."""
    done = template(helm, values(CASES[name]))
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    return tuple(sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"])))


def one(name: str, kind: str, called: str) -> Json:
    """One manifest of a case."""
    return next(
        each
        for each in rendered("helm4", name)
        if each["kind"] == kind and each["metadata"]["name"] == called
    )


def pods(name: str) -> Iterator[tuple[str, Json]]:
    """(name, pod spec) of everything in a case that makes pods."""
    for each in rendered("helm4", name):
        if each["kind"] in ("Deployment", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]

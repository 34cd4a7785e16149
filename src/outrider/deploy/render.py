"""Values as YAML, profiles laid over them, and the chart's manifests by Helm itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from outrider.core.errors import RenderError

CHART = Path(__file__).parents[1] / "data" / "chart" / "outrider"
PROFILES = ("keda", "hpa", "prometheus", "kueue", "argocd")
# YAML readers disagree on what is a number (`1e5`, `0x1f`, `1_000`) or a truth (`y`, `N`): such strings are always quoted.
_DISPUTED = re.compile(r"[-+]?\.?[0-9]|[yYnN]$")
_RARE_BREAK = re.compile("[\x85\u2028\u2029]")  # in a block such a break ends a line, or is lost


class Dumper(yaml.SafeDumper):
    """Strings that another reader could take for something else are quoted, texts of several lines stay readable."""

    def ignore_aliases(self, data: object) -> bool:
        """Nothing is written as a reference: people edit these files."""
        return True


def _string(dumper: Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if _RARE_BREAK.search(text):
        return '"'
    return "|" if "\n" in text else "'" if _DISPUTED.match(text) else None


Dumper.add_representer(str, _string)


def as_yaml(value: object) -> str:
    """YAML that Helm and Kubernetes read as it was meant."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def profile(name: str) -> dict[str, object]:
    """The values of a profile of the chart. Raises RenderError for one that there is not."""
    if name not in PROFILES:
        raise RenderError(f"there is no profile {name!r}", hint=f"Profiles: {', '.join(PROFILES)}.")
    value = yaml.safe_load((CHART / "profiles" / f"{name}.yaml").read_text(encoding="utf-8"))
    return dict(value)


def with_profiles(values: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """`values` over the chosen profiles. Raises RenderError: two that exclude each other, or an unknown one."""
    if {"keda", "hpa"} <= set(names):
        raise RenderError(
            "KEDA and a plain HPA would both scale the same Deployment",
            hint="Choose --profile keda, or --profile hpa where prometheus-adapter is what you have.",
        )
    merged: dict[str, object] = {}
    for one in (*(profile(name) for name in names), values):
        merged = _merged(merged, one)
    return merged


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        result[name] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result


def manifests(values: str, release: str, namespace: str, helm: str | None = None) -> str:
    """What `helm template` makes of the chart with these values (YAML).

    The program is `helm`, else $HELM_BIN, else the one on PATH.

    Raises:
        RenderError: there is no Helm, or it refuses the values; with its own words.
    """
    program = helm or os.environ.get("HELM_BIN") or shutil.which("helm")
    if program is None:
        raise RenderError(
            "manifests are made by Helm, and there is no `helm` on PATH",
            hint="Install Helm 3 or 4, or set HELM_BIN=/path/to/helm. Values need none: outrider render STACK -o values.yaml.",
        )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(values)
        file.flush()
        command = [program, "template", release, str(CHART), "--namespace", namespace, "--values", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (the user's Helm)
    if done.returncode:
        raise RenderError(
            f"Helm refuses the values: {refusal(done.stderr)}", hint="docs/deploy.md tells every value."
        )
    return done.stdout


def refusal(stderr: str) -> str:
    """What the chart said, out of Helm's chain of places; else Helm's own words."""
    words = stderr.strip().removeprefix("Error: ").split("\n\nUse --debug")[0]
    found = re.match(r"execution error at \([^)]*\): (.*)", words, re.DOTALL)
    return (found[1] if found else words).strip()

"""Every rendering: accepted by both Helms, the same from both, as it was last reviewed, and what Kubernetes' own schemas take."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.deploy.applicationset import applicationset
from outrider.deploy.render import CHART, as_yaml
from tests.deploy.charts import CASES, HELMS, HERE, Json, rendered, tool, values
from tests.shared import shared_path

jsonschema = pytest.importorskip("jsonschema")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make deploy-test` brings it")

# Image volumes are in the schemas from 1.31 on; the case that has one is refused before 1.33 by the chart itself.
KUBERNETES = ("1.30", "1.37")
CRD_FILES = {
    "ScaledObject": "keda",
    "PodMonitor": "prom_podmonitors",
    "PrometheusRule": "prom_prometheusrules",
    "ResourceFlavor": "kueue_resourceflavors",
    "ClusterQueue": "kueue_clusterqueues",
    "LocalQueue": "kueue_localqueues",
    "ApplicationSet": "argo_applicationset",
}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", CASES)
def test_helm_lints_strictly(helm: str, name: str, tmp_path: Path) -> None:
    """Not even a warning."""
    (tmp_path / "values.yaml").write_text(as_yaml(values(CASES[name])))
    command = [tool(helm), "lint", "--strict", str(CHART), "--values", str(tmp_path / "values.yaml")]
    command += ["--kube-version", "1.37.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_as_reviewed(name: str) -> None:
    """Both Helms say the same, and it is the golden file's (OUTRIDER_GOLDEN=write makes it anew, to be read in the diff)."""
    first, second = ("---\n".join(map(as_yaml, rendered(helm, name))) for helm in HELMS)
    assert first == second
    golden = HERE / "golden" / f"{name}.yaml"
    if os.environ.get("OUTRIDER_GOLDEN") == "write":
        golden.write_text(first, encoding="utf-8")
    assert first == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", CASES)
def test_kubernetes_takes_every_field(name: str, version: str) -> None:
    """Strictly: a field that the schema does not know is a mistake."""
    if name == "mig" and version == "1.30":
        pytest.skip("not meant for it: image volumes need 1.33, and the chart says so (test_refusals)")
    seen = 0
    for manifest in rendered("helm4", name):
        if manifest["kind"] in CRD_FILES:
            continue
        kubernetes_validate.validate(manifest, version, strict=True)
        seen += 1
    assert seen >= 10


def test_a_wrong_field_would_be_found() -> None:
    """The validation above can fail."""
    manifest = next(one for one in rendered("helm4", "minimal") if one["kind"] == "Deployment")
    broken = {**manifest, "spec": {**manifest["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[0], strict=True)


def custom(name: str) -> list[Json]:
    """The manifests of a case that belong to other projects' kinds."""
    return [one for one in rendered("helm4", name) if one["kind"] in CRD_FILES]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.profiles])
def test_other_projects_kinds_fit_their_schemas(name: str) -> None:
    """KEDA, Prometheus Operator and Kueue take every field, unknown ones refused."""
    found = custom(name)
    assert found
    for manifest in found:
        jsonschema.validate(manifest, crd_schema(manifest), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["minimal", "mig", "cpu"])
def test_minimal_needs_no_crd(name: str) -> None:
    """Nothing but what every cluster has."""
    groups = {manifest["apiVersion"].partition("/")[0] for manifest in rendered("helm4", name)}
    assert groups <= {"v1", "apps", "policy", "networking.k8s.io"}


def crd_schema(manifest: Json) -> Json:
    """The schema of a manifest's kind and version, with unknown fields refused; skips where the schemas are not here."""
    path = shared_path("crds", f"{CRD_FILES[manifest['kind']]}.yaml")
    version = manifest["apiVersion"].partition("/")[2]
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        if document and document["spec"]["names"]["kind"] == manifest["kind"]:
            found = next(one for one in document["spec"]["versions"] if one["name"] == version)
            assert found["served"]
            return dict(closed(found["schema"]["openAPIV3Schema"], top=True))
    raise AssertionError(f"no {manifest['kind']} in {path.name}")


def closed(schema: Any, *, top: bool = False) -> Any:
    """The schema with additional properties refused wherever it lists properties, as the API server prunes them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        name: {key: closed(value) for key, value in one.items()} if name == "properties" else closed(one)
        for name, one in schema.items()
        if name != "default"
    }
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    if isinstance(result.get("pattern"), str):  # Go allows flags after the anchor, Python before it
        result["pattern"] = result["pattern"].replace("^(?i)", "(?i)^")
    if top:
        result["properties"]["metadata"] = {"type": "object"}
    return result


def test_an_applicationset_fits_its_schema() -> None:
    """And goes canary, then prod."""
    manifest = applicationset("llama", "https://git.example/serving.git", "serving")
    jsonschema.validate(manifest, crd_schema(manifest), cls=jsonschema.Draft202012Validator)
    steps = manifest["spec"]["strategy"]["rollingSync"]["steps"]  # type: ignore[index]
    assert [step["matchExpressions"][0]["values"] for step in steps] == [["canary"], ["prod"]]

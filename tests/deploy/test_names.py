"""Every metric in a query exists under that name with those labels: a rename in `telemetry.names` breaks this."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from outrider.deploy.dashboard import dashboard, dashboard_file, panels
from outrider.deploy.render import CHART
from outrider.engines.vllm import metrics as vllm
from outrider.telemetry import names
from tests.deploy.charts import CASES, Json, rendered

# What the PodMonitor adds to every series, and what the alerting rules' own records have.
ADDED = {"namespace", "outrider", "pair", "component", "pod", "le"}
SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)(?:=~|!~|!=|=)")


def known() -> dict[str, set[str]]:
    """Sample names → labels, as the front's page has them."""
    found: dict[str, set[str]] = {}
    for metric in names.TABLE:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.name + suffix: set(metric.labels) for suffix in suffixes}
    return found


def queries(name: str) -> Iterator[str]:
    """Every PromQL expression in a rendering."""
    for manifest in rendered("helm4", name):
        if manifest["kind"] == "PrometheusRule":
            for group in manifest["spec"]["groups"]:
                yield from (rule["expr"] for rule in group["rules"])
        elif manifest["kind"] == "ScaledObject":
            yield from (trigger["metadata"]["query"] for trigger in manifest["spec"]["triggers"])
        elif manifest["metadata"]["name"].endswith("-adapter-rules"):
            for rule in yaml.safe_load(manifest["data"]["externalRules.yaml"]):
                yield from (rule["seriesQuery"], rule["metricsQuery"])
        elif manifest["metadata"]["name"].endswith("-dashboard"):
            (text,) = manifest["data"].values()
            yield from (target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.profiles])
def test_every_query_names_metrics_that_exist(name: str) -> None:
    """In rules, autoscaling queries, adapter rules and the dashboard, with labels that they have."""
    exist, found = known(), set()
    records = {rule["record"] for one in rendered("helm4", name) for rule in _rules(one) if "record" in rule}
    engines = {*vllm.DRAFTS, *vllm.PER_POSITION}
    for query in queries(name):
        for metric, labels in SERIES.findall(query):
            found.add(metric)
            if metric in records or metric == "outrider:cost_usd_per_million_output_tokens:rate10m":
                continue
            assert metric in exist or metric in engines, f"{metric} in {query}"
            allowed = exist.get(metric, {"position"}) | ADDED
            assert set(LABEL.findall(labels)) <= allowed, f"{labels} of {metric}"
    assert "outrider_engines_ready" in found
    assert {"queue_wait_ms", "outrider_lane_queue_wait_seconds"} & found


def _rules(manifest: Json) -> list[Json]:
    groups = manifest["spec"]["groups"] if manifest["kind"] == "PrometheusRule" else []
    return [rule for group in groups for rule in group["rules"]]


def test_every_record_that_is_read_is_recorded() -> None:
    """Rules and dashboard read `outrider:…` series; each is one of the rules'."""
    text = " ".join(queries("keda"))
    records = {
        rule["record"] for one in rendered("helm4", "keda") for rule in _rules(one) if "record" in rule
    }
    assert set(re.findall(r"outrider:[a-z_0-9:]+", text)) <= records
    assert "outrider:cost_usd_per_million_output_tokens:rate10m" in records


def test_the_dashboard_in_the_chart_is_the_code_s() -> None:
    """`make docs` writes it."""
    assert (CHART / "files" / "dashboard.json").read_text() == dashboard_file()
    assert len(dashboard()["panels"]) == len(panels())  # type: ignore[arg-type]


def test_the_autoscaler_asks_for_one_series() -> None:
    """Aggregated over all fronts, without labels that would split it."""
    for manifest in rendered("helm4", "keda"):
        if manifest["kind"] == "ScaledObject":
            first, second = (trigger["metadata"]["query"] for trigger in manifest["spec"]["triggers"])
            assert re.fullmatch(r"(1000 \* )?max\([^()]*\)", first)
            assert re.fullmatch(r"sum\([^()]*\)", second)


def test_min_versions_are_stated() -> None:
    """Each profile says which version of its controller it needs."""
    for path in (CHART / "profiles").glob("*.yaml"):
        assert re.search(r"\d+\.\d+ or later", path.read_text(encoding="utf-8").splitlines()[0]), path
    assert "make docs" in Path(CHART / "files" / "mig.yaml").read_text()

"""Where a policy comes from: rendered manifests, our defaults, single settings; and what is refused with a sentence."""

from pathlib import Path

import pytest

from outrider.core.errors import StackError
from outrider.deploy.scaling import DEFAULT_DOWN, DEFAULT_UP, External, Limit, PerPod, Policy, Rules
from outrider.deploy.scaling_policy import (
    SETTINGS,
    compressed,
    declared,
    on_cpu,
    quantity,
    read_policy,
    with_settings,
)

SCALED_OBJECT = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: NAME}
spec:
  scaleTargetRef: {name: NAME}
  cooldownPeriod: 600
  minReplicaCount: 0
  maxReplicaCount: 4
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp:
          stabilizationWindowSeconds: 30
          policies: [{type: Pods, value: 1, periodSeconds: 180}]
        scaleDown:
          stabilizationWindowSeconds: 600
          selectPolicy: Min
          tolerance: 50m
          policies: [{type: Pods, value: 1, periodSeconds: 300}, {type: Percent, value: 10, periodSeconds: 60}]
  triggers:
    - type: prometheus
      name: queue-wait
      metricType: Value
      metadata: {query: 'max(queue_wait_ms{namespace="serving"})', threshold: "500", activationThreshold: "1"}
    - type: prometheus
      metadata: {query: sum(outrider_requests_running), threshold: 1k}
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: engines}
spec:
  maxReplicas: 6
  metrics:
    - type: External
      external: {metric: {name: llama_queue_wait_ms}, target: {type: Value, value: "500"}}
    - type: External
      external: {metric: {name: llama_requests_running}, target: {type: AverageValue, averageValue: 12500m}}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
"""
DOWN = Rules(600.0, (Limit("Pods", 1, 300.0), Limit("Percent", 10, 60.0)), "Min", 0.05)


def put(folder: Path, text: str) -> str:
    """A file of manifests."""
    path = folder / "rendered.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_scaled_object(tmp_path: Path) -> None:
    """Triggers, types, behavior and KEDA's own fields are read; what is absent has KEDA's defaults."""
    found = read_policy(put(tmp_path, f"kind: Service\n---{SCALED_OBJECT}"))
    wait = External("queue-wait", 500.0, query='max(queue_wait_ms{namespace="serving"})', activation=1.0)
    running = External("trigger-1", 1000.0, per_replica=True, query="sum(outrider_requests_running)")
    up = Rules(30.0, (Limit("Pods", 1, 180.0),))
    assert found == Policy(0, 4, (wait, running), up, DOWN, keda=True, cooldown_s=600.0)
    assert [quantity(one) for one in found.metrics] == ["queue_wait_ms", "running"]


def test_a_horizontal_pod_autoscaler(tmp_path: Path) -> None:
    """Metrics of three kinds; without a behavior, Kubernetes' own."""
    found = read_policy(put(tmp_path, HPA))
    assert found.metrics == (
        External("llama_queue_wait_ms", 500.0),
        External("llama_requests_running", 12.5, per_replica=True),
        PerPod("cpu", 0.8),
    )
    assert (found.min_replicas, found.max_replicas, found.up, found.down) == (1, 6, DEFAULT_UP, DEFAULT_DOWN)
    assert [quantity(one) for one in found.metrics] == ["queue_wait_ms", "running", "cpu"]


def test_one_of_several(tmp_path: Path) -> None:
    """A file with a lane each: the name chooses; without one the error lists them."""
    two = "---".join(SCALED_OBJECT.replace("NAME", name) for name in ("llama-batch", "llama-interactive"))
    path = put(tmp_path, two)
    assert read_policy(f"{path}#llama-batch").max_replicas == 4
    for source in (path, f"{path}#llama"):
        with pytest.raises(StackError, match="2 autoscalers") as caught:
            read_policy(source)
        assert "rendered.yaml#llama-batch, rendered.yaml#llama-interactive" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment\n", "holds no autoscaler"),
        ("{", "is not YAML"),
        ("kind: ScaledObject\nspec: {}\n", "KeyError: 'triggers'"),
        ("kind: ScaledObject\nspec: {triggers: [{type: kafka}]}\n", "trigger 0 is kafka"),
        (HPA.replace('value: "500"', "value: lots"), "cannot be understood"),
        (HPA.replace("maxReplicas: 6", ""), "KeyError: 'maxReplicas'"),
    ],
)
def test_a_manifest_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    """Refused with what is wrong and what to name instead."""
    with pytest.raises(StackError, match=said) as caught:
        read_policy(put(tmp_path, text))
    assert caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """As a sentence, not a traceback."""
    gone = str(tmp_path / "gone.yaml")
    with pytest.raises(StackError, match="cannot be read: No such file") as caught:
        read_policy(gone)
    assert str(caught.value).startswith(gone), "the place that was named, not only the file"


def test_settings_reach_the_policy() -> None:
    """Every setting changes what it names, and nothing else does."""
    values = {
        "min_replicas": 2, "max_replicas": 5, "queue_wait_ms": 900, "running_per_replica": 7, "up_window_s": 1,
        "up_pods": 3, "up_period_s": 20, "down_window_s": 40, "down_pods": 2, "down_period_s": 50, "tolerance": 0.2,
        "cooldown_s": 60, "sync_s": 5,
    }  # fmt: skip
    assert values.keys() == SETTINGS.keys()
    wait, running = declared(64).metrics
    assert (wait.target, running.target) == (500, 51)
    assert with_settings(declared(64), values) == Policy(
        min_replicas=2,
        max_replicas=5,
        metrics=(
            External("queue_wait_ms", 900, query="max(queue_wait_ms)"),
            External(
                "outrider_requests_running", 7, per_replica=True, query="sum(outrider_requests_running)"
            ),
        ),
        up=Rules(1, (Limit("Pods", 3, 20),), tolerance=0.2),
        down=Rules(40, (Limit("Pods", 2, 50),), tolerance=0.2),
        keda=True,
        cooldown_s=60,
        sync_s=5,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"up_pod": 1}, "no setting 'up_pod'; there are min_replicas"),
        ({"up_pods": 0}, "from 1 to 1000"),
        ({"max_replicas": 1.5}, "a whole number"),
        ({"min_replicas": 9}, "over max_replicas 8"),
        ({"sync_s": float("nan")}, "from 1 to 300"),
    ],
)
def test_a_setting_that_cannot_be(given: dict[str, float], said: str) -> None:
    """Refused with its bounds."""
    with pytest.raises(ValueError, match=said):
        with_settings(declared(64), given)


def test_compression_keeps_proportions() -> None:
    """Every time is divided by the factor; counts, targets and tolerance stay."""
    found = compressed(declared(16), 10)
    assert (found.up, found.down) == (
        Rules(3.0, (Limit("Pods", 1, 18.0),)),
        Rules(60.0, (Limit("Pods", 1, 30.0),)),
    )
    assert (found.cooldown_s, found.sync_s, found.metrics) == (60.0, 1.5, declared(16).metrics)


def test_on_cpu_keeps_the_limits() -> None:
    """The comparison changes the signal alone; what reads pods cannot scale from zero."""
    lane = with_settings(declared(64), {"min_replicas": 0})
    found = on_cpu(lane, 0.8)
    assert (found.metrics, found.min_replicas, found.keda) == ((PerPod("cpu", 0.8),), 1, False)
    assert (found.up, found.down, found.max_replicas) == (lane.up, lane.down, lane.max_replicas)


def test_an_unknown_metric_is_refused() -> None:
    """The model makes up no reading."""
    with pytest.raises(StackError, match="no reading for the metric 'kafka_lag'"):
        quantity(External("kafka_lag", 5.0))

"""Two runs beside each other on one machine: each reads the accelerator it was given, not its neighbour's."""

from __future__ import annotations

import json

from outrider.measure.aiperf import _visible
from outrider.measure.aiperf_records import read_gpu_use


def _sample(index: int, used: float) -> str:
    data = {"nvidia_gpu_utilization": used, "nvidia_memory_used": 70.0 + index, "nvidia_power_usage": 400.0}
    names = {"gpu_uuid": f"GPU-{index}", "gpu_model_name": "NVIDIA H200"}
    return json.dumps({"timestamp_ns": 50, "gpu_index": index, "telemetry_data": data, **names})


def test_only_the_visible_accelerator_is_read() -> None:
    """NVML shows all accelerators; the figures are of those that CUDA_VISIBLE_DEVICES leaves to the engine."""
    lines = [_sample(0, 90.0), _sample(1, 30.0)]
    both = read_gpu_use(lines, (0, 100))
    one = read_gpu_use(lines, (0, 100), _visible({"CUDA_VISIBLE_DEVICES": "1"}))
    assert both is not None
    assert one is not None
    assert (both.name, both.memory_peak_bytes) == ("2 × NVIDIA H200", 141_000_000_000)
    assert (one.name, one.utilisation_mean, one.memory_peak_bytes) == ("NVIDIA H200", 0.3, 71_000_000_000)


def test_names_that_are_no_indices_hide_nothing() -> None:
    """A UUID, or no variable at all, is no index: all accelerators that worked are read."""
    assert _visible({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}) is None
    assert _visible({}) is None
    assert _visible({"CUDA_VISIBLE_DEVICES": "0,3"}) == {0, 3}

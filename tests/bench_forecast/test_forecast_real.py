"""A forecast on the real CPU engine, from `config.json` alone: step times measured, speed-ups reckoned, all of it labelled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from tests.timing import Late, measures_time

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(1300)]

STACK = Path(__file__).parents[2] / "benchmarks" / "h200" / "rehearsal.yaml"


@measures_time
def test_a_cpu_forecast_is_modelled_and_says_so(tmp_path: Path) -> None:
    """No weights are there; the run ends with step times of both arms, AL and speed-up reckoned, and labels on everything."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "outrider", "forecast", str(STACK), "--out", str(out)]
    command += [
        "--acceptance",
        "0.8,0.6,0.4",
        "--source",
        "a test",
        "--concurrency",
        "2",
        "--requests",
        "2=16",
    ]
    command += ["--output-tokens", "96", "--trials", "1", "--prompt-tokens", "64"]
    done = subprocess.run(
        command,
        env={**os.environ, "OUTRIDER_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = RunDocument.model_validate(json.loads((out / "run.json").read_text()))
    labels = found.labels
    assert (labels.weights, labels.acceptance, labels.absolute_times) == ("dummy", "synthetic", False)
    assert labels.acceptance_source == "eagle3: a test"
    assert any("modelled" in note for note in labels.notes)
    if not found.steps:  # a starved load generator reads an answer at once: no gap between chunks is left
        raise Late(str([cell.pooled and cell.pooled.warnings for cell in found.cells]))
    (step,) = found.steps
    assert step.acceptance_length == pytest.approx(2.8)
    assert step.predicted_speedup == pytest.approx(2.8 * step.baseline_step_ms / step.step_ms)
    (speedup,) = found.speedups
    assert speedup.ratio.value == step.predicted_speedup
    assert (speedup.ratio.low, speedup.ratio.high, speedup.ratio.n) == (None, None, 0)
    assert found.answers[0].id == "forecast/2"
    assert found.answers[0].values["break_even"] == step.break_even_length
    assert not [one.id for one in found.answers if one.id.startswith("caveat/flags")]
    assert [*found.crossovers, *found.costs, *found.latency_differences] == []
    cell = found.cell("eagle3-k3", "forecast-64", 2)
    assert cell is not None
    assert cell.pooled is not None
    assert (cell.pooled.ok, cell.pooled.failures) == (16, {})
    assert labels.modelled
    assert (cell.pooled.output_tok_s, cell.pooled.acceptance.length) == (None, None)
    assert "is broken" not in done.stderr
    for page in ("report.md", "report.html"):
        text = (out / page).read_text(encoding="utf-8")
        assert "modelled" in text
        assert "dumm" in text.lower()

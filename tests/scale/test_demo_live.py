"""`outrider scale-demo`, shortened: a real Prometheus, the real front, engines as processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timing import Late, measures_time


@pytest.mark.acceptance
@measures_time
def test_load_times_three(tmp_path: Path) -> None:
    """Replicas rise, requests wait no longer, none is lost; it says that its windows are compressed."""
    command = [sys.executable, "-m", "outrider", "scale-demo", "--out", str(tmp_path)]
    short = ["--load", "3.2@15s,9.6@75s,3.2@60s", "--compression", "20"]
    done = subprocess.run([*command, *short], capture_output=True, text=True, timeout=400, check=False)
    assert (tmp_path / "run.json").exists(), done.stdout + done.stderr
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (run["lost"], run["sent"]) == ({}, run["whole"])
    # The loop's minutes are seconds here: what a neighbour takes of them may come too late for it.
    if missed := [check for check in run["checks"] if not check["good"]]:
        raise Late(str(missed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every window of the loop 1/20 of the declared one; engines simulated" in done.stdout
    assert max(one["ready"] for one in run["samples"]) > 1
    assert (tmp_path / "chart.svg").stat().st_size > 5000

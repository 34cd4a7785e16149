"""The chart of several runs that the README shows."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from outrider.bench.report.chart import read_summary, render_chart, write_chart
from outrider.core.errors import MeasurementError
from tests.bench_report import documents


def test_one_panel_a_run_and_set_with_its_labels(
    large: RunDocument, demo: RunDocument, tmp_path: Path
) -> None:
    """The SVG is XML that stands alone; it names every run, its kind of numbers and every arm, and its ends in words."""
    write_chart([large, demo], tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314  (made here)
    words = " ".join(root.itertext())
    for expected in (
        "Llama 3.3 70B on one H200: humaneval",
        "bench demo: gsm8k",
        "dummy weights, synthetic acceptance",
        "real weights, measured acceptance",
        "p-eagle-k5",
    ):
        assert expected in words
    first = next(one for one in large.speedups if one.arm == "eagle3-k3")
    assert f"eagle3-k3 {first.ratio.value:.2f} at 1" in words
    assert "prefers-color-scheme:dark" in text
    assert text == render_chart([large, demo])


def test_nothing_to_draw_is_an_error() -> None:
    """A run without speed-ups has no chart, and the error says what to name instead."""
    with pytest.raises(MeasurementError, match="no speed-up") as caught:
        render_chart([documents.bare()])
    assert caught.value.hint


def test_the_command_draws_and_refuses(demo: RunDocument, tmp_path: Path) -> None:
    """`python -m outrider.bench.report.chart` writes the SVG from run files; another file ends with status 12 and a hint."""
    (tmp_path / "run.json").write_text(demo.model_dump_json(by_alias=True), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"schema": "something else"}', encoding="utf-8")
    command = [sys.executable, "-m", "outrider.bench.report.chart", "--out", "chart.svg"]
    done = subprocess.run([*command, "run.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == render_chart([demo])
    refused = subprocess.run(
        [*command, "other.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 12
    assert "other.json is not a bench run" in refused.stderr
    with pytest.raises(MeasurementError, match="cannot read"):
        read_summary(tmp_path / "absent.json")

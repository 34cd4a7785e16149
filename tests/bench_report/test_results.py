"""The committed reports of GPU runs are what today's code says of their measured figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from outrider.bench.renew import renewed
from outrider.bench.report import render_markdown
from outrider.bench.report.chart import render_chart

RESULTS = Path(__file__).parents[2] / "results"
FORECASTS = sorted((RESULTS / "h200").glob("*.json"))
RUNS = [*FORECASTS, *sorted((RESULTS / "train").glob("*-speed*.json"))]
AGAIN = "tell them anew: make results"


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_answers_and_text_are_of_today(file: Path) -> None:
    """Stored answers of an older version are advice that the code no longer gives."""
    document = RunDocument.model_validate_json(file.read_bytes())
    assert renewed(document) == document, AGAIN
    text = file.with_suffix(".md").read_text(encoding="utf-8")
    assert text == render_markdown(document, f"{file.stem}.html"), AGAIN
    if file in FORECASTS:  # told anew since they were made
        assert "answers_reckoned_by" in document.provenance


def test_the_chart_is_of_the_committed_runs() -> None:
    """speedup.svg, which the README shows."""
    documents = [RunDocument.model_validate_json(file.read_bytes()) for file in FORECASTS]
    assert (RESULTS / "h200" / "speedup.svg").read_text(encoding="utf-8") == render_chart(documents), AGAIN

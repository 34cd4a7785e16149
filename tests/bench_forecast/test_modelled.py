"""A modelled forecast's document: of a draft nothing stands that came of tokens nobody accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.bench.analysis import analyse
from outrider.bench.document import (
    BASELINE,
    Acceptance,
    Figures,
    ForecastInfo,
    Quantiles,
    RunDocument,
    StatedRates,
)
from outrider.bench.forecast_answers import finished
from outrider.bench.report import write_report
from tests.bench.simulated import Run, baseline, eagle, simulate

SETS = ("code",)


def _forecast(*, synthetic: bool) -> tuple[RunDocument, RunDocument]:
    """A run as it was measured, and as a forecast of AL 3.06 keeps it."""
    made = simulate(Run(drafts=(baseline(SETS), eagle(SETS)), waves=4))
    measured = analyse(made.document, made.records_of)
    info = ForecastInfo(
        stated={"eagle3": StatedRates(rates=[0.82, 0.68, 0.56, 0.4, 0.3])}, synthetic=synthetic
    )
    return measured, finished(measured, info)


def _figures(found: RunDocument, arm_is_baseline: bool) -> list[Figures]:
    cells = [one for one in found.cells if (one.arm == BASELINE) == arm_is_baseline]
    return [one.pooled for one in cells if one.pooled] + [
        trial.figures for one in cells for trial in one.trials if trial.figures
    ]


def test_a_modelled_forecast_keeps_step_times_alone_of_a_draft(tmp_path: Path) -> None:
    """A draft's throughput, latencies and acceptance are gone, step times and the baseline stand, and a label says so."""
    measured, found = _forecast(synthetic=False)
    assert found.labels.modelled
    drafted = _figures(found, arm_is_baseline=False)
    assert drafted
    for before, after in zip(_figures(measured, arm_is_baseline=False), drafted, strict=True):
        assert before.output_tok_s
        assert (after.output_tok_s, after.peak_tok_s, after.user_tok_s) == (None, None, None)
        for name in ("ttft_ms", "tpot_ms", "token_itl_ms", "e2e_ms", "queue_wait_ms"):
            assert getattr(after, name) == Quantiles(n=0), name
        assert after.acceptance == Acceptance()
        assert after.step_ms == before.step_ms
        assert after.step_gap_ms == before.step_gap_ms
        assert (after.ok, after.requests) == (before.ok, before.requests)
    assert _figures(found, arm_is_baseline=True) == _figures(measured, arm_is_baseline=True)
    assert RunDocument.model_validate_json(found.model_dump_json(by_alias=True)) == found
    write_report(found, tmp_path)
    assert "modelled" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_synthetic_forecast_keeps_what_was_measured() -> None:
    """Where the engine drew the acceptance, every figure is a measurement and stays."""
    measured, found = _forecast(synthetic=True)
    assert not found.labels.modelled
    assert found.cells == measured.cells
    assert found.speedups == pytest.approx(measured.speedups)

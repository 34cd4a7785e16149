"""A stored run.json told by today's code: measured figures stay to the digit, what follows from them is reckoned again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.bench.analysis import analyse
from outrider.bench.document import Answer, ForecastInfo, RunDocument, StatedRates
from outrider.bench.forecast_answers import finished
from outrider.bench.renew import renewed
from outrider.cli.bench import bench_command
from outrider.core.errors import MeasurementError
from tests.bench.simulated import Run, baseline, eagle, simulate

SETS = ("code",)
MEASURED = (
    "cells",
    "latency_differences",
    "costs",
    "natural_end",
    "settings",
    "arms",
    "prompt_sets",
    "created",
)


def _run(synthetic: bool | None = None) -> RunDocument:
    """A run of one trial; a forecast of either kind."""
    made = simulate(Run(drafts=(baseline(SETS), eagle(SETS)), waves=4, trials=1))
    found = analyse(made.document, made.records_of)
    if synthetic is None:
        return found
    info = ForecastInfo(stated={"eagle3": StatedRates(rates=[0.8, 0.6, 0.5])}, synthetic=synthetic)
    return finished(found, info)


def _old(document: RunDocument) -> RunDocument:
    """The same, as if an older version had reckoned it wrong."""
    wrong = [Answer(id="recommendation", text="says an older version", good=True)]
    return document.model_copy(update={"answers": wrong, "speedups": [], "steps": [], "crossovers": []})


@pytest.mark.parametrize("synthetic", [None, True, False])
def test_answers_are_those_of_today_and_figures_those_of_the_file(synthetic: bool | None) -> None:
    """Of a measured run, a drawn and a modelled forecast alike; once more changes nothing."""
    fresh = _run(synthetic)
    found = renewed(_old(fresh))
    assert found == fresh
    assert renewed(found) == found
    assert found.answers != _old(fresh).answers
    for name in MEASURED:
        assert getattr(found, name) == getattr(fresh, name), name


def test_the_command_renews_a_file_in_place(tmp_path: Path) -> None:
    """NAME.json, NAME.md and NAME.html beside it; provenance says which version reckoned; nothing measured changes."""
    file = tmp_path / "mine.json"
    file.write_text(_old(_run()).model_dump_json(by_alias=True), encoding="utf-8")
    before = json.loads(file.read_text(encoding="utf-8"))
    done = CliRunner().invoke(bench_command, ["--renew", str(file)])
    assert done.exit_code == 0, done.output
    after = json.loads(file.read_text(encoding="utf-8"))
    assert {name: after[name] for name in MEASURED} == {name: before[name] for name in MEASURED}
    reckoned = after["provenance"].pop("answers_reckoned_by")
    assert after["provenance"] == before["provenance"]
    assert set(reckoned) == {"outrider", "commit"}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mine.html", "mine.json", "mine.md"]
    assert "`mine.html`" in (tmp_path / "mine.md").read_text(encoding="utf-8")
    assert "says an older version" not in (tmp_path / "mine.md").read_text(encoding="utf-8")
    assert str(tmp_path / "mine.html") in done.output
    written = file.read_bytes()
    assert CliRunner().invoke(bench_command, ["--renew", str(file)]).exit_code == 0
    assert file.read_bytes() == written


def test_run_json_has_its_reports_under_their_usual_names(tmp_path: Path) -> None:
    """Beside run.json: report.md and report.html."""
    (tmp_path / "run.json").write_text(_run().model_dump_json(by_alias=True), encoding="utf-8")
    assert CliRunner().invoke(bench_command, ["--renew", str(tmp_path / "run.json")]).exit_code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.html", "report.md", "run.json"]


def test_what_is_no_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Another JSON file, or options that would be ignored: an error, and no file is touched."""
    file = tmp_path / "other.json"
    file.write_text("{}", encoding="utf-8")
    done = CliRunner().invoke(bench_command, ["--renew", str(file)])
    assert isinstance(done.exception, MeasurementError)
    assert file.read_text(encoding="utf-8") == "{}"
    done = CliRunner().invoke(bench_command, ["--renew", str(file), "--trials", "3"])
    assert done.exit_code == 2
    assert "--trials would be ignored" in done.output

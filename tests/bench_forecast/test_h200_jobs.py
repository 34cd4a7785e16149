"""The GPU jobs, looked at without a GPU: every stack and arm would be started on an H200 with vLLM 0.26."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.h200 import driver
from benchmarks.h200.jobs import CONCURRENCY, HERE, LLAMA, QWEN3, Job

from outrider.bench.forecast import forecast_arms, forecast_prompts, forecast_stack, read_stated
from outrider.bench.session import Wish, prepared
from outrider.engines.base import Install
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack
from outrider.stack.models import Stack

GPU = Install("0.26.0", "vllm", "cuda", "python3", False)


class _OnH200(VllmEngine):
    def find(self, stack: Stack) -> Install:
        return GPU


def _all(job: Job, option: str) -> list[str]:
    return [job.arguments[i + 1] for i, word in enumerate(job.arguments) if word == option]


@pytest.mark.parametrize("job", [LLAMA, QWEN3])
def test_every_arm_of_a_shape_job_would_start(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pair rules, memory on the H200 and the engine's features refuse no arm; each arm has exactly its K rates."""
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    stack = load_stack(HERE / f"{job.name}.yaml")
    wish = Wish(arms=tuple(_all(job, "--arm")), concurrency=CONCURRENCY, natural_end=0, interleaved=False)
    said: list[str] = []
    session = prepared(forecast_stack(stack), _OnH200(), (forecast_prompts(128, 4),), wish, said.append)
    stated = read_stated(_all(job, "--acceptance"), "eagle3", "")
    arms = forecast_arms(session.plan.arms, stated, synthetic=True)
    assert [arm.name for arm in arms] == list(job.tok_s)
    for arm in arms[1:]:
        assert arm.stack.forecast is not None
        assert len(arm.stack.forecast.position_rates or ()) == arm.stack.draft.length
        assert not [one for one in VllmEngine().judge(arm.stack, GPU) if one.severity == "error"]


def test_the_rehearsal_has_the_rows_of_the_real_run() -> None:
    """Same arms, same concurrencies, same trials as the shapes on the GPU: what rehearses is what runs."""
    rehearsal = driver.REHEARSAL
    for job in (LLAMA, QWEN3):
        assert list(rehearsal.requests) == list(job.requests) == list(CONCURRENCY)
        for option in ("--trials", "--prompt-tokens", "--temperature"):
            assert _all(rehearsal, option) == _all(job, option)
        names = [[arm.partition(",")[0] for arm in _all(one, "--arm")] for one in (rehearsal, job)]
        assert names[0] == names[1]


def test_a_queue_names_known_jobs_and_limits(tmp_path: Path) -> None:
    """``1=a@30,b`` is two steps, the first with a limit; an unknown job is refused by name before anything starts."""
    known = driver.jobs(tmp_path, tmp_path)
    gpu, steps = driver.read_queue("1=llama-3.3-70b@30,rehearsal", known)
    assert (gpu, [(step.job.name, step.limit_s) for step in steps]) == (
        "1",
        [("llama-3.3-70b", 30.0), ("rehearsal", None)],
    )
    with pytest.raises(SystemExit, match="no job 'gpt-5'"):
        driver.read_queue("0=gpt-5", known)


def test_a_queue_goes_on_after_a_job_that_fails_or_outlasts_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One job's failure is a line in the log with its status; the next job runs; a limit ends a job and is told."""
    bad = Job("bad", ("bench", "no-such-stack.yaml"))
    known = {"bad": bad, "worse": replace(bad, name="worse")}
    driver.work(tmp_path, "any=bad,worse", known)
    told = capsys.readouterr().out
    assert "bad ended with" in told
    assert "worse ended with" in told
    assert "ended with 0" not in told
    assert (tmp_path / "worse.log").read_text()


def test_archives_stay_within_what_can_be_carried(tmp_path: Path) -> None:
    """All runs' figures in one archive without raw records; raw records in parts under the limit, none lost."""
    cells, raw = tmp_path / "runs" / "a" / "cells", tmp_path / "runs" / "a" / "raw"
    cells.mkdir(parents=True)
    raw.mkdir()
    (cells / "x.json").write_text("{}")
    for number in range(5):
        (raw / f"{number}.jsonl.gz").write_bytes(bytes(6 * 1024 * 1024))
    driver.collect(tmp_path / "runs", tmp_path / "out", raw=True)
    with tarfile.open(tmp_path / "out" / "runs.tgz") as archive:
        assert "a/cells/x.json" in archive.getnames()
        assert not [name for name in archive.getnames() if "raw" in name]
    parts = sorted((tmp_path / "out").glob("raw-*.tar"))
    names: list[str] = []
    for part in parts:
        assert part.stat().st_size <= 16 * 1024 * 1024
        with tarfile.open(part) as archive:
            names += archive.getnames()
    assert sorted(names) == [f"a/raw/{number}.jsonl.gz" for number in range(5)]


def test_queues_may_stand_after_options(tmp_path: Path) -> None:
    """The command line as the module's text shows it: the queues come last, and an unknown job is told before anything starts."""
    with pytest.raises(SystemExit, match="no job 'nothing'"):
        driver.main(["start", "--runs", str(tmp_path / "runs"), "0=nothing"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("job", [LLAMA, QWEN3])
def test_full_batches_run_in_a_graph_of_their_own_size(job: Job) -> None:
    """The list of graph sizes holds each measured batch times K + 1 up to its largest, so nothing measured is padded."""
    sizes = load_stack(HERE / f"{job.name}.yaml").engine.extra_args["compilation-config"]
    assert isinstance(sizes, dict)
    listed = sizes["cudagraph_capture_sizes"]
    assert isinstance(listed, list)
    lengths = {int(arm.rpartition("-k")[2]) if arm != "baseline" else 0 for arm in job.tok_s}
    assert lengths == {0, 3, 5, 7}
    tokens = {running * (length + 1) for running in CONCURRENCY for length in lengths}
    assert {one for one in tokens if one <= 512} <= set(listed)
    assert max(listed) == 512

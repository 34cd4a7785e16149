"""The load generator as a process: found, followed, read, and gone afterwards. Against the simulated engine."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.aiperf import AiperfRunner
from outrider.measure.aiperf_program import VERSION, find_aiperf
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
from tests.front.harness import Bed, wait_until

Plan = Callable[..., LoadPlan]


def quiet(done: int, of: int) -> None:
    """Nobody watches."""


def script(path: Path, text: str) -> Path:
    """A program that stands where aiperf should."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_another_version_is_refused(tmp_path: Path) -> None:
    """A program of another version is refused with both versions and the command that installs the right one."""
    other = script(tmp_path / "aiperf", "echo 0.12.1")
    with pytest.raises(MeasurementError, match=rf"0\.12\.1; {VERSION} is needed") as refused:
        find_aiperf({"OUTRIDER_AIPERF": str(other)})
    assert "make bench-env" in refused.value.hint


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("echo true 9.1; echo Written by Jim Meyering.", "'true 9.1'"),
        ("exit 0", "tells no version"),
        ("echo not for you >&2; exit 3", "'not for you'"),
    ],
)
def test_a_program_that_is_no_aiperf_is_called_that(tmp_path: Path, answer: str, words: str) -> None:
    """What it answers is shown, and no word of it is taken for a version."""
    other = script(tmp_path / "aiperf", answer)
    with pytest.raises(MeasurementError, match=f"is not the load generator aiperf.*{words}") as refused:
        find_aiperf({"OUTRIDER_AIPERF": str(other)})
    assert "Meyering" not in str(refused.value)
    assert "make bench-env" in refused.value.hint


def test_where_the_program_is_looked_for(tmp_path: Path) -> None:
    """The variable goes first, then `.venv-bench` of the folder; a named program that is not there is not passed over."""
    named = script(tmp_path / "named" / "aiperf", f"echo {VERSION}")
    beside = script(tmp_path / ".venv-bench" / "bin" / "aiperf", f"echo {VERSION}")
    assert find_aiperf({"OUTRIDER_AIPERF": str(named)}, tmp_path) == named
    assert find_aiperf({}, tmp_path) == beside
    with pytest.raises(MeasurementError, match="cannot be run"):
        find_aiperf({"OUTRIDER_AIPERF": str(tmp_path / "none")}, tmp_path)


def test_a_generator_that_dies_says_its_last_words(tmp_path: Path, plan: Plan, folder: Path) -> None:
    """No records and a status: the error holds the status and the last lines, without the key they were full of."""
    text = f'[ "$1" = --version ] && echo {VERSION} && exit; echo "no memory left for $OUTRIDER_LOAD_KEY"; exit 3'
    runner = AiperfRunner(program=script(tmp_path / "aiperf", text))
    with pytest.raises(MeasurementError, match="status 3 after 0 of 6 requests") as died:
        runner.run(plan(9, api_key="sk-secret"), folder, quiet)
    assert "no memory left for <key>" in str(died.value)
    assert b"sk-secret" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_conversations_keys_and_what_is_kept(
    bed: Bed, runner: AiperfRunner, plan: Plan, folder: Path
) -> None:
    """Two turns with a system prompt: the second carries the first and its answer; ids, order, progress; no key on disk."""
    sim = bed.sim(ttft_ms=5, step_ms=2)
    prompts = (Prompt("mt/81", ("one", "two"), system="be brief"), Prompt("mt/82", ("three",)))
    seen: list[tuple[int, int]] = []
    asked = plan(sim.port, prompts=prompts, requests=5, concurrency=1, api_key="sk-secret")
    result = runner.run(asked, folder, lambda done, of: seen.append((done, of)))
    assert [(record.prompt_id, record.turn) for record in result.records] == [
        *[("mt/81", 0), ("mt/81", 1), ("mt/82", 0)],
        *[("mt/81", 0), ("mt/81", 1)],
    ]
    assert {(record.outcome, record.output_tokens, record.finish) for record in result.records} == {
        ("ok", 11, "length")
    }
    headers, body = sim.last()
    assert headers["authorization"] == "Bearer sk-secret"
    request = json.loads(body)
    assert [message["role"] for message in request["messages"]] == ["system", "user", "assistant", "user"]
    assert request["messages"][2]["content"] == result.records[3].text
    assert (request["temperature"], request["ignore_eos"], request["max_tokens"]) == (0.0, True, 11)
    assert sim.metric("requests_total") == 2 + 5
    assert (seen[0], seen[-1]) == ((0, 5), (5, 5))
    assert seen == sorted(seen)
    assert result.generator == f"aiperf {VERSION}"
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(kept) == {"aiperf.log", "aiperf.yaml", "aiperf-console.log", "aiperf-summary.json"}
    assert not [name for name, content in kept.items() if b"sk-secret" in content]


def test_through_the_front(bed: Bed, runner: AiperfRunner, plan: Plan, folder: Path) -> None:
    """Past a front that stamps the draft: every chunk's count and the request's drafts arrive as the engine sent them."""
    sim = bed.sim(ttft_ms=20, step_ms=10, chunk_tokens="2,3")
    rule = {"name": "bench", "sha256": hashlib.sha256(b"sk-bench").hexdigest()}
    front = bed.front(sim, draft="eagle3", settings={"keys": [rule]})
    asked = plan(front.port, warmup_requests=0, api_key="sk-bench")
    result = runner.run(asked, folder, quiet)
    assert [record.outcome for record in result.records] == ["ok"] * 6
    assert {tuple(event.tokens for event in record.events) for record in result.records} >= {(1, 2, 3, 2, 3)}
    assert {(record.drafts, record.proposed, record.accepted) for record in result.records} == {(4, 12, 6)}
    assert not [warning for warning in result.warnings if "estimate" in warning]


def test_a_server_that_dies_half_way_is_records(
    bed: Bed, runner: AiperfRunner, plan: Plan, folder: Path
) -> None:
    """The requests after its death are refused or cut, the ones before stand; no exception."""
    sim = bed.sim(ttft_ms=5, step_ms=2, die_after_requests=8)
    result = runner.run(plan(sim.port, requests=12), folder, quiet)
    outcomes = [record.outcome for record in result.records]
    assert len(outcomes) == 12
    assert 4 <= outcomes.count("ok") <= 6
    assert set(outcomes) == {"ok", "cut", "refused"} or set(outcomes) == {"ok", "refused"}
    assert all(record.reason for record in result.records if not record.ok)


def test_a_server_too_slow_is_all_timeouts(bed: Bed, runner: AiperfRunner, plan: Plan, folder: Path) -> None:
    """Every request times out: records with what arrived until then, though aiperf itself ends with an error."""
    sim = bed.sim(ttft_ms=5, step_ms=400)
    result = runner.run(plan(sim.port, requests=2, warmup_requests=0, timeout_s=1.0), folder, quiet)
    assert [record.outcome for record in result.records] == ["timeout", "timeout"]
    assert [record.ended_s - record.started_s for record in result.records] == pytest.approx([1.0, 1.0])
    assert all(1 <= len(record.events) <= 3 for record in result.records)


LOAD = """
import signal, sys
from pathlib import Path
from outrider.measure.aiperf import AiperfRunner
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, as a CI's may be, ignores it
plan = LoadPlan(sys.argv[1], "sim", (Prompt("a", ("b",)),), 2, 500, 0, 16)
AiperfRunner().run(plan, Path(sys.argv[2]), lambda done, of: print("done", done, flush=True))
"""


def members(session: int) -> set[int]:
    """Processes of a session that live."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, _, _, its = (path / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            except (OSError, ValueError):
                continue
            if int(its) == session and state != "Z":
                found.add(int(path.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_behind(bed: Bed, folder: Path, number: signal.Signals) -> None:
    """However the bench ends in the middle of a load, aiperf and all its processes end soon after."""
    sim = bed.sim(ttft_ms=5, step_ms=20)
    argv = [sys.executable, "-c", LOAD, f"http://127.0.0.1:{sim.port}", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[1] != "0":
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        sessions = {os.getsid(int(child)) for child in children} - {os.getsid(0)}
        assert len(sessions) == 1
        session = sessions.pop()
        assert len(members(session)) > 3
        process.send_signal(number)
        process.wait(60)  # a slow machine takes its time; the point is that nothing stays
    deadline = time.monotonic() + 60
    wait_until(lambda: not members(session), deadline - time.monotonic())
    assert process.returncode != 0

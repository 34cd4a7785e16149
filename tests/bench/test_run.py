"""The run: what fails stands alone, what is done stays done. Scripted servers and loads; the real ones are in tests/engine."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import JsonValue

from outrider.bench.arms import plan_arms
from outrider.bench.build import build
from outrider.bench.document import SCHEMA, Labels, PromptSetInfo, RunDocument, Settings
from outrider.bench.folder import RunFolder
from outrider.bench.matrix import CellKey
from outrider.bench.run import Bench, BenchPlan
from outrider.bench.session import write_reports
from outrider.core.errors import EngineStartFailed, MeasurementError
from outrider.engines.sim.adapter import SimEngine
from outrider.measure.load import LoadPlan, LoadResult
from outrider.measure.prompts import Prompt, PromptSet
from outrider.measure.records import RequestRecord, TokenEvent
from outrider.measure.warmup import WarmUp
from tests.stacks import ngram_stack

ABOUT = RunDocument(
    schema=SCHEMA,
    name="toy",
    created="2026-01-01T00:00:00+00:00",
    complete=False,
    settings=Settings(
        concurrency=[1],
        trials=2,
        output_tokens=8,
        requests={1: 3},
        warmup=0,
        temperature=0.0,
        natural_end_prompts=0,
        natural_end_tokens=8,
    ),
    labels=Labels(
        weights="real", acceptance="measured", interleaved=True, absolute_times=False, temperature=0.0
    ),
    provenance={},
    served_name="toy",
    arms=[],
    prompt_sets=[],
    cells=[],
)


@dataclass
class ScriptedServer:
    """A server that is nowhere; it lives until it is told to die."""

    url: str = "http://127.0.0.1:9"
    engine_url: str = "http://127.0.0.1:9"
    facts: dict[str, object] = field(default_factory=lambda: {"device": "cpu"})
    alive: bool = True

    def tail(self) -> Sequence[str]:
        """Its last words."""
        return ("out of memory",)

    def stop(self) -> None:
        """End."""
        self.alive = False


@dataclass
class Script:
    """What happens: which arms do not start, at which load the server dies, the user interrupts, or the generator fails."""

    refuse: frozenset[str] = frozenset()
    die_at: int = -1
    interrupt_at: int = -1
    fail_at: int = -1
    loads: int = 0
    starts: list[str] = field(default_factory=list)
    servers: list[ScriptedServer] = field(default_factory=list)

    def start(self, stack: Path, log: Path, timeout_s: float, say: Callable[[str], None]) -> ScriptedServer:
        """As `Service.start`."""
        self.starts.append(stack.stem)
        if stack.stem in self.refuse:
            raise EngineStartFailed("it does not start", log_tail=("no such head",))
        self.servers.append(ScriptedServer())
        return self.servers[-1]

    def run(self, plan: LoadPlan, folder: Path, progress: Callable[[int, int], None]) -> LoadResult:
        """As a load runner: ten tokens a request, or the scripted trouble."""
        self.loads += 1
        if self.loads == self.interrupt_at:
            raise KeyboardInterrupt
        if self.loads == self.fail_at:
            raise MeasurementError("the load generator died")
        dies = self.loads == self.die_at
        if dies:
            self.servers[-1].alive = False
        records = tuple(
            RequestRecord(
                str(number),
                plan.prompts[number % len(plan.prompts)].id,
                0,
                number * 1.0,
                number + 0.9,
                () if dies else tuple(TokenEvent(number + 0.1 * step, 1) for step in range(1, 9)),
                output_tokens=None if dies else 8,
                outcome="refused" if dies else "ok",
                reason="connection refused" if dies else "",
            )
            for number in range(plan.requests)
        )
        return LoadResult(records, 0.0, float(plan.requests), "scripted")


def bench(folder: Path, script: Script, said: list[str], trials: int = 2) -> Bench:
    """A bench of two arms, one set, one concurrency."""
    prompts = PromptSet("toy", tuple(Prompt(f"toy/{n}", ("hello",)) for n in range(4)), "toy", "0" * 64)
    settings = ABOUT.settings.model_copy(update={"trials": trials})
    plan = BenchPlan(tuple(plan_arms(ngram_stack(), (), 1)), (prompts,), settings)
    return Bench(
        plan,
        RunFolder(folder),
        script,
        SimEngine(),
        script.start,
        said.append,
        warm=lambda plan, say: WarmUp((1.0, 1.0)),
    )


def states(folder: Path, trials: int = 2) -> dict[str, str]:
    """Reason by cell that is there; empty for one that ran."""
    found = {}
    for arm in ("baseline", "ngram-k3"):
        for trial in range(1, trials + 1):
            run = RunFolder(folder).load(CellKey(arm, "toy", 1, trial))
            if run is not None:
                found[run.key.id] = run.reason
    return found


def test_a_whole_run(tmp_path: Path) -> None:
    """Every cell runs, the order is kept, the servers are stopped."""
    script, said = Script(), list[str]()
    bench(tmp_path, script, said).run(ABOUT)
    assert states(tmp_path) == dict.fromkeys(
        ["baseline.toy.c1.t1", "baseline.toy.c1.t2", "ngram-k3.toy.c1.t1", "ngram-k3.toy.c1.t2"], ""
    )
    assert script.starts == ["baseline", "ngram-k3", "baseline"]
    assert not any(server.alive for server in script.servers)
    assert any("[4/4]" in line for line in said)


def test_an_interrupted_run_goes_on_at_the_next_cell(tmp_path: Path) -> None:
    """What was done before the interrupt is not done again."""
    first = Script(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, first, []).run(ABOUT)
    assert len(states(tmp_path)) == 2
    assert not any(server.alive for server in first.servers)
    second, said = Script(), list[str]()
    bench(tmp_path, second, said).run(ABOUT)
    assert second.loads == 2
    assert len(states(tmp_path)) == 4
    assert "going on" in said[0]


def test_a_baseline_that_fails_leaves_the_other_arms(tmp_path: Path) -> None:
    """The arm's cells say why; the other arm is measured; next time the failed ones are tried again."""
    bench(tmp_path, Script(refuse=frozenset({"baseline"})), []).run(ABOUT)
    found = states(tmp_path)
    assert "no such head" in found["baseline.toy.c1.t1"]
    assert found["ngram-k3.toy.c1.t2"] == ""
    again = Script()
    bench(tmp_path, again, []).run(ABOUT)
    assert again.loads == 2
    assert set(states(tmp_path).values()) == {""}


def test_a_server_that_dies_half_way_is_started_once_more(tmp_path: Path) -> None:
    """Its cell failed with the server's last words, the next cell of the block runs on a new server."""
    script = Script(die_at=2)
    bench(tmp_path, script, []).run(ABOUT)
    found = states(tmp_path)
    assert "the server ended: out of memory" in found["ngram-k3.toy.c1.t1"]
    assert found["ngram-k3.toy.c1.t2"] == ""
    assert script.starts == ["baseline", "ngram-k3", "ngram-k3", "baseline"]


def test_a_generator_that_dies_costs_one_cell(tmp_path: Path) -> None:
    """One cell failed, three stand."""
    bench(tmp_path, Script(fail_at=1), []).run(ABOUT)
    assert [reason for reason in states(tmp_path).values() if reason] == ["the load generator died"]


def test_each_cell_is_warmed_before_its_load(tmp_path: Path) -> None:
    """With the load's own plan, on its server; the waves are said, kept with the cell, and in the document; no natural end is."""
    script, said = Script(), list[str]()
    order: list[tuple[str, int, int]] = []

    def warm(plan: LoadPlan, say: Callable[[str], None]) -> WarmUp:
        order.append((plan.url, plan.concurrency, script.loads))
        say("warm-up: 8.0 s")
        return WarmUp((8.0, 2.0, 1.0), "still changing") if len(order) == 1 else WarmUp((8.0, 2.0, 2.1))

    made = bench(tmp_path, script, said)
    made.warm = warm
    settings = made.plan.settings.model_copy(update={"natural_end_prompts": 2})
    made.plan = BenchPlan(made.plan.arms, made.plan.prompt_sets, settings)
    sets = [PromptSetInfo(name="toy", prompts=4, source="toy", sha256="0" * 64)]
    arms = [arm.described() for arm in made.plan.arms]
    made.run(ABOUT.model_copy(update={"arms": arms, "prompt_sets": sets}))
    # Two cells with their natural ends between: each warm-up stands before its own load.
    assert [loads for _, _, loads in order] == [0, 2, 4, 5]
    assert {(url, concurrency) for url, concurrency, _ in order} == {("http://127.0.0.1:9", 1)}
    found = build(RunFolder(tmp_path))
    trials = [trial for cell in found.cells for trial in cell.trials]
    assert [trial.warmup is not None and len(trial.warmup.waves_s) for trial in trials] == [3] * 4
    assert [trial.warmup.unsettled for trial in trials if trial.warmup] == ["still changing", "", "", ""]
    natural = RunFolder(tmp_path).load(CellKey("baseline", "toy", 0, 1))
    assert natural is not None
    assert natural.warmup is None
    lines = [line for line in said if line.startswith("[1/6]")]
    assert "[1/6] baseline · toy · 1 at once · trial 1: warm-up: 8.0 s\r" in lines
    assert any("did not settle: still changing (8.0, 2.0, 1.0 s)" in line for line in lines)
    assert any("3 requests, warm-up of 8.0, 2.0, 1.0 s (" in line for line in lines)


def test_a_cell_of_before_the_waves_is_read(tmp_path: Path) -> None:
    """A folder of an older Outrider tells no warm-up: its cells are read as they are."""
    bench(tmp_path, Script(), []).run(ABOUT)
    path = tmp_path / "cells" / "baseline.toy.c1.t1.json"
    stored = json.loads(path.read_text())
    del stored["warmup"]
    path.write_text(json.dumps(stored))
    run = RunFolder(tmp_path).load(CellKey("baseline", "toy", 1, 1))
    assert run is not None
    assert run.warmup is None
    assert run.load is not None


def test_other_settings_are_refused_more_trials_are_not(tmp_path: Path) -> None:
    """A folder never mixes two kinds of cells; adding trials goes on."""
    bench(tmp_path, Script(), []).run(ABOUT)
    more = Script()
    bench(tmp_path, more, [], trials=3).run(ABOUT)
    assert more.loads == 2
    other = bench(tmp_path, Script(), [])
    other.plan = BenchPlan(
        other.plan.arms, other.plan.prompt_sets, other.plan.settings.model_copy(update={"output_tokens": 9})
    )
    with pytest.raises(MeasurementError, match=r"other settings .output_tokens: 8 → 9"):
        other.run(ABOUT)


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    """The second is refused while the first holds it."""
    with RunFolder(tmp_path).locked(), pytest.raises(MeasurementError, match="another run"):
        bench(tmp_path, Script(), []).run(ABOUT)


def test_a_damaged_cell_counts_as_not_run(tmp_path: Path) -> None:
    """Half a file is measured again, not believed."""
    bench(tmp_path, Script(), []).run(ABOUT)
    path = tmp_path / "cells" / "baseline.toy.c1.t1.json"
    path.write_text(path.read_text()[:40])
    again = Script()
    bench(tmp_path, again, []).run(ABOUT)
    assert again.loads == 1


@pytest.mark.parametrize("text", ["[]", "null", '{"schema": "outrider/bench-cell/v9"}'])
def test_a_cell_of_another_kind_counts_as_not_run(tmp_path: Path, text: str) -> None:
    """What cannot be read as this kind of cell is measured again, not dropped in silence."""
    bench(tmp_path, Script(), []).run(ABOUT)
    (tmp_path / "cells" / "baseline.toy.c1.t1.json").write_text(text)
    again = Script()
    bench(tmp_path, again, []).run(ABOUT)
    assert again.loads == 1


def test_records_that_are_cut_off_count_as_not_run(tmp_path: Path) -> None:
    """Half a file of records is measured again."""
    bench(tmp_path, Script(), []).run(ABOUT)
    path = tmp_path / "raw" / "baseline.toy.c1.t1.jsonl.gz"
    path.write_bytes(path.read_bytes()[:40])
    again = Script()
    bench(tmp_path, again, []).run(ABOUT)
    assert again.loads == 1


@pytest.mark.parametrize(
    "other",
    [
        {"engine": "vllm 0.33.0 (cuda)"},
        {"hardware": {"processor": "x", "accelerators": ["NVIDIA A10, 24 GiB, 580"]}},
    ],
)
def test_a_run_goes_on_with_the_same_engine_on_the_same_hardware_only(
    tmp_path: Path, other: dict[str, JsonValue]
) -> None:
    """Cells of two engines or two machines never share a folder; another driver is no other machine."""
    cards = {"processor": "x", "accelerators": ["NVIDIA H200, 141 GiB, 580.1"]}
    about = ABOUT.model_copy(update={"provenance": {"engine": "vllm 0.26.0 (cuda)", "hardware": cards}})
    bench(tmp_path, Script(), []).run(about)
    newer = {"processor": "x", "accelerators": ["NVIDIA H200, 141 GiB, 590.2"]}
    bench(tmp_path, Script(), []).run(
        about.model_copy(update={"provenance": {**about.provenance, "hardware": newer}})
    )
    with pytest.raises(MeasurementError, match="other settings"):
        bench(tmp_path, Script(), []).run(
            about.model_copy(update={"provenance": {**about.provenance, **other}})
        )


def test_a_run_that_lacks_a_trial_is_not_complete(tmp_path: Path) -> None:
    """Every trial that was asked for, or the report says that the run is unfinished."""
    made = bench(tmp_path, Script(), [])
    sets = [PromptSetInfo(name="toy", prompts=4, source="toy", sha256="0" * 64)]
    about = ABOUT.model_copy(
        update={"arms": [arm.described() for arm in made.plan.arms], "prompt_sets": sets}
    )
    made.run(about)
    assert build(RunFolder(tmp_path)).complete
    (tmp_path / "cells" / "ngram-k3.toy.c1.t2.json").unlink()
    assert not build(RunFolder(tmp_path)).complete


def full(path: Path) -> None:
    """Make writing to this file end as on a full disk: the kernel's own ENOSPC."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/full")


@pytest.mark.parametrize(
    "file",
    [
        ".plan.json.{pid}",
        ".about.json.{pid}",
        "arms/baseline.yaml",
        "cells/.baseline.toy.c1.t1.json.{pid}",
        "raw/.baseline.toy.c1.t1.jsonl.gz.{pid}",
    ],
)
def test_a_full_disk_says_so_and_the_run_goes_on_later(tmp_path: Path, file: str) -> None:
    """Whichever file does not fit: exit 12 with what to do, no server left, and the same command ends the run."""
    file = file.format(pid=os.getpid())
    full(tmp_path / file)
    script = Script()
    with pytest.raises(MeasurementError, match=r"disk is full; what is done is kept") as caught:
        bench(tmp_path, script, []).run(ABOUT)
    assert "repeat the command" in caught.value.hint
    assert not any(server.alive for server in script.servers)
    (tmp_path / file).unlink(missing_ok=True)
    bench(tmp_path, Script(), []).run(ABOUT)
    assert set(states(tmp_path).values()) == {""}
    assert len(states(tmp_path)) == 4


def test_a_load_that_finds_the_disk_full_ends_the_run_in_words(tmp_path: Path) -> None:
    """Also what the load generator cannot write; an error that is no disk's is not called one."""
    script = Script()
    plain = bench(tmp_path, script, [])

    class Full(Script):
        def run(self, plan: LoadPlan, folder: Path, progress: Callable[[int, int], None]) -> LoadResult:
            """Writes where nothing fits."""
            Path("/dev/full").write_text("x")
            raise AssertionError

    plain.runner = Full()
    with pytest.raises(MeasurementError, match="disk is full"):
        plain.run(ABOUT)
    assert not any(server.alive for server in script.servers)
    with pytest.raises(FileNotFoundError), RunFolder(tmp_path).locked():
        (tmp_path.parent / "nothing" / "here").read_text()


def test_a_folder_that_cannot_be_made_is_no_crash(tmp_path: Path) -> None:
    """A file in the way, and a file system that takes nothing."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "run", Path("/proc/outrider-run")):
        with pytest.raises(MeasurementError, match="cannot write into") as caught:
            bench(place, Script(), []).run(ABOUT)
        assert "--out DIR" in caught.value.hint


def test_run_json_on_a_full_disk(tmp_path: Path) -> None:
    """The reports' own writing: MeasurementError, and no half file in the place."""
    bench(tmp_path, Script(), []).run(ABOUT)
    scratch = tmp_path / f".run.json.{os.getpid()}"
    full(scratch)
    with pytest.raises(MeasurementError, match=r"cannot write run\.json"):
        write_reports(tmp_path)
    assert not (tmp_path / "run.json").exists()

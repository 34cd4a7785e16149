"""The reliability report: traffic, requests, a stale head, figures, page and picture; a whole run on simulated engines."""

import asyncio
import json
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from benchmarks.reliability import __main__ as command
from benchmarks.reliability import blocks as kept
from benchmarks.reliability.__main__ import stack_from
from benchmarks.reliability.blocks import Cell, Switch
from benchmarks.reliability.figures import (
    BIN_S,
    ReliabilityRun,
    bootstrap,
    cell_info,
    closed_slices,
    figures,
    paired,
    phase_figures,
    ratios,
)
from benchmarks.reliability.load import Sender, Server, outcome_of, packets
from benchmarks.reliability.picture import drafts_over_time, render_timeline, spans
from benchmarks.reliability.plan import (
    ARMS,
    FIXED,
    GOVERNED,
    PHASES,
    PLAIN,
    arrivals,
    blocks,
    cell_s,
    endless,
    order,
)
from benchmarks.reliability.report import EVEN, interval, render, verdicts
from benchmarks.reliability.run import Progress, Runner, Wish, speculation, stack_of, switches_since
from benchmarks.reliability.stale import disturbed, make_stale

from outrider.bench.document import Interval
from outrider.bench.folder import RunFolder
from outrider.core.errors import MeasurementError
from outrider.measure.records import RequestRecord
from outrider.measure.streams import Stream
from outrider.stack.digests import file_digest
from outrider.stack.load import load_stack
from outrider.stack.manifest import PairManifest, PairPart, ServedAcceptance, read_manifest, write_manifest
from outrider.stack.safetensors_header import read_layout
from tests.bench.records import record
from tests.unit.pairs import SIZES, safetensors, small_numbers

LOAD_3 = next(place for place, phase in enumerate(PHASES) if phase.load == 3)


# ---- the plan


def test_every_phase_is_run_once_a_round_and_a_restart_begins_a_block() -> None:
    """What is repeated after an interruption is what the servers live through."""
    found = blocks(2)
    assert len({one.id for one in found}) == len(found)
    for number in range(2):
        mine = [one for one in found if one.round == number]
        assert [phase for one in mine for phase in one.phases] == list(range(len(PHASES)))
        assert all(PHASES[one.phases[0]].restart for one in mine)
        assert not any(PHASES[phase].restart for one in mine for phase in one.phases[1:])
        assert [one.stale for one in mine] == [False, True, False]


def test_over_two_rounds_every_arm_stands_as_early_as_late() -> None:
    """A drift of the machine meets all of them alike."""
    for phase in range(len(PHASES)):
        one, other = order(0, phase), order(1, phase)
        assert sorted(one) == sorted(ARMS)
        assert one == other[::-1]


def test_an_arm_has_its_minutes() -> None:
    """All cells of an arm together."""
    assert cell_s(20, 2) * 2 * len(PHASES) == pytest.approx(20 * 60)


def test_arrivals_are_the_same_for_every_arm_and_thrice_as_many_at_load_3() -> None:
    """Open loop, by the seed alone."""
    quiet, heavy = arrivals(1, 0, 0, 2.0, 600), arrivals(1, 0, LOAD_3, 2.0, 600)
    assert quiet == arrivals(1, 0, 0, 2.0, 600)
    assert quiet != arrivals(2, 0, 0, 2.0, 600)
    assert all(before < after for before, after in pairwise(quiet))
    assert 0 < quiet[0] < quiet[-1] < 600
    assert len(quiet) == pytest.approx(1200, rel=0.1)
    assert len(heavy) == pytest.approx(3600, rel=0.1)


def test_prompts_come_round_evenly() -> None:
    """Each once before any comes again; another order each time, the same with the same seed."""
    prompts = ("a", "b", "c", "d", "e", "f")
    first = list(islice(endless(prompts, 0, 0, 0, "open"), 18))
    assert first == list(islice(endless(prompts, 0, 0, 0, "open"), 18))
    passes = [first[0:6], first[6:12], first[12:18]]
    assert all(sorted(text for _, text in one) == list(prompts) for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    assert all(prompts[place] == text for place, text in first)


# ---- requests


def test_a_line_cut_in_two_belongs_to_the_read_that_ended_it() -> None:
    """Reads end where they like."""
    pieces = [(1, b'data: {"a"'), (2, b': 1}\n\ndata: {"b": 2}\n'), (3, b": comment\n\ndata: [DONE]\n\n")]
    assert list(packets(pieces)) == [
        {"perf_ns": 2, "packets": [{"name": "data", "value": v} for v in ('{"a": 1}', '{"b": 2}')]},
        {"perf_ns": 3, "packets": [{"name": "data", "value": "[DONE]"}]},
    ]


@pytest.mark.parametrize(
    ("status", "fault", "stream", "outcome"),
    [
        (200, "", Stream(done=True, output_tokens=32), "ok"),
        (200, "", Stream(done=True, output_tokens=31), "tokens-missing"),
        (200, "", Stream(done=False, output_tokens=32), "cut"),
        (200, "", Stream(error="engine died", error_code=503), "http-503"),
        (200, "", Stream(error="engine died"), "cut"),
        (429, "", Stream(), "http-429"),
        (200, "timeout", Stream(done=True, output_tokens=32), "timeout"),
        (None, "refused", Stream(), "refused"),
    ],
)
def test_only_a_whole_answer_counts(status: int | None, fault: str, stream: Stream, outcome: str) -> None:
    """Everything else is a failure by its name."""
    assert outcome_of(status, fault, stream, 32) == outcome


def _started(*argv: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-m", *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    with process.stdout as said:  # one line, once it listens
        return process, int(said.readline().rsplit(" ", 1)[-1])


@contextmanager
def sim_server(draft: str = "eagle3", **config: object) -> Iterator[str]:
    """The real front before a simulated engine; its address."""
    with ExitStack() as stack:
        engine, engine_port = _started("outrider.engines.sim.server", "--ttft-ms", "5", "--step-ms", "2")
        stack.callback(engine.wait, 10)
        stack.callback(engine.terminate)
        upstreams = [{"port": engine_port, "concurrency": 64}]
        front, port = _started(
            "outrider.front.standalone", json.dumps({"upstreams": upstreams, "draft": draft, **config})
        )
        stack.callback(front.wait, 10)
        stack.callback(front.terminate)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that does all right."""
    with sim_server() as found:
        yield found


def _sender(url: str, tokens: int = 8) -> Sender:
    return Sender(Server(url, "sim", tokens), lambda part: endless(("one", "two"), 0, 0, 0, part))


def test_open_loop_sends_when_due_and_reads_every_token(url: str) -> None:
    """All of them, each from the moment it was due."""
    sender, began_s = _sender(url), time.monotonic()
    asyncio.run(sender.open_loop([0.0, 0.01, 0.02, 0.3]))
    found = {one.id: one for one in sender.records}
    assert sorted(found) == [f"open/{number}" for number in range(4)]
    assert all(one.ok and one.output_tokens == 8 for one in found.values())
    assert found["open/3"].started_s - found["open/0"].started_s == pytest.approx(0.3, abs=1e-6)
    assert began_s <= found["open/0"].started_s <= found["open/0"].events[0].at_s
    assert all(sum(event.tokens for event in one.events) == 8 for one in found.values())


def test_closed_loop_keeps_as_many_under_way_as_it_has_streams(url: str) -> None:
    """The next begins when the last has ended, until the time is over."""
    sender = _sender(url)
    asyncio.run(sender.closed_loop(3, 0.3))
    by_stream: dict[str, list[RequestRecord]] = {}
    for one in sender.records:
        by_stream.setdefault(one.id.split("/")[1], []).append(one)
    assert sorted(by_stream) == ["0", "1", "2"]
    for mine in by_stream.values():
        assert len(mine) > 2
        assert all(before.ended_s <= after.started_s for before, after in pairwise(mine))
    assert all(one.ok for one in sender.records)


def test_a_server_that_is_not_there_is_a_failure_each_time() -> None:
    """And is not asked a thousand times a second."""
    sender = _sender("http://127.0.0.1:9")
    asyncio.run(sender.open_loop([0.0, 0.01]))
    asyncio.run(sender.closed_loop(2, 0.5))
    assert [one.outcome for one in sender.records] == ["refused"] * 4


# ---- the stale head


def _bf16(values: np.ndarray) -> bytes:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def _floats(raw: bytes) -> np.ndarray:
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)


def test_noise_is_as_large_as_was_asked_for() -> None:
    """None leaves every bit, one is as large as the values."""
    raw = _bf16(np.random.default_rng(3).standard_normal(20_000) * 0.02)
    assert disturbed(raw, 0.0, 0) == raw
    before, after = _floats(raw), _floats(disturbed(raw, 0.5, 0))
    assert np.sqrt(np.mean((after - before) ** 2)) == pytest.approx(
        0.5 * np.sqrt(np.mean(before**2)), rel=0.03
    )
    assert disturbed(raw, 0.5, 0) == disturbed(raw, 0.5, 0) != disturbed(raw, 0.5, 1)


def _head(folder: Path, kind: str = "BF16") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(
        safetensors(
            {
                "d2t": ("I64", (4,), bytes(32)),
                "fc.weight": (kind, (8, 24), small_numbers((8, 12 * SIZES[kind]), 0)),
                "norm.weight": ("BF16", (8,), small_numbers((8,), 1)),
                "lm_head.weight": (kind, (16, 8), small_numbers((16, 4 * SIZES[kind]), 2)),
            }
        )
    )
    content = {name: file_digest(folder / name) for name in ("config.json", "model.safetensors")}
    served = ServedAcceptance("code", 3, 6, 384, 200, 174, 1.87, (0.5, 0.3, 0.07))
    manifest = PairManifest(
        PairPart("target", {"wheel": "a" * 64}), PairPart("demo", content), "eagle3", None, 3, (served,)
    )
    write_manifest(manifest, folder / "pair.json")
    return folder


def test_a_stale_head_differs_in_its_matrices_and_promises_the_same(tmp_path: Path) -> None:
    """Its manifest fits its bytes, so that it is served, and still says what the good one was worth."""
    head, out = _head(tmp_path / "head"), tmp_path / "stale"
    make_stale(head, out, 1.0)
    good, stale = ((one / "model.safetensors").read_bytes() for one in (head, out))
    places = read_layout(out / "model.safetensors").places
    same = {name for name, at in places.items() if good[at.begin : at.end] == stale[at.begin : at.end]}
    assert same == {"d2t", "norm.weight"}
    assert len(good) == len(stale)
    before, after = read_manifest(head / "pair.json"), read_manifest(out / "pair.json")
    assert after.draft.content["model.safetensors"] == file_digest(out / "model.safetensors")
    assert after.served == before.served
    assert after.id != before.id


def test_a_head_of_another_kind_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(MeasurementError, match="bfloat16") as refused:
        make_stale(_head(tmp_path / "head", "F32"), tmp_path / "stale", 1.0)
    assert "make train-demo" in refused.value.hint


# ---- the arms


def test_the_arms_differ_in_what_they_are_for_alone(tmp_path: Path) -> None:
    """Governed by default; the head always; no draft."""
    wish, read = _wish(tmp_path), {}
    for arm in ARMS:
        path = tmp_path / f"{arm}.yaml"
        path.write_text(json.dumps(stack_of(arm, wish, tmp_path / "head")))
        read[arm] = load_stack(path)
    assert [read[arm].draft.method for arm in ARMS] == ["eagle3", "eagle3", "none"]
    assert read[GOVERNED].policy.enabled
    assert read[GOVERNED].policy == load_stack(None).policy
    assert not read[FIXED].policy.enabled
    assert read[FIXED].draft == read[GOVERNED].draft
    assert len({one.target.model for one in read.values()}) == 1
    assert len({repr(one.engine) for one in read.values()}) == 1


def test_a_stack_of_ones_own_gives_target_engine_and_the_governed_arms_policy(tmp_path: Path) -> None:
    """Two engines for the governed arm alone; the others have none of its policy."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "apiVersion: outrider/v1alpha1\nname: mine\ntarget: {model: ./model}\n"
        "engine: {device: cuda, kv_cache_gib: 4}\npolicy: {plain_engine: true}\n"
    )
    wish, path = replace(_wish(tmp_path), stack=stack_from(mine), method="p-eagle"), tmp_path / "arm.yaml"
    read = {}
    for arm in ARMS:
        path.write_text(json.dumps(stack_of(arm, wish, tmp_path / "head")))
        read[arm] = load_stack(path)
    assert {one.target.model for one in read.values()} == {str(tmp_path / "model")}
    assert {one.engine.kv_cache_gib for one in read.values()} == {4}
    assert [read[arm].policy.plain_engine for arm in ARMS] == [True, False, False]
    assert [read[arm].policy.enabled for arm in ARMS] == [True, False, False]
    assert [read[arm].draft.method for arm in ARMS] == ["p-eagle", "p-eagle", "none"]


def test_the_first_phases_alone(tmp_path: Path) -> None:
    """Their blocks, their seconds, and a page that speaks of no others."""
    assert [one.phases for one in blocks(1, 3)] == [(0, 1, 2)]
    assert cell_s(3, 1, 3) == 60
    run = _run()
    page = render(run.model_copy(update={"phases": run.phases[:3]}))
    assert "load × 3" not in page
    assert "Stale head" not in page


def test_servers_that_name_their_memory_start_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other where an engine measures what is free; all stop at the end."""
    under_way, most, stopped = 0, 0, []

    class Fake:
        url, facts = "http://x", {"model": "m"}

        @classmethod
        def start(cls, *_: object) -> "Fake":
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            time.sleep(0.2)
            under_way -= 1
            return cls()

        def stop(self) -> None:
            stopped.append(self)

    monkeypatch.setattr("benchmarks.reliability.run.Service", Fake)
    for gib, together in ((None, 1), (4.0, 3)):
        most = 0
        stack = stack_from(None)
        stack = stack.model_copy(update={"engine": stack.engine.model_copy(update={"kv_cache_gib": gib})})
        runner = Runner(replace(_wish(tmp_path), stack=stack), RunFolder(tmp_path / str(gib)))
        runner.progress = Progress({"start": 3}, {"start": 1.0})
        with runner._servers(ARMS, tmp_path / "head", "one") as servers:
            assert set(servers) == set(ARMS)
        assert most == together
    assert len(stopped) == 6


def test_switches_are_told_once_and_by_the_cells_own_clock() -> None:
    """What was switched while the server idled is the next cell's, before its begin."""
    rows = [
        {"t": t, "before": "eagle3", "after": "ngram", "reason": "acceptance", "why": "low"}
        for t in (90.0, 104.0, 130.0)
    ]
    found = switches_since({"last_switches": rows}, 100.0, 110.0)
    assert [one.after_s for one in found] == [-6.0, 20.0]
    assert switches_since({"policy": "off"}, 0.0, 0.0) == ()


# ---- figures


def _cell(
    arm: str, *, slower: float = 1.0, requests: int = 60, phase: int = 0, number: int = 0, failed: int = 0
) -> Cell:
    """A minute of open loop, twenty seconds of closed: a request of `slower` × (0.5 to 1.5 s) every second, 11 tokens each."""
    draw, began_s = random.Random(phase), 1000.0  # noqa: S311
    made = []
    for place in range(requests):
        gap_s = slower * draw.uniform(0.5, 1.5) / 10
        one = record(
            place,
            started_s=began_s + place * 60 / requests,
            ttft_s=gap_s,
            gap_s=gap_s,
            chunks=10,
            first_tokens=2,
            outcome="http-503" if place < failed else "ok",
        )
        made.append(replace(one, id=f"open/{place}", drafts=4, accepted=2))
    made += [
        replace(
            record(place, started_s=began_s + 60 + place * slower, ttft_s=0.0, gap_s=slower / 10, chunks=10),
            id=f"closed/0/{place}",
        )
        for place in range(math.ceil(25 / slower))
    ]
    return Cell(
        number, phase, arm, began_s, began_s + 60, began_s + 80, began_s + 85, "eagle3", 1.0, (), tuple(made)
    )


def test_figures_of_a_known_cell() -> None:
    """Rates, counts, acceptance; a failed request stands beside the percentiles, never inside."""
    found = figures([_cell(GOVERNED, failed=3)])
    assert found.failures == {"http-503": 3}
    assert found.sent == 60 + 25
    assert found.e2e_ms.n == found.ttft_ms.n == 57
    assert found.tok_s == pytest.approx(57 * 11 / 60)
    assert found.closed_tok_s == pytest.approx(
        10, rel=0.02
    )  # ten tokens a second; what came after the time is left out
    assert found.acceptance_length == pytest.approx(1.5)
    assert found.drafted == pytest.approx(60 / 85)
    assert found.e2e_ms.p50 is not None
    assert found.e2e_ms.p95 is None
    assert found.e2e_ms.curve == []


def test_p99_only_with_as_many_values_as_it_takes() -> None:
    """In the figures and in the ratios."""
    for requests, there in ((367, False), (368, True)):
        mine, theirs = (_cell(arm, requests=requests) for arm in (GOVERNED, FIXED))
        assert (figures([mine]).e2e_ms.p99 is not None) is there
        names = {one.figure for one in ratios([mine], [theirs], FIXED)}
        assert ("e2e_ms.p99" in names) is there
        assert {"e2e_ms.mean", "ttft_ms.mean", "e2e_ms.p95", "closed_tok_s"} <= names


def test_a_ratio_that_is_known_is_found_with_an_interval_around_it() -> None:
    """Half the time a request, twice the tokens."""
    mine, theirs = _cell(GOVERNED, requests=100), _cell(FIXED, slower=2.0, requests=100)
    found = {one.figure: one.ratio for one in ratios([mine], [theirs], FIXED)}
    for figure in ("e2e_ms.mean", "e2e_ms.p95", "ttft_ms.mean"):
        assert found[figure].value == pytest.approx(0.5)
        assert found[figure].n == 100
        assert found[figure].low == pytest.approx(0.5)
        assert found[figure].high == pytest.approx(0.5)
    assert found["closed_tok_s"].value == pytest.approx(2.0, rel=0.1)


def test_noise_widens_the_interval_and_the_truth_lies_in_it() -> None:
    """Twenty slices, each of its own speed: the same in every run."""
    draw = random.Random(5)  # noqa: S311
    mine = {(0, 0, place): [draw.lognormvariate(0, 0.2) for _ in range(5)] for place in range(20)}
    theirs = {key: [draw.lognormvariate(0, 0.2) for _ in range(5)] for key in mine}
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    found = bootstrap(mine, theirs, mean, 100)
    assert found == bootstrap(mine, theirs, mean, 100)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.0 < found.high
    assert 0.02 < found.high - found.low < 0.3


def test_without_values_there_is_no_ratio_and_with_one_slice_no_interval() -> None:
    """A single stretch of time says nothing about others."""
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    assert bootstrap({}, {}, mean, 0) is None
    assert bootstrap({(0, 0, 0): [1.0]}, {(0, 0, 0): [0.0]}, mean, 1) is None
    assert bootstrap({(0, 0, 0): [1.0]}, {(0, 0, 0): [2.0]}, mean, 1) == Interval(value=0.5, n=1)


def test_what_one_arm_did_not_answer_is_no_pair() -> None:
    """Else its hardest requests would be left out of one side alone."""
    mine, theirs = paired([_cell(GOVERNED, failed=5)], [_cell(FIXED)], lambda one: one.timing.e2e_s)
    assert sum(map(len, mine.values())) == sum(map(len, theirs.values())) == 55
    assert mine.keys() == theirs.keys()


def test_closed_loop_slices_hold_what_came_in_them() -> None:
    """Two slices of ten seconds, at ten tokens a second."""
    found = closed_slices([_cell(GOVERNED)])
    assert sorted(found) == [(0, 0, 0), (0, 0, 1)]
    assert [value for values in found.values() for value in values] == pytest.approx([10, 10], rel=0.02)


def test_the_last_bin_of_the_picture_is_as_long_as_it_is() -> None:
    """Not a dip where the time ran out."""
    cell = replace(_cell(GOVERNED), ended_s=1000.0 + 62.0)
    found = cell_info(cell)
    assert len(found.tok_s) == math.ceil(62 / BIN_S)
    inside = sum(event.tokens for one in cell.records for event in one.events if 1060 <= event.at_s < 1062)
    assert found.tok_s[-1] == pytest.approx(inside / 2, abs=0.06)
    assert inside > 0


# ---- page and picture


@cache
def _run(slower: float = 1.0) -> ReliabilityRun:
    """A run whose governed arm is `slower` times as slow as the others in the topic shift."""
    cells = [
        _cell(arm, phase=phase, number=number, slower=slower if (arm, phase) == (GOVERNED, 1) else 1.0)
        for number in range(2)
        for phase in range(len(PHASES))
        for arm in ARMS
    ]
    switch = Switch(17.4, "eagle3", "ngram", "acceptance", "AL 1.15 | under 1.44")
    cells = [
        replace(cell, switches=(switch,)) if (cell.arm, cell.phase, cell.round) == (GOVERNED, 1, 0) else cell
        for cell in cells
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.reliability.figures.RESAMPLES", 100)
        phases = [
            phase_figures(phase.name, [cell for cell in cells if cell.phase == place])
            for place, phase in enumerate(PHASES)
        ]
        overall = phase_figures("all", cells)
    return ReliabilityRun(
        schema="outrider/reliability/v1",
        provenance={"created": "2026-11-30T12:00:00+00:00", "commit": "abc", "command": "python -m x", "hardware": {}},
        engine="vLLM 0.32.0 on CPU",
        head={"pair": "p", "draft_length": 3, "acceptance_length": 1.87},
        minutes=20,
        rounds=2,
        rate_s=1.0,
        output_tokens=11,
        streams=2,
        stale_noise=1.0,
        seed=0,
        prompt_sets=[],
        phases=phases,
        overall=overall,
        bin_s=BIN_S,
        cells=[cell_info(cell) for cell in cells],
    )  # fmt: skip


def test_the_page_has_every_phase_and_switch() -> None:
    """Tables that stay tables, whatever a reason says."""
    page = render(_run())
    for phase in PHASES:
        assert f"| {phase.name} | governed |" in page
    assert "| eagle3 → ngram | 17 s | acceptance | AL 1.15 \\| under 1.44 |" in page
    assert "n too small" in page
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


@pytest.mark.parametrize(("slower", "side"), [(1.5, "slower"), (0.6, "quicker"), (1.0, EVEN)])
def test_the_page_says_where_it_is_slower(slower: float, side: str) -> None:
    """Also when nobody wants to hear it."""
    run = _run(slower)
    found = verdicts(run.phases, PLAIN)
    assert any(name.startswith("topic shift") for name in found[side])
    assert sum(map(len, found.values())) == len(PHASES)
    assert f"{side}: " in render(run)


def test_an_interval_in_words() -> None:
    """A dash, a value, a value with its bounds."""
    assert interval(None) == "–"
    assert interval(Interval(value=0.5, n=1)) == "0.50"
    assert interval(Interval(value=0.5, low=0.4, high=0.66, n=9)) == "0.50 [0.40, 0.66]"


def test_the_picture_stands_alone_light_and_dark() -> None:
    """The same run, the same bytes; nothing from outside; the switches read aloud."""
    run = _run()
    svg = render_timeline(run)
    assert svg == render_timeline(run)
    assert "prefers-color-scheme:dark" in svg
    assert "eagle3 to ngram 17 s into topic shift of round 1" in svg
    assert 'href="http' not in svg
    assert "nan" not in svg


def test_the_draft_in_force_over_a_phase_has_no_gaps() -> None:
    """From its begin to its end, from one switch to the next."""
    run = _run()
    span = next(one for one in spans(run) if (one.round, one.phase) == (0, "topic shift"))
    found = list(drafts_over_time(run.phases[1], span))
    assert [draft for *_, draft in found] == ["eagle3", "ngram"]
    assert found[0][0] == span.begin_s
    assert found[-1][1] == span.end_s
    assert found[0][1] == found[1][0] == span.begin_s + 17.4


# ---- the run


def _wish(tmp_path: Path, minutes: float = 0.05, rate_s: float | None = 40.0) -> Wish:
    stack = stack_from(None)
    return Wish(stack, tmp_path / "head", "eagle3", minutes, 1, rate_s, 4, 1.0, 3, 0, ("code",), ("topic",))


def test_blocks_are_kept_whole(tmp_path: Path) -> None:
    """What was written is read, with its requests; what was not run is not there."""
    folder, (first, second, _) = RunFolder(tmp_path), blocks(1)
    cells = (
        _cell(GOVERNED),
        replace(_cell(PLAIN, phase=1), switches=(Switch(1.0, "a", "b", "load", "why"),)),
    )
    kept.save(folder, first, cells)
    read = kept.load(folder, first)
    assert read is not None
    assert [replace(one, records=()) for one in read] == [replace(one, records=()) for one in cells]
    assert [len(one.records) for one in read] == [len(one.records) for one in cells]
    assert kept.load(folder, second) is None


def test_a_whole_run_on_simulated_engines_goes_on_where_it_was(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every phase on every arm; interrupted in the second block, the first is not run again; then the figures stand."""
    started: list[str] = []

    @contextmanager
    def servers(runner: Runner, arms: tuple[str, ...], head: Path, name: str) -> Iterator[dict[str, Server]]:
        started.append(f"{name} {head.name}")
        if started == ["r1-p1 head", "r1-p6 stale-head"]:
            raise KeyboardInterrupt
        yield {arm: Server(url, "sim", 4) for arm in arms}

    monkeypatch.setattr(Runner, "_servers", servers)
    _head(tmp_path / "head")
    runner = Runner(_wish(tmp_path), RunFolder(tmp_path / "out"))
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert runner.run() == 40.0
    assert started == ["r1-p1 head", "r1-p6 stale-head", "r1-p6 stale-head", "r1-p7 head"]
    cells = [cell for block in blocks(1) for cell in kept.load(runner.folder, block) or ()]
    assert [(cell.phase, cell.arm) for cell in cells] == [
        (phase, arm) for phase in range(len(PHASES)) for arm in order(0, phase)
    ]
    assert all(one.ok for cell in cells for one in cell.records)
    found = phase_figures("all", cells)
    assert {arm.sent > 0 for arm in found.arms.values()} == {True}
    by_arm = [[one.id for cell in cells if cell.arm == arm for one in cell.open_records] for arm in ARMS]
    assert by_arm[0] == by_arm[1] == by_arm[2] != []
    assert all(one.n > 0 for one in (ratio.ratio for ratio in found.ratios))


def test_the_time_left_is_by_what_steps_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess until one was seen; cells and starts each by their own."""
    now_s = 0.0
    monkeypatch.setattr("benchmarks.reliability.run.time.monotonic", lambda: now_s)
    progress = Progress({"cell": 4, "start": 2}, {"cell": 60.0, "start": 45.0})
    assert progress.left_s() == 4 * 60 + 2 * 45
    with progress.step("start"):
        now_s = 30.0
    assert progress.left_s() == 4 * 60 + 30
    with progress.step("cell"):
        now_s = 130.0
    assert progress.left_s() == 3 * 100 + 30


def test_the_base_load_is_measured_once(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on keeps the load of its first part."""
    starts: list[str] = []

    @contextmanager
    def servers(runner: Runner, arms: list[str], head: Path, name: str) -> Iterator[dict[str, Server]]:
        starts.append(name)
        yield {arm: Server(url, "sim", 4) for arm in arms}

    monkeypatch.setattr(Runner, "_servers", servers)
    monkeypatch.setattr(Runner, "_block", lambda runner, block: [])
    monkeypatch.setattr("benchmarks.reliability.run.CALIBRATION_S", 0.3)
    monkeypatch.setattr("benchmarks.reliability.run.WARM_S", 0.05)
    wish = _wish(tmp_path, rate_s=None)
    first = Runner(wish, RunFolder(tmp_path / "out")).run()
    assert first > 1
    assert Runner(wish, RunFolder(tmp_path / "out")).run() == first
    assert starts == ["calibration"]


def test_a_server_that_answers_no_more_ends_the_run_with_what_to_do() -> None:
    """Not with a traceback of the client's."""
    with pytest.raises(MeasurementError, match="does not answer") as failed:
        speculation(Server("http://127.0.0.1:9", "sim", 4))
    assert "Repeat the command" in failed.value.hint


def test_a_folder_that_is_no_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    """Before anything is started, with the command that makes one."""
    monkeypatch.setattr(sys, "argv", ["x", "--head", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == MeasurementError.exit_code
    assert "make train-demo" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong",
    [("--minutes", "0.5"), ("--rounds", "0"), ("--rate", "0"), ("--minutes", "x"), ("--phases", "8"), ("--streams", "0")],
)  # fmt: skip
def test_settings_that_cannot_be_are_usage_errors(
    wrong: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, as everywhere."""
    monkeypatch.setattr(sys, "argv", ["x", "--head", str(tmp_path), "--out", str(tmp_path / "out"), *wrong])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2


def test_page_and_picture_are_made_elsewhere_from_the_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing can be drawn the page stands, and it says how the picture is had; nothing is measured again."""
    (tmp_path / "run.json").write_text(_run().model_dump_json(by_alias=True))
    monkeypatch.setattr(sys, "argv", ["x", "--report-only", "--out", str(tmp_path)])
    with monkeypatch.context() as bare:
        bare.delitem(sys.modules, "benchmarks.reliability.picture", raising=False)
        bare.setitem(sys.modules, "matplotlib.axes", None)
        with pytest.raises(SystemExit):
            command.main()
    assert "--report-only" in capsys.readouterr().err
    assert (tmp_path / "report.md").read_text() == render(_run())
    command.main()
    assert (tmp_path / "timeline.svg").read_text() == render_timeline(_run())
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == MeasurementError.exit_code

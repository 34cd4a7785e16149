"""Silences: when every stream stood still, which of them came once only, and what the report says of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.bench.assemble import CellName, TrialData, cell
from outrider.bench.document import Answer, Silence, WarmUp
from outrider.bench.noise import noise
from outrider.bench.silences import once, silences
from outrider.measure.records import RequestRecord, TokenEvent
from tests.bench.records import cell_data, record
from tests.bench.simulated import Run, baseline, simulate


def held(one: RequestRecord, at_s: float, for_s: float) -> RequestRecord:
    """The same request on a server that stood still from then on for so long."""
    moved = tuple(
        replace(event, at_s=event.at_s + for_s) if event.at_s > at_s else event for event in one.events
    )
    starts, ends = (moment + (for_s if moment > at_s else 0.0) for moment in (one.started_s, one.ended_s))
    return replace(one, started_s=starts, events=moved, ended_s=ends)


def loaded(*stalls: tuple[float, float], waves: int = 4, places: int = 3) -> list[RequestRecord]:
    """Three places, a token each 10 ms, answers of 1 s, prompts of 20 ms; everything stands still (when, for how long)."""
    records = [
        record(
            wave * places + place, started_s=wave * 1.1 + place * 0.33, ttft_s=0.02, gap_s=0.01, chunks=100
        )
        for wave in range(waves)
        for place in range(places)
    ]
    for at_s, for_s in stalls:
        records = [held(one, at_s, for_s) for one in records]
    return records


def lengths(found: Sequence[Silence]) -> list[tuple[float, float, bool, bool]]:
    """Begin in s, length in ms, first wave, prefill."""
    return [(round(one.at_s, 1), round(one.length_ms, -1), one.first_wave, one.prefill) for one in found]


def test_a_time_in_which_all_stood_still_is_found() -> None:
    """Where it was and how long; before the first requests had ended, or after. Steps and prompts make none."""
    assert silences(loaded(), 3, 0.0) == []
    found = silences(loaded((0.805, 0.5), (3.005, 0.3)), 3, 0.0)
    assert lengths(found) == [(0.8, 510, True, False), (3.0, 310, False, False)]
    assert lengths(silences(loaded((0.805, 0.5)), 3, 0.5)) == [
        (0.3, 510, True, False)
    ]  # from the trial's begin


def test_one_stream_that_stands_still_is_no_silence() -> None:
    """The others went on: that is the stream's own step gap."""
    records = loaded()
    records[0] = held(records[0], 0.5, 0.4)
    assert silences(records, 3, 0.0) == []


def test_waiting_for_a_prompt_alone_is_no_silence() -> None:
    """One at a time: between two answers nobody streams, however long the prompt takes."""
    records = [record(n, started_s=n * 3.0, ttft_s=1.5, chunks=50) for n in range(4)]
    assert silences(records, 1, 0.0) == []
    assert silences([], 1, 0.0) == []


def test_a_prompt_that_is_read_meanwhile_is_told() -> None:
    """A silence that ends with a request's first token may be its prompt's."""
    streaming = [
        replace(
            record(n, chunks=0),
            events=tuple(TokenEvent(0.1 + 0.01 * k + (0.6 if k > 50 else 0), 1) for k in range(100)),
        )
        for n in range(2)
    ]
    streaming = [replace(one, ended_s=one.events[-1].at_s) for one in streaming]
    joining = record(9, started_s=0.601, ttft_s=0.6, chunks=30)
    assert lengths(silences(streaming, 2, 0.0)) == [(0.6, 610, True, False)]
    assert lengths(silences([*streaming, joining], 2, 0.0)) == [(0.6, 600, True, True)]


def test_a_short_stop_is_nobodys() -> None:
    """Ten times the median step gap and 0.1 s: neither alone is enough."""
    assert silences(loaded((0.805, 0.085)), 3, 0.0) == []
    assert len(silences(loaded((0.805, 0.095)), 3, 0.0)) == 1
    quick = [record(n, gap_s=0.001, chunks=100) for n in range(3)]
    assert silences([held(one, 0.1, 0.09) for one in quick], 3, 0.0) == []
    assert len(silences([held(one, 0.1, 0.1) for one in quick], 3, 0.0)) == 1
    slow = [record(n, started_s=0.0, gap_s=0.1, chunks=30) for n in range(3)]
    assert silences([held(one, 1.0, 0.8) for one in slow], 3, 0.0) == []
    assert len(silences([held(one, 1.0, 0.95) for one in slow], 3, 0.0)) == 1


def one(length_ms: float, *, first_wave: bool = False, prefill: bool = False) -> Silence:
    """A silence."""
    return Silence(at_s=1.0, length_ms=length_ms, first_wave=first_wave, prefill=prefill)


@pytest.mark.parametrize(
    ("trials", "kept"),
    [
        ({1: [one(800)], 2: [], 3: []}, {1: [800.0]}),  # in one trial only
        ({1: [one(800)], 2: [one(390)], 3: []}, {1: [800.0]}),  # in another, but of another kind
        ({1: [one(800)], 2: [one(410)], 3: []}, {}),  # it came again
        ({1: [one(800, prefill=True)], 2: []}, {1: [800.0]}),  # a prompt takes as long in each trial
        ({1: [one(800)]}, {}),  # one trial, in its middle: nothing to compare with
        ({1: [one(800, first_wave=True)]}, {1: [800.0]}),  # at the start, and not later
        ({1: [one(800, first_wave=True), one(500)]}, {}),  # at the start, and later too
        ({1: [one(800, first_wave=True, prefill=True)]}, {}),  # all prompts at once
        (
            {1: [one(800, first_wave=True)], 2: [one(700, first_wave=True)]},
            {1: [800.0], 2: [700.0]},
        ),  # each start
        ({1: [one(800, first_wave=True)], 2: [one(700, first_wave=True), one(450)]}, {}),
    ],
)
def test_what_did_not_come_again(trials: dict[int, list[Silence]], kept: dict[int, list[float]]) -> None:
    """Not in another trial half as long; or at the start, no prompt being read, and never after a first wave."""
    assert {trial: [s.length_ms for s in found] for trial, found in once(trials).items() if found} == kept


def caveats_of(*trials: TrialData) -> dict[str, Answer]:
    """The noise caveats of a run whose only cell has these trials."""
    made = simulate(Run([baseline(("s",))], trials=1, waves=1)).document
    document = made.model_copy(update={"cells": [cell(CellName("baseline", "s", 3), trials)]})
    return {answer.id: answer for answer in noise(document)}


def trial(number: int, *stalls: tuple[float, float], warmup: WarmUp | None = None) -> TrialData:
    """One trial of `loaded`."""
    return TrialData(number, number, "", cell_data(tuple(loaded(*stalls)), 3), warmup=warmup)


def test_the_report_says_what_stood_still_once() -> None:
    """Cell, trial, how many ms of how many s, and a guess; the same silence in each trial is the engine's own and not said."""
    found = caveats_of(trial(1, (3.005, 0.2)), trial(2), trial(3))["caveat/stood-still"]
    assert "baseline on s at 3 at once, trial 1: 210 ms of 5.2 s" in found.text
    assert "at first use?" in found.text
    assert found.values == {"baseline on s at 3 at once, trial 1": pytest.approx(210)}
    assert found.good is False
    assert "caveat/stood-still" not in caveats_of(*(trial(n, (3.005, 0.2)) for n in (1, 2, 3)))
    assert "caveat/stood-still" not in caveats_of(trial(1), trial(2))


def test_little_is_not_said() -> None:
    """Under 1 % of the trial's time nobody needs to know."""
    long = tuple(loaded((3.005, 0.12), waves=12))
    assert len(silences(long, 3, 0.0)) == 1
    found = caveats_of(TrialData(1, 1, "", cell_data(long, 3)), trial(2))
    assert "caveat/stood-still" not in found


def test_a_warm_up_that_did_not_settle_is_said() -> None:
    """How many trials of those that were warmed, where and why; settled ones and unknown ones are not counted among them."""
    loose = WarmUp(waves_s=[4.0, 2.0, 1.0], unsettled="still changing after 5 waves")
    fine = WarmUp(waves_s=[2.0, 2.0])
    found = caveats_of(trial(1, warmup=loose), trial(2, warmup=fine), trial(3))["caveat/warm-up"]
    assert "before 1 of 2 trials (baseline on s at 3 at once): still changing after 5 waves" in found.text
    assert found.values == {"trials": 1.0, "of": 2.0}
    assert "caveat/warm-up" not in caveats_of(trial(1, warmup=fine), trial(2))

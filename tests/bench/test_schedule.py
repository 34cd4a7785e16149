"""Schedules: valid for the engine whatever was measured, never a draft that was not shown to pay, edges before acceptance."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.bench.analysis import analyse
from outrider.bench.document import Interval, RunDocument
from outrider.bench.evidence import leans, pays
from outrider.bench.schedule import (
    Worth,
    accept,
    best_at,
    best_method,
    check_rows,
    edges,
    length_for,
    measured_at,
    propose,
    worths,
)
from outrider.bench.statistics import ratio_interval
from outrider.core.errors import MeasurementError
from tests.bench.simulated import Run, baseline, eagle, p_eagle, simulate

FIELD = [(1, 4, 2), (5, 512, 0)]


def ratio(value: float, half: float = 0.02) -> Interval:
    """A speed-up with an interval."""
    return Interval(value=value, low=value - half, high=value + half, n=3)


def test_the_field_s_schedule_needs_its_edges_measured() -> None:
    """[[1,4,2],[5,512,0]]: 4, 5 and 8 must be measured; a collapse at 8 refuses it, an unmeasured edge too (vllm#49548)."""
    assert edges(FIELD) == [4, 5, 8]
    assert accept(FIELD, {4: ratio(1.4), 5: ratio(1.0), 8: ratio(0.99)}) == []
    slow = accept(FIELD, {4: ratio(1.4), 5: ratio(0.68), 8: ratio(0.11)})
    assert [one.running for one in slow] == [5, 8]
    assert "K = 0) it makes 0.11× the tok/s of no draft" in slow[1].reason
    assert [one.running for one in accept(FIELD, {4: ratio(1.4), 5: ratio(1.0)})] == [8]


def test_noise_below_one_is_no_refusal_but_a_sure_loss_is() -> None:
    """0.98 ± 0.03 passes; 0.985 ± 0.005 is surely slower; one trial at 0.9 is a collapse."""
    good = {4: ratio(1.4), 5: ratio(1.0)}
    assert accept(FIELD, {**good, 8: ratio(0.98, 0.03)}) == []
    assert accept(FIELD, {**good, 8: ratio(0.985, 0.005)})
    assert accept(FIELD, {**good, 8: Interval(value=0.9, n=1)})


def test_edges_stay_below_what_may_run() -> None:
    """With 6 requests at most, 8 cannot be measured; a schedule without an edge is measured at both of its ends."""
    assert edges(FIELD, largest=6) == [4, 5]
    assert edges([(1, 512, 3)], largest=16) == [1, 16]
    assert edges([(1, 8, 5), (9, 32, 3), (33, 512, 0)]) == [8, 9, 16, 32, 33, 64]


def test_a_proposal_takes_the_best_sure_length() -> None:
    """K by batch: the largest sure speed-up; 0 where none is sure and beyond what was measured; equal neighbours are one row."""
    found = [
        Worth(1, 3, ratio(2.0)),
        Worth(1, 5, ratio(2.4)),
        Worth(8, 3, ratio(1.8)),
        Worth(8, 5, ratio(1.7)),
        Worth(32, 3, ratio(1.2)),
        Worth(32, 5, ratio(0.9)),
        Worth(64, 3, ratio(1.01)),
        Worth(64, 5, ratio(0.7)),
    ]
    rows = propose(found, 5)
    assert rows == [(1, 1, 5), (2, 32, 3), (33, 512, 0)]
    check_rows(rows, 5)
    assert [length_for(rows, batch) for batch in (1, 2, 32, 33, 600)] == [5, 3, 3, 0, 0]


def test_rows_end_at_the_last_batch_that_may_run() -> None:
    """Batches measured beyond what the stack lets run are cut off, and serve the last row that begins below them."""
    found = [
        Worth(1, 3, ratio(2.0)),
        Worth(8, 3, ratio(1.8)),
        Worth(64, 2, ratio(1.5)),
        Worth(128, 3, ratio(0.8)),
    ]
    assert propose(found, 3, last=16) == [(1, 8, 3), (9, 16, 2)]
    assert propose(found, 3, last=1) == [(1, 1, 3)]


def test_a_tie_goes_to_the_shorter_draft() -> None:
    """Equal speed-ups: fewer drafted tokens."""
    best = best_at([Worth(1, 5, ratio(1.5)), Worth(1, 3, ratio(1.5))], 1)
    assert best is not None
    assert best.draft_length == 3


def test_only_an_interval_above_one_pays() -> None:
    """Two trials of 1.10 and 1.06 point to a gain and do not prove one; 1.20 and 1.04 do not even point; one trial never pays."""
    ones = dict.fromkeys((1, 2, 3), 1.0)
    assert leans(ratio_interval({1: 1.10, 2: 1.06}, ones))
    assert not pays(ratio_interval({1: 1.10, 2: 1.06}, ones))
    assert not leans(ratio_interval({1: 1.20, 2: 1.04}, ones))
    assert not leans(ratio_interval({1: 1.3, 2: 1.06, 3: 1.06}, ones))
    assert pays(ratio_interval({1: 1.02, 2: 1.021, 3: 1.02}, ones))
    assert leans(ratio_interval({1: 1.4}, ones))
    assert not pays(ratio_interval({1: 1.4}, ones))
    assert not leans(ratio_interval({1: 1.04}, ones))


worth = st.builds(
    Worth,
    running=st.integers(1, 200),
    draft_length=st.integers(1, 7),
    ratio=st.builds(ratio, st.floats(0.2, 4), st.floats(0, 0.5)),
)


@settings(deadline=None)
@given(st.lists(worth, min_size=1, max_size=20, unique_by=lambda one: (one.running, one.draft_length)))
def test_any_proposal_is_valid_and_drafts_only_where_it_paid(found: list[Worth]) -> None:
    """Rows are what the engine takes, reach to 512, and any K above 0 surely paid at the measured batch at or above."""
    rows = propose(found, 7)
    check_rows(rows, 7)
    assert rows[-1][1] == 512
    for batch in range(1, 513):
        length = length_for(rows, batch)
        if not length:
            continue
        above = min(one.running for one in found if one.running >= batch)
        assert any(
            one.running == above and one.draft_length == length and (one.ratio.low or 0) > 1 for one in found
        )
    for left, right in pairwise(rows):
        assert left[2] != right[2]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "start at 1"),
        ([(2, 8, 1)], "start at 1"),
        ([(1, 4, 2), (6, 8, 0)], "without gaps"),
        ([(1, 4, 2), (4, 8, 0)], "without gaps"),
        ([(1, 4, 9)], "between 0 and the draft length, 5"),
        ([(1, 4, 2), (5, 3, 0)], "ends before it starts"),
    ],
)
def test_rows_the_engine_would_refuse_are_refused_here(rows: list[tuple[int, int, int]], words: str) -> None:
    """Each rule has its words."""
    with pytest.raises(MeasurementError, match=words):
        check_rows(rows, 5)


def test_nothing_measured_or_too_long_a_draft_is_an_error() -> None:
    """No worth at all; a K above the stack's draft length: errors with a hint."""
    with pytest.raises(MeasurementError, match="nothing to make a schedule of") as caught:
        propose([], 5)
    assert "--arm" in caught.value.hint
    with pytest.raises(MeasurementError, match="a draft of 7 tokens was measured"):
        propose([Worth(1, 7, ratio(2))], 5)


def document() -> RunDocument:
    """Three arms on two sets, analysed without records."""
    return analyse(simulate(Run([baseline(), eagle(), p_eagle()], trials=3, waves=6)).document)


def test_from_a_run_to_a_schedule_and_a_method() -> None:
    """P-EAGLE pays to 16 and not at 64; over both sets EAGLE-3 would lose on chat at 64, so it is off there too."""
    found = document()
    assert propose(worths(found, "p-eagle"), 7) == [(1, 16, 7), (17, 512, 0)]
    assert length_for(propose(worths(found, "eagle3"), 3), 64) == 0
    assert length_for(propose(worths(found, "eagle3", ["code"]), 3), 64) == 3
    assert best_method(found, ["code"], at_most=4)[0] == "p-eagle-k7"
    assert best_method(found, ["code"])[0] == "eagle3-k3"
    _, why = best_method(found, ["code"], at_most=8)
    assert re.fullmatch(
        r"p-eagle-k7 makes at least \d\.\d\d× \(\d\.\d\d to \d\.\d\d\) the tok/s of no draft at 1 and 4 at once, "
        r"the loads measured up to 8",
        why,
    )
    nothing = "no arm surely pays at 1, 4, 16 and 64 at once, the loads measured, on chat, code"
    assert best_method(found) == ("none", nothing)
    kept = [one for one in found.speedups if (one.arm, one.concurrency) != ("eagle3-k3", 16)]
    holed = found.model_copy(update={"speedups": kept})
    none, why = best_method(holed, ["code"])  # its worst may be in the cell that failed
    assert none == "none"
    assert why.endswith("not measured everywhere: eagle3-k3")
    at = measured_at(found, "p-eagle-k7")
    assert sorted(at) == [1, 4, 16, 64]
    assert at[64].value < 1

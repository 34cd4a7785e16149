"""Step times by batch: what is known, what follows, and what stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.governor.costs import (
    NOISE_FLOOR,
    StepTimes,
    break_even,
    break_even_unloaded,
    bucket,
    readings_of,
)
from outrider.governor.ladder import Ladder, Rung
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, StepReading
from tests.unit.governor.driver import credit, readings
from tests.unit.governor.traffic import HEAD, head_ladder

SETTINGS = PolicySettings()


def times(*rows: tuple[str, float, float]) -> StepTimes:
    """T known for (draft, batch, seconds)."""
    return StepTimes().plus(
        [one for draft, batch, step_s in rows for one in readings(draft, step_s, batch)], 0.0, SETTINGS
    )


def test_buckets_are_half_octaves() -> None:
    """1, 1.4, 2, 2.8, 4 …; an idle engine counts as a batch of one."""
    assert [bucket(batch) for batch in (0.0, 1.0, 1.4, 2.0, 2.8, 4.0, 128.0)] == [0, 0, 1, 2, 3, 4, 14]


def test_a_few_readings_are_not_yet_known() -> None:
    """Five of six; and the sixth makes it so."""
    five = StepTimes().plus(readings(HEAD, 0.02, 4.0, n=5), 0.0, SETTINGS)
    assert five.at(HEAD, 4.0) is None
    assert five.plus(readings(HEAD, 0.02, 4.0, n=1), 0.0, SETTINGS).at(HEAD, 4.0) is not None
    assert five.at(HEAD, 4.0) is None


def test_readings_of_mixed_batches_do_not_count() -> None:
    """90 % of the batch with the draft is not enough: the others' steps would be in it."""
    mixed = [StepReading(HEAD, 0.0, 4.0, 0.02, 10, alike_ratio=0.9)] * 9
    assert StepTimes().plus(mixed, 0.0, SETTINGS) == StepTimes()


def test_old_readings_are_unknown_again() -> None:
    """Half an hour later nothing is known, though nothing was added; a newer reading keeps only itself."""
    known = times((HEAD, 4.0, 0.02))
    assert known.plus((), 1700.0, SETTINGS) == known
    assert known.plus((), 1900.0, SETTINGS).at(HEAD, 4.0) is None
    later = known.plus(readings(HEAD, 0.03, 4.0, 1900.0, 6), 1900.0, SETTINGS).at(HEAD, 4.0)
    assert later is not None
    assert later.value == pytest.approx(0.03)


def test_between_two_known_batches_t_is_interpolated_and_outside_it_is_unknown() -> None:
    """Within an octave; not across a wider gap, not beyond the ends."""
    known = times((HEAD, 4.0, 0.02), (HEAD, 8.0, 0.04), (HEAD, 64.0, 0.2))
    at = {batch: known.at(HEAD, batch) for batch in (2.0, 6.0, 20.0, 100.0)}
    assert at[6.0] is not None
    assert at[6.0].value == pytest.approx(0.03)
    assert at[2.0] is at[20.0] is at[100.0] is None


def test_the_error_has_a_floor() -> None:
    """Sixty equal readings are not certainty: they overlap in time."""
    found = times((HEAD, 4.0, 0.02)).at(HEAD, 4.0)
    assert found is not None
    assert found.relative == pytest.approx(NOISE_FLOOR)


@settings(deadline=None)
@given(st.floats(1.0, 500.0), st.floats(0.001, 0.1), st.floats(0.0, 0.01))
def test_bounds_hold_for_any_step_that_grows_no_faster_than_its_batch(
    batch: float, fixed: float, each: float
) -> None:
    """T = fixed + each · b: what is known at 4 and 32 bounds it at any other batch."""
    known = times(*(("off", other, fixed + each * other) for other in (4.0, 32.0)))
    bounds = known.bounds("off", batch)
    assert bounds is not None
    assert bounds[0] <= fixed + each * batch <= bounds[1]


def test_break_even_is_the_ratio_at_one_batch() -> None:
    """T(4, head) / T(4, off), errors of both; the same a half-octave aside; two octaves aside there are bounds."""
    ladder = head_ladder()
    known = times((HEAD, 4.0, 0.03), ("off", 4.0, 0.02))
    for batch in (4.0, 5.6, 2.9):
        found = break_even(known, ladder, HEAD, batch)
        assert found.known is not None
        assert found.known.value == pytest.approx(1.5)
        assert found.known.relative == pytest.approx(NOISE_FLOOR * 2**0.5)
    far = break_even(known, ladder, HEAD, 16.0)
    assert far.known is None
    assert far.at_least is not None
    assert far.at_most is not None
    assert far.at_least < 1.5 < far.at_most


def test_a_draft_is_worth_no_more_with_more_requests() -> None:
    """A break-even of 3.0 at 4 running is at least 2.4 at 64, whatever T(64) is; of 1.2 at 64, at most 1.44 at 4."""
    ladder = head_ladder()
    small = times((HEAD, 4.0, 0.03), ("off", 4.0, 0.01), ("off", 64.0, 0.05))
    assert break_even(small, ladder, HEAD, 64.0).at_least == pytest.approx(2.4)
    large = times((HEAD, 64.0, 0.06), ("off", 64.0, 0.05))
    assert break_even(large, ladder, HEAD, 4.0).at_most == pytest.approx(1.44)


def test_what_a_heads_own_steps_verify_bounds_its_break_even() -> None:
    """T(8, 0) ≥ T(2, 3) · T(1, 0)/T(1, 3) = 28/1.3 ms, though never seen: at most 50/28 · 1.3 tokens a step are needed."""
    known = times(("off", 1.0, 0.020), (HEAD, 1.0, 0.026), (HEAD, 2.0, 0.028), (HEAD, 8.0, 0.050))
    found = break_even(known, head_ladder(None, draft_length=3), HEAD, 8.0)
    assert found.known is None
    assert found.at_most == pytest.approx(50 / 28 * 1.3)
    for without in (
        head_ladder(None),  # K is not known
        head_ladder(None, draft_length=15),  # less than one request would verify as many
        Ladder((Rung("ngram", draft_length=3), Rung("off"))),  # does not propose K tokens in every step
    ):
        most = break_even(known, without, without.top, 8.0).at_most
        assert most is None or most > 2.7


def test_a_step_with_a_draft_is_never_shorter_than_one_without() -> None:
    """A ratio below 1 is noise."""
    found = break_even(times((HEAD, 4.0, 0.019), ("off", 4.0, 0.02)), head_ladder(), HEAD, 4.0).known
    assert found is not None
    assert found.value == 1.0


def test_measured_rows_stand_in_and_step_times_seen_are_better() -> None:
    """A batch between two rows takes the one above it; beyond the last, the last; T seen while serving replaces both."""
    ladder = head_ladder(None, break_even=((1.0, 1.2), (8.0, 1.6), (32.0, 2.2)))
    stated = [break_even(StepTimes(), ladder, HEAD, batch).known for batch in (1.0, 4.0, 8.0, 9.0, 100.0)]
    assert [one and one.value for one in stated] == [1.2, 1.6, 1.6, 2.2, 2.2]
    seen = break_even(times((HEAD, 4.0, 0.04), ("off", 4.0, 0.02)), ladder, HEAD, 4.0).known
    assert seen is not None
    assert seen.value == pytest.approx(2.0)


def test_a_schedule_of_the_engines_own_makes_nothing_known() -> None:
    """Its length changes with the batch: one T says nothing."""
    ladder = head_ladder(None, break_even=((1.0, 1.2),), scheduled=True)
    found = break_even(times((HEAD, 4.0, 0.04), ("off", 4.0, 0.02)), ladder, HEAD, 4.0)
    assert (found.known, found.at_least, found.at_most) == (None, None, None)


def test_the_break_even_without_load_is_of_a_smaller_batch() -> None:
    """The smallest known one below this batch; None where this is the smallest."""
    known = times((HEAD, 1.0, 0.012), ("off", 1.0, 0.01), (HEAD, 32.0, 0.06), ("off", 32.0, 0.02))
    assert break_even_unloaded(known, head_ladder(), HEAD, 32.0) == pytest.approx(1.2)
    assert break_even_unloaded(known, head_ladder(), HEAD, 1.0) is None
    rows = Ladder((Rung(HEAD, None, ((1.0, 1.3), (32.0, 2.0))), Rung("off")))
    assert break_even_unloaded(StepTimes(), rows, HEAD, 32.0) == 1.3


def test_finished_requests_tell_step_times() -> None:
    """decode_s / steps; those of one moment are one reading by steps; undraftable, unmeasured and mixed ones tell nothing."""
    plain = {"decode_s": 0.8, "running": 4.0, "alike_ratio": 1.0}
    two = [credit(HEAD, 2.0, 1.0, **plain), credit(HEAD, 2.0, 1.0, **(plain | {"decode_s": 1.6}))]
    (found,) = readings_of(two, None, "off", SETTINGS)
    assert (found.steps, found.running, found.step_s) == (80, 4.0, pytest.approx(0.03))
    for wrong in (
        {"draftable": False},
        {"decode_s": None},
        {"running": None},
        {"steps": None},
        {"alike_ratio": 0.5},
    ):
        assert readings_of([credit(HEAD, 2.0, 1.0, **(plain | wrong))], None, "off", SETTINGS) == []
    none = Credit("off", 0.0, 1.0, steps=40, decode_s=0.8, running=4.0, alike_ratio=1.0)
    assert [one.draft for one in readings_of([none], None, "off", SETTINGS)] == ["off"]


def test_where_nobody_says_what_the_batch_ran_with_only_the_draft_in_force_tells() -> None:
    """And only requests dispatched since it is in force."""
    one = credit(HEAD, 2.0, 10.0, decode_s=0.8, running=4.0)
    for in_force, told in (((HEAD, 0.0), True), ((HEAD, 9.0), False), (("ngram", 0.0), False), (None, False)):
        assert bool(readings_of([one], in_force, "off", SETTINGS)) is told

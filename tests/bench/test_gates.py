"""How surely the gate speaks: false alarms on nine kinds of machine, and the power that it names."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from outrider.bench.compare import compare
from outrider.bench.comparison import Comparison
from outrider.bench.gates import LONGER, Change, Part, judged
from outrider.core.errors import MeasurementError
from tests.bench.gate_runs import DRAFT, NOISE, noisy, run_of


def verdict(noise: str, number: int, **more: object) -> Comparison | None:
    """Two runs on that machine; None where the gate says that it cannot tell."""
    try:
        return compare(run_of(noisy(noise, 2 * number)), run_of(noisy(noise, 2 * number + 1, **more)))
    except MeasurementError:
        return None


def test_noise_seldom_raises_an_alarm_whatever_its_kind() -> None:
    """Nine noise models, 20 pairs of runs each, more than 50 checks a pair: at most 2 % of the pairs are called regressions."""
    alarms = []
    for noise in NOISE:
        for number in range(20):
            found = verdict(noise, number)
            if found is not None and found.regressed:
                alarms.append((noise, number, found.sentence()))
    assert len(alarms) <= 3, alarms


def test_ten_percent_is_seen_nearly_always() -> None:
    """A draft 10 % slower on the usual machine: at least 45 of 50 pairs; all of 20 on a quiet one."""
    seen = [verdict("usual", number, tpot={DRAFT: 1.1}) for number in range(50)]
    assert sum(one is not None and one.regressed for one in seen) >= 45
    quiet = [verdict("quiet", number, tpot={DRAFT: 1.1}) for number in range(20)]
    assert all(one is not None and one.regressed for one in quiet)


def test_what_would_have_been_seen_is_seen_four_times_in_five() -> None:
    """The sentence's change of TPOT, planted: a regression in 70 to 95 of 100 pairs, not in half of them."""
    found = [verdict("usual", number) for number in range(20)]
    seen = [
        check.seen
        for one in found
        if one is not None
        for check in one.checks
        if (check.figure, check.arm, check.concurrency) == ("TPOT", DRAFT, None)
    ]
    planted = 1 + math.fsum(seen) / len(seen)
    hits = [verdict("usual", 100 + number, tpot={DRAFT: planted}) for number in range(60)]
    assert 42 <= sum(one is not None and one.regressed for one in hits) <= 57
    assert found[0] is not None
    assert "with 80% power a change for the worse of " in found[0].sentence()


def widths(noise: str) -> dict[str, float]:
    """How wide TPOT's intervals are on that machine, by part, the mean of ten pairs."""
    found: dict[str, float] = {}
    for number in range(10):
        one = compare(run_of(noisy(noise, 2 * number)), run_of(noisy(noise, 2 * number + 1)))
        for check in one.checks:
            if check.figure == "TPOT":
                found[check.where] = found.get(check.where, 0.0) + (check.change - check.surely) / 10
    return found


def test_a_noisier_load_and_a_noisier_arm_need_more() -> None:
    """The interval of what shows more noise than the rest is wider, not that of the mean of all."""
    load, arm = widths("one noisy load"), widths("one noisy arm")
    assert load[f"{DRAFT} on code at 1 at once"] > 1.4 * load[f"{DRAFT} on chat at 4 at once"]
    assert arm[DRAFT] > 1.1 * arm["baseline"]


def change(worse: float, error: float = 0.01, freedom: float = 8) -> Change:
    """A TPOT that rose by this logarithm."""
    return Change(Part("TPOT", "a"), 10.0, 10.0 * math.exp(worse), worse, error, freedom, 0.03, LONGER)


def test_a_family_is_judged_by_holm() -> None:
    """Three p-values of 0.001, 0.004 and 0.03: times 3, 2 and 1, none below the one before it."""
    wanted = (0.001, 0.004, 0.03)
    family = [change(float(stats.t.isf(chance, 8)) * 0.01) for chance in wanted]
    assert [one.chance for one in judged(family[::-1], 0.01)] == pytest.approx([0.03, 0.008, 0.003])
    same = judged([change(float(stats.t.isf(0.004, 8)) * 0.01)] * 2, 0.01)
    assert [one.chance for one in same] == pytest.approx([0.008, 0.008])


def test_the_more_is_checked_the_more_a_check_needs() -> None:
    """The same change is a regression alone and none among a hundred that did not change."""
    alone, among = judged([change(0.09, 0.02)], 0.01), judged([change(0.09, 0.02), *[change(0.0)] * 99], 0.01)
    assert alone[0].regressed
    assert not among[0].regressed
    assert among[0].surely == alone[0].surely
    assert among[0].seen > alone[0].seen


def test_without_noise_any_change_beyond_the_tolerance_is_one() -> None:
    """Trials that agree exactly: 3.1 % is beyond 3 %, 2.9 % is not, and no change at all has no chance to be one."""
    found = judged([change(math.log(1.031), 0.0), change(math.log(1.029), 0.0), change(0.0, 0.0)], 0.01)
    assert [one.regressed for one in found] == [True, False, False]
    assert found[2].chance == 1.0


@given(st.floats(-0.5, 0.5), st.floats(0.0001, 0.2), st.integers(2, 30), st.integers(1, 200))
def test_bounds_stand_in_order(worse: float, error: float, freedom: int, others: int) -> None:
    """Firmly ≤ surely ≤ change; what would be seen lies beyond the tolerance; a regression is firm or at least sure."""
    one = judged([change(worse, error, freedom), *[change(0.0)] * others], 0.005)[0]
    assert one.firmly <= one.surely <= one.change
    assert one.seen > one.tolerance
    assert not one.regressed or one.surely > one.tolerance

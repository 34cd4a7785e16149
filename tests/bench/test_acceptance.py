"""Figures of the drafts: what counts, what is void, what looks wrong."""

import pytest

from outrider.bench.acceptance import acceptance, counted, position_notes
from outrider.bench.figures import figures
from outrider.core.acceptance import SpecCounters
from tests.bench.records import cell_data, counters, record, trace


def test_metrics_undrafted_steps() -> None:
    """AL 4.59 and tokens per step 2.96, both shown; the cell says which of them was earned (vllm#24344)."""
    after = counters(
        drafts=993, proposed=4960, accepted=3562, steps=993 + 821, generation=5376 + 50, first=50
    )
    seen = trace(counters(steps=0.0, generation=0.0, first=0.0), after)
    found = figures([cell_data((record(),), counted=seen, draft_length=5)])
    assert found.acceptance.length == pytest.approx(4.59, abs=0.005)
    assert found.acceptance.tokens_per_step == pytest.approx(2.96, abs=0.005)
    assert found.acceptance.draft_coverage == pytest.approx(993 / 1814)
    assert any("tokens per step 2.96 is what the arm earned" in warning for warning in found.warnings)


@pytest.mark.parametrize(("effective_k", "note"), [(2.0, "not drafted"), (3.0, "broken")])
def test_metrics_effective_k(effective_k: float, note: str) -> None:
    """Position 3 at 0.0003: not drafted where effective K is 2, broken where it is 3 (vllm-ascend#15174)."""
    drafts = 10_000
    spec = SpecCounters(drafts, effective_k * drafts, 11_703, (7006, 4694, 3))
    assert position_notes(spec) == ["", "", note]


def test_a_rare_position_of_few_drafts_is_not_called_broken() -> None:
    """Zero of the 12 drafts that reached it proves nothing."""
    assert position_notes(SpecCounters(40, 120, 12, (12, 0, 0))) == ["", "", ""]


def test_the_window_begins_after_the_warm_up() -> None:
    """Counts before the first counted request are not in it."""
    seen = trace(
        counters(drafts=900, proposed=2700, accepted=0),
        counters(drafts=1000, proposed=3000, accepted=100),
        counters(drafts=1100, proposed=3300, accepted=250),
        began_s=10.0,
    )
    found = acceptance([counted(seen, 10.5)])
    assert (found.rate, found.length, found.effective_k) == (0.5, 2.5, 3.0)


@pytest.mark.parametrize(
    ("middle", "last", "reason"),
    [
        (counters(drafts=4), counters(drafts=2000), "counter reset"),
        (counters(drafts=600, generation=3.0), counters(drafts=700), "counter reset"),
        (counters(drafts=600, models=("other",)), counters(drafts=700), "another model answered"),
    ],
)
def test_a_window_in_which_something_fell_is_void(middle: object, last: object, reason: str) -> None:
    """A fall between any two readings counts, also where the last stands above the first."""
    seen = trace(counters(drafts=500, generation=50.0), middle, last)  # type: ignore[arg-type]
    found = acceptance([counted(seen, 0.0)])
    assert found.void == reason
    assert found.rate is found.length is found.tokens_per_step is None


def test_void_windows_are_left_out_and_said() -> None:
    """Of two trials one restarted: its counts are not in the pool, and a flag says so."""
    good = counted(trace(counters(), counters(drafts=100, proposed=300, accepted=150)), 0.0)
    void = counted(trace(counters(), counters(drafts=9), restarted=True), 0.0)
    found = acceptance([good, void])
    assert found.length == 2.5
    assert found.flags == ["1 of 2 windows void: the engine restarted"]


def test_counts_are_pooled_not_averaged() -> None:
    """A long window weighs more than a short one."""
    one = counted(trace(counters(), counters(drafts=900, proposed=900, accepted=0)), 0.0)
    two = counted(trace(counters(), counters(drafts=100, proposed=100, accepted=50)), 0.0)
    assert acceptance([one, two]).length == pytest.approx(1.05)


def test_the_baseline_makes_one_token_a_step() -> None:
    """No drafts: acceptance is undefined, not zero; tokens per step are exactly 1."""
    seen = trace(
        counters(steps=10.0, generation=15.0, first=5.0), counters(steps=100.0, generation=110.0, first=10.0)
    )
    found = acceptance([counted(seen, 0.0)])
    assert found.rate is found.length is found.positions is found.draft_coverage is None
    assert found.tokens_per_step == 1.0


@pytest.mark.parametrize(
    ("accepted", "drafts", "flag"),
    [
        (0, 500, "exactly 0"),
        (1500, 500, "exactly 1"),
        (1501, 500, "outside 0 to 1"),
        (0, 50, ""),
        (700, 500, ""),
    ],
)
def test_rates_too_good_or_too_bad_are_flagged(accepted: int, drafts: int, flag: str) -> None:
    """Exactly 0 or 1 over 200 drafts, or outside [0, 1]; a short window is given time."""
    seen = trace(counters(), counters(drafts=drafts, proposed=3 * drafts, accepted=accepted))
    flags = acceptance([counted(seen, 0.0)]).flags
    assert (flag in flags[0]) if flag else not flags

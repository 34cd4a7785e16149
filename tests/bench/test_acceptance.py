"""Figures of the drafts: what counts, what is void, what looks wrong."""

import pytest

from outrider.bench.acceptance import acceptance, counted, position_notes
from outrider.bench.assemble import CellName, TrialData, cell
from outrider.bench.document import Arm
from outrider.bench.figures import CellData, figures
from outrider.bench.steps import step_costs
from outrider.core.acceptance import SpecCounters
from tests.bench.records import cell_data, counters, record, trace


def _drafting_now_and_then(drafts: int, without: int) -> CellData:
    """A trial after a warm-up in which every draft was right; `without` steps had no draft. Its counters are vllm#24344's."""
    seen = trace(
        counters(steps=0.0, generation=0.0, first=0.0),
        counters(drafts=400, proposed=2000, accepted=2000, steps=400, generation=2440, first=40),
        counters(
            drafts=400 + drafts,
            proposed=2000 + 4960,
            accepted=2000 + 3562,
            steps=400 + drafts + without,
            generation=2440 + 5376 + 50,
            first=40 + 50,
        ),
    )
    records = tuple(record(n, started_s=1.0 + n, chunks=30, gap_s=0.02) for n in range(5))
    return cell_data(records, counted=seen, draft_length=5)


def test_metrics_undrafted_steps() -> None:
    """AL 4.59 and tokens per step 2.96, both said, of the counted part alone; the arm is credited with 2.96 (vllm#24344)."""
    seen = _drafting_now_and_then(993, 821)
    found = figures([seen])
    drafts = found.acceptance
    assert drafts.length == pytest.approx(1 + 3562 / 993)
    assert drafts.rate == pytest.approx(3562 / 4960)
    assert drafts.effective_k == pytest.approx(4960 / 993)
    assert drafts.tokens_per_step == pytest.approx(5376 / 1814)
    assert drafts.draft_coverage == pytest.approx(993 / 1814)
    assert found.warnings == [
        "AL 4.59 counts only steps with a draft (55% of all); tokens per step 2.96 is what the arm earned"
    ]
    plain = cell_data(tuple(record(n, started_s=1.0 + n, chunks=30, gap_s=0.016) for n in range(5)))
    cells = [
        cell(CellName(arm, "s", 1), [TrialData(1, 1, "", data)])
        for arm, data in (("baseline", plain), ("ngram-k5", seen))
    ]
    arms = [
        Arm(name="baseline", method="none", draft_length=0),
        Arm(name="ngram-k5", method="ngram", draft_length=5),
    ]
    (cost,) = step_costs(cells, arms)
    assert cost.acceptance_length == drafts.length
    assert cost.predicted_speedup == pytest.approx(5376 / 1814 * 16 / 20)


def test_no_draft_is_missed_where_nothing_ran_before() -> None:
    """The load begins between two readings: with a warm-up before it the later one counts, after silence the earlier one."""
    seen = trace(
        counters(drafts=10, proposed=30, accepted=20),
        counters(drafts=11, proposed=33, accepted=20),
        counters(drafts=20, proposed=60, accepted=40),
    )
    began_s = (seen.readings[0].at_s + seen.readings[1].at_s) / 2
    assert counted(seen, began_s).spec.drafts == 9
    assert counted(seen, began_s, idle_before=True).spec.drafts == 10
    assert counted(seen, seen.readings[0].at_s, idle_before=True).spec.drafts == 10


@pytest.mark.parametrize(("without", "said"), [(40, False), (60, True)])
def test_a_draft_in_nearly_every_step_is_not_remarked_on(without: int, said: bool) -> None:
    """Below 95 % of the steps the sentence stands, above it does not."""
    warnings = figures([_drafting_now_and_then(993, without)]).warnings
    assert any("what the arm earned" in warning for warning in warnings) is said


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

"""Probes: how many, which ones, and whose turn it is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.governor.probing import is_probe, probe_share, turn_of
from outrider.governor.settings import PolicySettings

SETTINGS = PolicySettings()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**15), st.floats(0.0, 1.0))
def test_any_stretch_holds_its_share(first: int, share: float) -> None:
    """Of any two hundred requests in a row the share are probes, within four."""
    probes = sum(is_probe(number, share) for number in range(first, first + 200))
    assert abs(probes - 200 * share) <= 4


def test_nobody_and_everybody() -> None:
    """No share, no probe; the whole share, all; the first request is one for any share above none."""
    assert not any(is_probe(number, 0.0) for number in range(1000))
    assert all(is_probe(number, 1.0) for number in range(1000))
    assert is_probe(0, 0.01)


def test_probes_keep_no_step_with_traffic_that_repeats_itself() -> None:
    """Every tenth request is of one kind: among the tenth that are probes it is not found more than twice its share."""
    probes = [number for number in range(10_000) if is_probe(number, 0.1)]
    assert 0.05 < sum(number % 10 == 0 for number in probes) / len(probes) < 0.2


def test_the_share_brings_the_probes_of_a_round_within_bounds() -> None:
    """Five in fifteen seconds: a tenth at 3.3 a second; not more than a third, not less than a hundredth."""
    assert round(probe_share(10 / 3, SETTINGS), 6) == 0.1
    assert probe_share(0.0, SETTINGS) == probe_share(0.5, SETTINGS) == SETTINGS.probe_share_max
    assert probe_share(1000.0, SETTINGS) == SETTINGS.probe_share_min


def test_the_most_wanted_draft_has_two_turns_of_three() -> None:
    """Of one, all; of two, the second has every third part of a round; of three, the others share that by turns."""
    part_s = SETTINGS.probe_round_s / 3
    turns = {
        drafts: [turn_of(part * part_s + 0.1, drafts, SETTINGS) for part in range(6)] for drafts in (1, 2, 3)
    }
    assert turns == {1: [0] * 6, 2: [0, 0, 1, 0, 0, 1], 3: [0, 0, 1, 0, 0, 2]}

"""The matrix: every cell once, arms interleaved, servers restarted no oftener than needed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outrider.bench.matrix import CellKey, blocks, requests_for


def test_trials_are_interleaved() -> None:
    """A B | B A | A B, and an arm that comes twice in a row keeps its server."""
    order = [block.arm for block in blocks(["a", "b"], ["s"], [1], 3)]
    assert order == ["a", "b", "a", "b"]
    trials = [
        [cell.trial for cell in block.cells if cell.concurrency]
        for block in blocks(["a", "b"], ["s"], [1], 3)
    ]
    assert trials == [[1], [1, 2], [2, 3], [3]]


def test_arm_by_arm() -> None:
    """Not interleaved: one start an arm."""
    order = [block.arm for block in blocks(["a", "b", "c"], ["s"], [1, 8], 3, interleaved=False)]
    assert order == ["a", "b", "c"]


@given(
    arms=st.integers(1, 5),
    sets=st.integers(1, 3),
    running=st.integers(1, 4),
    trials=st.integers(1, 5),
    mixed=st.booleans(),
)
def test_every_cell_once(arms: int, sets: int, running: int, trials: int, mixed: bool) -> None:
    """Whatever the order, each cell of each trial is there exactly once, the natural end once an arm and set."""
    names = [f"a{number}" for number in range(arms)]
    found = [
        cell
        for block in blocks(
            names, [f"s{n}" for n in range(sets)], [2**n for n in range(running)], trials, interleaved=mixed
        )
        for cell in block.cells
    ]
    assert max(Counter(found).values()) == 1
    assert len(found) == arms * sets * (running * trials + 1)
    assert len({cell.id for cell in found}) == len(found)


def test_natural_end_runs_in_the_first_trial_where_the_baseline_comes_first() -> None:
    """The baseline's greedy texts are there before any arm is compared with them."""
    cells = [cell for block in blocks(["baseline", "x"], ["s"], [1], 3) for cell in block.cells]
    natural = [cell.arm for cell in cells if not cell.concurrency]
    assert natural == ["baseline", "x"]


def test_requests_make_a_p99_from_eight_up() -> None:
    """Over all trials at least 368 requests, and seven waves."""
    for concurrency in (8, 32, 128):
        assert requests_for(concurrency) * 3 >= 368
        assert requests_for(concurrency) >= 7 * concurrency
    assert requests_for(1) == 16
    assert requests_for(8, {8: 5}) == 5


def test_cell_ids_are_file_names() -> None:
    """A set named by category makes no folder, and shares no file with a set of a like name."""
    assert CellKey("ngram-k3", "spec-bench/rag", 4, 2).id == "ngram-k3.spec-bench~rag.c4.t2"

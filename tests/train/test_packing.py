"""Batches and what each place learns, without torch: every index is checked against its meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.errors import TrainingError
from outrider.train.rows import Row
from outrider.train.trainer.corpus import Corpus, gather
from outrider.train.trainer.packing import (
    ROUND_TO,
    Batch,
    ChainPlan,
    Chains,
    Rounds,
    assemble,
    assemble_chains,
    epoch_batches,
)
from outrider.train.trainer.probes import probe


def rows_of(*masks: str, first: int = 100) -> list[Row]:
    """Rows whose token at place i is unique (100, 101, …); a mask like ``..##.#`` marks answers."""
    made, token = [], first
    for mask in masks:
        ids = tuple(range(token, token + len(mask)))
        token += len(mask)
        made.append(Row(ids, tuple(int(one == "#") for one in mask), (), "stop", "data"))
    return made


def corpus_of(*masks: str) -> Corpus:
    """Their arrays."""
    return gather(rows_of(*masks), 512, 10_000)


masks = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(0, 5), st.integers(0, 9)),
    min_size=1,
    max_size=12,
).map(lambda rows: [f"{'.' * a}{'#' * b}{'.' * c}{'#' * d}".ljust(4, ".") for a, b, c, d in rows])


def everything(corpus: Corpus) -> Any:
    """Numbers of all rows."""
    return np.arange(len(corpus.lengths))


def test_rows_are_cut_and_those_without_an_answer_are_dropped() -> None:
    """A first token that is an answer has nothing before it; a cut can leave a row without one."""
    corpus = gather(rows_of("..##", "....", "#...", ".....##", "..#"), 5, 10_000)
    assert corpus.lengths.tolist() == [4]
    assert (corpus.dropped, corpus.answer_tokens) == (4, 2)
    assert corpus.count_answers() == {102: 1, 103: 1}
    with pytest.raises(TrainingError, match="no row has an answer"):
        gather(rows_of("...."), 5, 10_000)
    with pytest.raises(TrainingError, match="token 103, the target has 103"):
        gather(rows_of("..##"), 5, 103)


def test_held_out_rows_are_never_trained_on() -> None:
    """The same split for the same seed, another for another; one row cannot be both."""
    corpus = corpus_of(*["..##"] * 40)
    train, held = corpus.split(0.1, seed=3)
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(40))
    assert len(held) == 4
    assert corpus.split(0.1, 3)[1].tolist() == held.tolist()
    assert corpus.split(0.1, 4)[1].tolist() != held.tolist()
    with pytest.raises(TrainingError, match="1 rows are too few"):
        corpus_of("..##").split(0.1, 3)


@given(st.lists(st.integers(4, 300), min_size=1, max_size=200), st.integers(64, 1024), st.integers(0, 9))
@settings(max_examples=60)
def test_an_epoch_holds_every_row_once_and_batches_fit(lengths: list[int], budget: int, seed: int) -> None:
    """Padding included, unless a single row is longer than a batch."""
    lens = np.asarray(lengths)
    rows = np.arange(len(lens))[::2] if len(lens) > 1 else np.arange(1)
    batches = epoch_batches(lens, rows, budget, (seed,))
    assert sorted(row for batch in batches for row in batch.tolist()) == rows.tolist()
    for batch in batches:
        longest = -(-int(lens[batch].max()) // ROUND_TO) * ROUND_TO
        assert len(batch) == 1 or len(batch) * longest <= budget
    again = epoch_batches(lens, rows, budget, (seed,))
    assert [one.tolist() for one in batches] == [one.tolist() for one in again]


def test_like_lengths_stand_together_in_an_order_of_their_own_each_epoch() -> None:
    """A tenth of the places is padding at most, with lengths from 20 to 600; the next epoch's batches are others."""
    lengths = np.random.default_rng(0).integers(20, 600, 3000)
    rows = np.arange(3000)
    batches = epoch_batches(lengths, rows, 8192, (0, 1))
    places = sum(len(batch) * -(-lengths[batch].max() // ROUND_TO) * ROUND_TO for batch in batches)
    assert lengths.sum() / places > 0.9
    assert [b.tolist() for b in batches] != [b.tolist() for b in epoch_batches(lengths, rows, 8192, (0, 2))]
    means = [lengths[batch].mean() for batch in batches]
    assert means != sorted(means)


@given(masks, st.integers(1, 5))
@settings(max_examples=60)
def test_a_place_sees_the_token_before_the_choice_it_learns(rows: list[str], depth: int) -> None:
    """Round d, place t: the answer it is held against is token t + 1 + d of the same row, and every such answer is there."""
    try:
        corpus = corpus_of(*rows)
    except TrainingError:
        return
    batch = assemble(corpus, everything(corpus), depth)
    assert isinstance(batch.learns, Rounds)
    length = batch.tokens.shape[1]
    assert (batch.tokens.ravel()[batch.real] == corpus.tokens[batch.of_corpus]).all()
    assert sorted(batch.tokens.ravel()[batch.answers].tolist()) == sorted(
        token for n in everything(corpus) for token in answers_of(corpus, n)
    )
    for back, (places, answers) in enumerate(zip(batch.learns.places, batch.learns.answers, strict=True)):
        assert (places + 1 + back == batch.answers[answers]).all()
        assert (places // length == batch.answers[answers] // length).all()
        assert len(places) == (batch.answers % length > back).sum()


def answers_of(corpus: Corpus, number: int) -> list[int]:
    """Answer tokens of a row, its first token aside."""
    ids, marks = corpus.row(number)
    return [int(token) for token, mark in list(zip(ids, marks, strict=True))[1:] if mark]


@given(masks, st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=60)
def test_a_chain_stays_in_its_answer(rows: list[str], depth: int, seed: int) -> None:
    """P-EAGLE: depth d after anchor t learns from token t + 1 + d; all tokens from t + 1 on are of one answer without a gap."""
    try:
        corpus = corpus_of(*rows)
    except TrainingError:
        return
    batch = assemble_chains(
        corpus, everything(corpus), ChainPlan(depth, 0.9, 0.5), np.random.default_rng(seed)
    )
    assert isinstance(batch.learns, Chains)
    check_chains(batch, corpus)
    own = batch.learns.of_depth == 0
    assert own.sum() == len(batch.answers)
    assert batch.learns.of_depth.max(initial=0) < depth


def test_an_answer_up_to_the_batchs_edge_ends_there() -> None:
    """A row that fills its rectangle: no chain runs into the next row."""
    corpus = corpus_of("..".ljust(ROUND_TO, "#"), "..##")
    batch = assemble_chains(corpus, everything(corpus), ChainPlan(9, 1.0, 1.0), np.random.default_rng(0))
    check_chains(batch, corpus)
    assert isinstance(batch.learns, Chains)
    per_anchor = [min(9, left) for left in range(ROUND_TO - 2, 0, -1)] + [2, 1]
    assert len(batch.learns.places) == sum(per_anchor)


def check_chains(batch: Batch, corpus: Corpus) -> None:
    """Every learning place against the meaning of its index."""
    learns = batch.learns
    assert isinstance(learns, Chains)
    (lines, length), slots = batch.tokens.shape, learns.anchors.shape[1]
    marks = np.zeros((lines, length), np.bool_)
    marks.ravel()[batch.answers] = True
    chains: dict[tuple[int, int], list[int]] = {}
    for place, answer, depth in zip(learns.places, learns.answers, learns.of_depth, strict=True):
        line, column = divmod(int(place), length + slots)
        anchor = column if column < length else int(learns.anchors[line, column - length])
        assert depth == (0 if column < length else learns.depths[line, column - length])
        assert batch.answers[answer] == line * length + anchor + 1 + depth
        assert marks[line, anchor + 1 : anchor + 2 + depth].all()
        chains.setdefault((line, anchor), []).append(int(depth))
    assert all(sorted(depths) == list(range(len(depths))) for depths in chains.values())
    assert ((learns.anchors >= 0).sum()) == (learns.of_depth > 0).sum()


def test_chains_are_as_deep_as_planned() -> None:
    """Depth d at share ** d of the anchors, the floor at least."""
    depths = ChainPlan(6, share=0.5, floor=0.2).depths(40_000, np.random.default_rng(0))
    shares = [(depths >= one).mean() for one in range(1, 6)]
    assert np.allclose(shares, [0.5, 0.25, 0.2, 0.2, 0.2], atol=0.01)
    assert (ChainPlan(1).depths(10, np.random.default_rng(0)) == 0).all()


@pytest.mark.parametrize("chained", [False, True])
def test_held_out_drafts_lie_within_answers(chained: bool) -> None:
    """Token d of a draft at t is held against the choice after token t + 1 + d; an answer too short for a draft has none."""
    corpus = corpus_of("..######", "...##", ".#####.####")
    found = probe(corpus, everything(corpus), depth=4, chained=chained)
    assert found is not None
    length = found.batch.tokens.shape[1]
    starts = [(0, 1), (0, 2), (0, 3), (2, 0), (2, 1), (2, 6)]
    wanted = starts[::4] if chained else starts
    first = [found.batch.answers[one] - 1 for one in found.choices[:, 0]]
    assert [divmod(int(one), length) for one in first] == wanted
    assert (np.diff(found.batch.answers[found.choices]) == 1).all()
    if chained:
        check_chains(found.batch, corpus)
    else:
        assert all((states == first).all() for states in found.states)
    assert len(found.states) == 4
    assert probe(corpus, np.asarray([1]), 4, chained) is None

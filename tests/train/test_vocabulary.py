"""Which tokens a head can draft, and which one stands for a token not drafted yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import TrainingError
from outrider.train.vocabulary import (
    Vocabulary,
    choose_mask_token,
    choose_vocabulary,
    draft_to_target,
    larger,
)


def test_the_most_frequent_tokens_ascending_and_their_share() -> None:
    """Frequency decides, the lower id among equals; coverage is the share of counted tokens."""
    chosen = choose_vocabulary({7: 5, 2: 3, 9: 3, 4: 1}, draft_vocab_size=2, target_vocab_size=10)
    assert chosen == Vocabulary(10, (2, 7), 8 / 12)
    assert not chosen.is_whole


def test_it_is_filled_up_with_the_lowest_others() -> None:
    """The head's output has as many rows as were asked for, whatever was counted."""
    assert choose_vocabulary({7: 1}, 4, 10).ids == (0, 1, 2, 7)


@pytest.mark.parametrize("size", [0, 10, 99])
def test_all_tokens_need_no_map(size: int) -> None:
    """0, or as many as the target has."""
    chosen = choose_vocabulary({3: 1}, size, 10)
    assert (chosen.ids, chosen.coverage, chosen.is_whole) == (tuple(range(10)), 1.0, True)


def test_a_larger_one_is_named_where_it_covers_clearly_more() -> None:
    """90 % by two tokens, 96 % by eight; not where two are enough, eight bring little, or all are drafted."""
    counts = {0: 60, 1: 30} | dict.fromkeys(range(2, 12), 1)
    more = larger(choose_vocabulary(counts, 2, 100), counts)
    assert more is not None
    assert (len(more.ids), more.coverage) == (8, 0.96)
    assert larger(choose_vocabulary({0: 60, 1: 36, 2: 4}, 2, 100), {0: 60, 1: 36, 2: 4}) is None
    rare = {0: 60_000, 1: 30_000} | dict.fromkeys(range(2, 3002), 3)
    assert larger(choose_vocabulary(rare, 2, 9000), rare) is None
    assert larger(choose_vocabulary(counts, 0, 12), counts) is None


def test_nothing_counted_is_refused() -> None:
    """Instead of a head for tokens that nobody writes."""
    with pytest.raises(TrainingError, match="no answer has a token") as caught:
        choose_vocabulary({}, 4, 10)
    assert caught.value.hint


def test_tokens_of_another_target_are_refused() -> None:
    """Rows and target that do not belong together."""
    with pytest.raises(TrainingError, match="token 10, the target has 10"):
        choose_vocabulary({10: 1}, 4, 10)


@given(
    st.dictionaries(st.integers(0, 49), st.integers(1, 1000), min_size=1),
    st.integers(0, 60),
)
def test_the_map_leads_back_to_the_target(counts: dict[int, int], size: int) -> None:
    """Draft id + d2t is the target's id, as in vLLM; no token that was left out is more frequent than one that is in."""
    chosen = choose_vocabulary(counts, size, 50)
    assert tuple(draft + d for draft, d in enumerate(draft_to_target(chosen.ids))) == chosen.ids
    assert len(set(chosen.ids)) == (min(size, 50) or 50)
    inside = {counts[token] for token in chosen.ids if token in counts}
    outside = {count for token, count in counts.items() if token not in chosen.ids}
    assert not outside or max(outside) <= min(inside)


def test_the_file_holds_what_the_step_found(tmp_path: Path) -> None:
    """vocabulary.json: sizes, coverage and ids."""
    Vocabulary(10, (2, 7), 0.5).write(tmp_path / "vocabulary.json")
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == {
        "draft_vocab_size": 2,
        "target_vocab_size": 10,
        "coverage": 0.5,
        "ids": [2, 7],
    }


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "folder").write_text("")
    with pytest.raises(TrainingError, match=r"v\.json cannot be written") as caught:
        Vocabulary(10, (2,), 0.5).write(tmp_path / "folder" / "v.json")
    assert caught.value.hint


def test_a_padded_embedding_lends_its_first_spare_row() -> None:
    """No tokenizer writes it, so no text has it."""
    assert choose_mask_token(set(range(8)), tokenizer_size=8, vocab_size=10, spare=(2,)) == 8


def test_else_a_special_token_that_no_row_has() -> None:
    """The highest of those; one that stands in the rows (an end of turn) would mean two things."""
    assert choose_mask_token({1, 2, 5}, 10, 10, spare=(0, 2, 3)) == 3


def test_else_any_token_that_no_row_has() -> None:
    """And where there is none, P-EAGLE is refused."""
    assert choose_mask_token({0, 1, 3}, 4, 4, spare=(0, 1)) == 2
    with pytest.raises(TrainingError, match="no token is left"):
        choose_mask_token({0, 1, 2, 3}, 4, 4, spare=())

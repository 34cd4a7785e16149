"""The order of prompts, and the split for training."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets import held_out, load_prompt_set
from outrider.measure.prompt_sets.order import in_order, spread
from outrider.measure.prompts import Prompt, PromptSet


def made(categories: list[str]) -> list[Prompt]:
    """One prompt for each of these."""
    return [Prompt(f"t/{i}", (f"text {i}",), category=category) for i, category in enumerate(categories)]


@given(st.integers(1, 2000))
def test_a_spread_is_a_permutation(count: int) -> None:
    """Every index once."""
    assert sorted(spread(count)) == list(range(count))


@given(st.integers(8, 2000), st.data())
def test_each_prefix_is_spread(count: int, data: st.DataObject) -> None:
    """The first n indices leave no gap longer than four times an even spacing's: no end of a file is left out."""
    prefix = data.draw(st.integers(2, count))
    chosen = sorted(spread(count)[:prefix])
    gaps = [b - a for a, b in zip(chosen, [*chosen[1:], count], strict=True)]
    assert chosen[0] == 0
    assert max(gaps) <= 4 * count / prefix + 1


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=200))
def test_categories_come_first_and_then_in_proportion(categories: list[str]) -> None:
    """The first prompts hold one of each category; any later prefix holds each within two of its share."""
    prompts = made(categories)
    ordered = in_order(prompts)
    assert sorted(p.id for p in ordered) == sorted(p.id for p in prompts)
    sizes = Counter(categories)
    assert {p.category for p in ordered[: len(sizes)]} == set(sizes)
    for cut in range(len(sizes), len(ordered) + 1, 7):
        seen = Counter(p.category for p in ordered[:cut])
        whole = len(categories)
        assert all(abs(seen[name] - cut * size / whole) <= len(sizes) for name, size in sizes.items())


def test_the_order_does_not_depend_on_the_run() -> None:
    """Eight prompts of two categories, written out."""
    ordered = in_order(made(["a", "a", "a", "a", "b", "b"]))
    assert [p.id for p in ordered] == ["t/0", "t/4", "t/2", "t/1", "t/5", "t/3"]


def whole(count: int) -> PromptSet:
    """A set of this many prompts."""
    return PromptSet("t", tuple(made([""] * count)), "t.jsonl", "0" * 64)


def test_held_out_prompts_stay_where_they_are() -> None:
    """The sides share nothing, together are the set, near the share, and a set that grows moves no prompt."""
    rest, held = held_out(whole(1000), 0.2)
    assert {*rest.prompts, *held.prompts} == set(whole(1000).prompts)
    assert not {*rest.prompts} & {*held.prompts}
    assert 160 <= len(held.prompts) <= 240
    more_rest, more_held = held_out(whole(1500), 0.2)
    assert {*rest.prompts} <= {*more_rest.prompts}
    assert {*held.prompts} <= {*more_held.prompts}
    assert held_out(whole(1000), 0.2, seed=1)[1].prompts != held.prompts


def test_a_copy_is_on_the_side_of_its_original() -> None:
    """The text decides, not the id: a prompt under another name cannot leak from one side to the other."""
    _, held = held_out(whole(100), 0.3)
    renamed = replace(whole(100), prompts=tuple(replace(p, id=f"u/{p.id}") for p in whole(100).prompts))
    assert [p.turns for p in held_out(renamed, 0.3)[1].prompts] == [p.turns for p in held.prompts]


@pytest.mark.parametrize(("count", "share"), [(1, 0.5), (10, 0.0), (10, 1.0), (10, -1.0), (10, 1e-9)])
def test_a_split_with_an_empty_side_is_refused(count: int, share: float) -> None:
    """Training on everything, or judging on nothing, is no split."""
    with pytest.raises(MeasurementError) as caught:
        held_out(whole(count), share)
    assert caught.value.hint


def test_the_fingerprint_is_of_what_is_sent() -> None:
    """Another turn, system text, id or order is another fingerprint; a note is not."""
    base = load_prompt_set("demo-mt-bench")
    first, *others = base.prompts
    changed = [
        (replace(first, turns=(*first.turns, "more")), *others),
        (replace(first, system="Be brief."), *others),
        (replace(first, id="x"), *others),
        (*others, first),
    ]
    prints = {replace(base, prompts=prompts).prompts_sha256 for prompts in changed}
    assert len(prints | {base.prompts_sha256}) == 5
    assert replace(base, notes=("n",)).prompts_sha256 == base.prompts_sha256

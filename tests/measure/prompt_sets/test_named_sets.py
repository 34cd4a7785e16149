"""The named sets: complete, in a fixed order, and worded as they are meant to be sent."""

import json
from collections import Counter
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets import PromptOptions, load_prompt_set, set_names
from outrider.measure.prompt_sets.humaneval import TEMPLATE
from tests.shared import shared_path

MT_CATEGORIES = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
SPEC_ONLY = {"translation", "summarization", "qa", "math_reasoning", "rag"}


@pytest.fixture
def options() -> PromptOptions:
    """Named sets lie in the shared data folder."""
    return PromptOptions(data_folder=shared_path("data"))


@pytest.mark.parametrize(
    ("name", "count", "license_"),
    [
        ("humaneval", 164, "MIT"),
        ("gsm8k", 1319, "MIT"),
        ("mt-bench", 80, "Apache-2.0"),
        ("spec-bench", 480, "Apache-2.0"),
    ],
)
def test_every_record_of_a_public_set_is_read(
    options: PromptOptions, name: str, count: int, license_: str
) -> None:
    """The published number of prompts, none dropped, ids unique and under the set's name, no path in the source."""
    found = load_prompt_set(name, options=options)
    assert len(found.prompts) == count
    assert (dict(found.dropped), found.unused, found.notes) == ({}, 0, ())
    assert found.dropped_words() == f"kept all {count}"
    assert len({prompt.id for prompt in found.prompts}) == count
    assert all(prompt.id.startswith(f"{name}/") for prompt in found.prompts)
    assert found.license == license_
    assert "/" not in found.source


def test_spec_bench_has_its_thirteen_categories(options: PromptOptions) -> None:
    """80 prompts in each of five categories, 10 in each of MT-Bench's eight, and those alone have a second turn."""
    prompts = load_prompt_set("spec-bench", options=options).prompts
    expected = dict.fromkeys(SPEC_ONLY, 80) | dict.fromkeys(MT_CATEGORIES, 10)
    assert Counter(prompt.category for prompt in prompts) == expected
    assert {p.category for p in prompts if len(p.turns) == 2} == MT_CATEGORIES
    assert {p.category for p in prompts if len(p.turns) == 1} == SPEC_ONLY


@pytest.mark.parametrize("category", sorted(SPEC_ONLY | MT_CATEGORIES))
def test_one_category_is_a_set_of_its_own(options: PromptOptions, category: str) -> None:
    """`spec-bench/CATEGORY` holds exactly that category's prompts, under that name."""
    found = load_prompt_set(f"spec-bench/{category}", options=options)
    assert found.name == f"spec-bench/{category}"
    assert {prompt.category for prompt in found.prompts} == {category}
    assert len(found.prompts) == (80 if category in SPEC_ONLY else 10)


def test_humaneval_is_asked_of_a_chat_model(options: PromptOptions) -> None:
    """The function stands unchanged inside the instruction, and the instruction is kept beside the prompts."""
    found = load_prompt_set("humaneval", options=options)
    first = next(prompt for prompt in found.prompts if prompt.id == "humaneval/0")
    assert found.template == TEMPLATE
    assert first.turns[0].startswith(TEMPLATE.partition("{prompt}")[0] + "from typing import List")
    assert first.turns[0].endswith('    """\n```')


def test_mt_bench_sends_both_turns(options: PromptOptions) -> None:
    """All 80 questions have two turns, as they stand in the file."""
    raw = [json.loads(line) for line in shared_path("data", "mt-bench.jsonl").read_text().splitlines()]
    found = load_prompt_set("mt-bench", options=options)
    assert {prompt.turns for prompt in found.prompts} == {tuple(one["turns"]) for one in raw}


@pytest.mark.parametrize(("name", "categories"), [("mt-bench", 8), ("spec-bench", 13)])
def test_a_limit_keeps_every_category(options: PromptOptions, name: str, categories: int) -> None:
    """As many prompts as there are categories hold one of each; fewer say how many are left out."""
    assert len({p.category for p in load_prompt_set(name, categories, options).prompts}) == categories
    short = load_prompt_set(name, categories - 2, options)
    assert short.notes == (f"{categories - 2} prompts leave out 2 of {categories} categories.",)


@pytest.mark.parametrize("name", ["humaneval", "spec-bench", "demo-mt-bench"])
def test_a_smaller_limit_is_part_of_a_larger_one(options: PromptOptions, name: str) -> None:
    """Limits are prefixes of one order, and two loads give the same prompts under the same fingerprint."""
    whole = load_prompt_set(name, options=options)
    for limit in (1, 5, 12):
        some = load_prompt_set(name, limit, options)
        assert some.prompts == whole.prompts[:limit]
        assert some.unused == len(whole.prompts) - limit
        assert some.sha256 == whole.sha256
        assert some.prompts_sha256 != whole.prompts_sha256 or limit == len(whole.prompts)
    assert load_prompt_set(name, options=options).prompts_sha256 == whole.prompts_sha256


def test_words_for_a_limited_set(options: PromptOptions) -> None:
    """The one line tells what was dropped and what a limit left unused apart."""
    assert load_prompt_set("humaneval", 16, options).dropped_words() == "kept all 164; 16 of the 164 used"
    asked = load_prompt_set("humaneval", 500, options)
    assert (len(asked.prompts), asked.notes) == (164, ("500 prompts were asked for; the set has 164.",))


@pytest.mark.parametrize(
    ("demo", "whole", "count"), [("demo-humaneval", "humaneval", 16), ("demo-mt-bench", "mt-bench", 12)]
)
def test_the_packaged_sets_are_parts_of_the_whole_ones(
    options: PromptOptions, demo: str, whole: str, count: int
) -> None:
    """Loadable without any folder, every prompt word for word one of the public set, every category there."""
    small, large = load_prompt_set(demo), load_prompt_set(whole, options=options)
    assert len(small.prompts) == count
    assert {p.turns for p in small.prompts} <= {p.turns for p in large.prompts}
    assert {p.category for p in small.prompts} == {p.category for p in large.prompts}
    assert (small.license, small.template) == (large.license, large.template)


def test_the_packaged_files_are_small_and_come_with_their_licences() -> None:
    """Under 60 KB, and each licence that the README names lies beside it."""
    folder = Path(load_prompt_set.__code__.co_filename).parents[2] / "data" / "prompts"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 60_000
    readme = (folder / "README.md").read_text()
    for name in ("LICENSE.humaneval", "LICENSE.mt-bench", "LICENSE.apache-2.0"):
        assert (folder / name).stat().st_size > 500
        assert name in readme


def test_the_data_folder_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """OUTRIDER_DATA names the folder where no option does; a path or a folder after = needs neither."""
    folder = shared_path("data")
    by_path = load_prompt_set(f"humaneval={folder / 'humaneval.jsonl.gz'}")
    assert by_path == load_prompt_set(f"humaneval={folder}")
    monkeypatch.setenv("OUTRIDER_DATA", str(folder))
    assert load_prompt_set("humaneval") == by_path


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("human-eval", "'human-eval' is no prompt set", "humaneval, gsm8k"),
        ("", "'' is no prompt set", "Names: humaneval"),
        ("org/name", "is no prompt set", "jsonl=org/name"),
        ("humaneval=", "nothing follows the =", "github.com/openai/human-eval"),
        ("gsm8k/algebra", "gsm8k has no categories", "mt-bench and spec-bench"),
        ("sharegpt", "sharegpt needs a path", "licence is stated nowhere"),
        ("jsonl", "jsonl needs a path", "jsonl=FILE.jsonl"),
        ("spec-bench", "spec-bench is not in the data folder", "github.com/hemingkx/Spec-Bench"),
        ("gsm8k=nothing.jsonl", "there is no file nothing.jsonl", "ORG/NAME"),
        ("nothing.jsonl.gz", "there is no file nothing.jsonl.gz", "Check the path"),
        ("gsm8k=.", "is a folder", "gsm8k-test.jsonl"),
    ],
)
def test_a_spec_that_names_nothing_says_what_would(
    spec: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every such error is one of measurement and has a hint with the next step."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MeasurementError, match=message.replace("(", r"\(")) as caught:
        load_prompt_set(spec, options=PromptOptions(data_folder=tmp_path))
    assert hint in caught.value.hint


def test_an_unknown_category_lists_the_known_ones(options: PromptOptions) -> None:
    """The categories that the file has are in the hint."""
    with pytest.raises(MeasurementError, match="no category 'poetry'") as caught:
        load_prompt_set("spec-bench/poetry", options=options)
    assert all(name in caught.value.hint for name in MT_CATEGORIES | SPEC_ONLY)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_of_nothing_is_refused(limit: int) -> None:
    """No run of no prompts."""
    with pytest.raises(MeasurementError, match="leaves none"):
        load_prompt_set("demo-humaneval", limit)


def test_every_name_loads_or_says_what_it_needs(options: PromptOptions) -> None:
    """No name of the list is a dead end."""
    for name in set_names():
        if name in ("sharegpt", "jsonl"):
            continue
        assert load_prompt_set(name, 2, options).name == name

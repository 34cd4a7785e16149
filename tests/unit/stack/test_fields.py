"""Rules over several fields, and SGLang's tree flags."""

import pytest

from outrider.core.errors import StackError
from outrider.stack.load import load_stack_text
from outrider.stack.sglang_flags import judge_tree

HEAD = "apiVersion: outrider/v1alpha1\ntarget:\n  model: org/name\n"


def rules(text: str) -> list[str]:
    """The rules that refuse `text`; empty when it loads."""
    try:
        load_stack_text(HEAD + text, "x")
    except StackError as error:
        return [problem.rule for problem in error.problems]
    return []


def test_config_tree() -> None:
    """With topk 1 a tree is a chain: 4 steps make 5 draft tokens, not 24."""
    (problem,) = judge_tree(steps=4, topk=1, draft_tokens=24)
    assert problem.rule == "config-tree"
    assert "draft tokens = steps + 1 = 5" in problem.message
    assert problem.hint.startswith("Set it to 5")


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "refused"),
    [
        (4, 1, 5, False),
        (None, None, None, False),
        (5, 4, 8, False),
        (2, 4, 21, False),
        (2, 4, 22, True),
        (4, None, 5, True),
        (0, 1, 1, True),
    ],
)
def test_tree_flags(steps: int | None, topk: int | None, tokens: int | None, refused: bool) -> None:
    """All three or none, each at least 1, and no more tokens than the tree has nodes."""
    assert bool(judge_tree(steps, topk, tokens)) == refused


@pytest.mark.parametrize("parallel", [1, 8])
def test_draft_parallel_one_or_the_targets(parallel: int) -> None:
    """1 and the target's own are accepted."""
    text = f"draft: {{method: eagle3, model: a/b, tensor_parallel: {parallel}}}\nengine: {{tensor_parallel: 8}}\n"
    assert rules(text) == []


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        ("{method: eagle3}", ["draft-model"]),
        ("{method: eagle3, model: a/b}", []),
        ("{method: ngram, model: a/b}", ["draft-model"]),
        ("{method: suffix, revision: abc}", ["draft-model"]),
        ("{method: none}", []),
        ("{method: none, draft_length: 3}", ["draft-model"]),
        ("{method: ngram, ngram: {min_tokens: 5, max_tokens: 4}}", ["ngram-range"]),
        ("{method: ngram, ngram: {min_tokens: 4, max_tokens: 4}}", []),
        (
            "{method: ngram, draft_length: 5, draft_length_by_batch: [[1, 16, 5], [17, 64, 3], [65, 512, 0]]}",
            [],
        ),
        ("{method: ngram, draft_length_by_batch: [[1, 1, 0], [2, 2, 3]]}", []),
        ("{method: ngram, draft_length_by_batch: [[2, 16, 3]]}", ["batch-schedule"]),
        ("{method: ngram, draft_length_by_batch: [[1, 16, 3], [18, 64, 2]]}", ["batch-schedule"]),
        ("{method: ngram, draft_length_by_batch: [[1, 16, 3], [16, 64, 2]]}", ["batch-schedule"]),
        ("{method: ngram, draft_length: 3, draft_length_by_batch: [[1, 16, 4]]}", ["batch-schedule"]),
        ("{method: ngram, draft_length_by_batch: [[1, 16, 4]]}", []),
        ("{method: ngram, draft_length_by_batch: [[1, 0, 3]]}", ["batch-schedule"]),
        ("{method: ngram, draft_length_by_batch: [[1, 16, -1]]}", ["batch-schedule"]),
    ],
)
def test_draft_fields(draft: str, expected: list[str]) -> None:
    """A model exactly where the method has weights; a schedule without gaps or overlaps, K at most the draft length."""
    assert rules(f"draft: {draft}\n") == expected


@pytest.mark.parametrize(
    ("host", "open_door"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("'::1'", False),
        ("localhost", False),
        ("0.0.0.0", True),  # noqa: S104  # refused by the very rule under test
        ("example.org", True),
    ],
)
def test_keys_are_needed_beyond_loopback(host: str, open_door: bool) -> None:
    """Any address that others can reach is refused without keys, and accepted with one."""
    assert rules(f"serve: {{host: {host}}}\n") == (["open-door"] if open_door else [])
    key = f"[{{name: me, sha256: {'a' * 64}}}]"
    assert rules(f"serve: {{host: {host}, keys: {key}}}\n") == []


def test_keys_are_distinct() -> None:
    """Two keys of one name or one hash would hide one client behind another."""
    entry = "{name: me, sha256: " + "a" * 64 + "}"
    for other in (entry, entry.replace(": me", ": you"), entry.replace("aa", "bb")):
        assert rules(f"serve:\n  keys: [{entry}, {other}]\n") == ["distinct-keys"]


def test_a_package_needs_its_digest() -> None:
    """What an index hands out is used only when its digest is known."""
    with pytest.raises(StackError) as caught:
        load_stack_text("apiVersion: outrider/v1alpha1\ntarget: {model: 'pypi:a==1'}\n", "x")
    assert caught.value.problems[0].rule == "digest"

"""Arms: what is compared, under which name, and what of the stack is changed for it."""

import re

import pytest
import yaml

from outrider.bench.arms import plan_arms, read_arm
from outrider.core.errors import StackError
from outrider.stack.load import load_stack_text
from tests.stacks import ngram_stack


def test_baseline_and_the_stacks_own_draft() -> None:
    """Without --arm: no draft first, then the stack's draft."""
    arms = plan_arms(ngram_stack(), (), running=4)
    assert [arm.name for arm in arms] == ["baseline", "ngram-k3"]
    assert arms[0].is_baseline
    assert not arms[1].is_baseline


def test_several_lengths_are_several_arms() -> None:
    """`k=2+5` makes two arms; one that is there already is not run twice."""
    arms = plan_arms(ngram_stack(), ("ngram:k=2+5", "ngram:k=3"), running=4)
    assert [arm.name for arm in arms] == ["baseline", "ngram-k3", "ngram-k2", "ngram-k5"]


def test_an_arm_is_a_stack_that_serve_reads() -> None:
    """What an arm is written as reads back as the same stack, on loopback, without keys, with room for every request."""
    arm = plan_arms(ngram_stack(), (), running=64)[1]
    read = load_stack_text(arm.text(), "arm.yaml")
    assert read == arm.stack
    assert read.engine.max_running_requests == 64
    assert not read.engine.prefix_cache
    assert (read.serve.host, read.serve.port) == ("127.0.0.1", 0)
    assert any("max_running_requests" in note for note in arm.notes)
    assert any("prefix_cache" in note for note in arm.notes)
    assert yaml.safe_load(arm.text())["draft"]["method"] == "ngram"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("magic", "no method is called 'magic'"),
        ("magic", "the methods are ngram, "),
        ("none", "the baseline has no draft and is always there"),
        ("ngram:k=x", "k takes a number, not 'x'"),
        ("ngram:k=0", "greater than or equal to 1"),
        ("ngram:speed=9", "ngram has no key 'speed'; its keys are k, tensor_parallel, min, max"),
        ("eagle3:k=3,model=", "model needs a value"),
        ("ngram:k", "k takes a number"),
        ("eagle3:k=3", "needs the weights"),
        ("ngram:k=3,rates=0.5+0.4+0.3", "rates are for a forecast"),
    ],
)
def test_an_arm_that_cannot_be_is_refused(spec: str, words: str) -> None:
    """Each wrong spec is refused with its own words and a hint."""
    with pytest.raises(StackError, match=re.escape(words)) as caught:
        plan_arms(ngram_stack(), (spec,), running=4)
    assert caught.value.hint


def test_nothing_to_compare() -> None:
    """A stack without a draft and no --arm: said so, not measured."""
    stack = ngram_stack()
    bare = stack.model_copy(update={"draft": stack.draft.model_copy(update={"method": "none"})})
    with pytest.raises(StackError, match="nothing to compare"):
        plan_arms(bare, (), running=4)


def test_what_an_arm_does_not_say_is_the_stacks() -> None:
    """An arm of the stack's own method keeps its options."""
    stack = ngram_stack()
    draft = stack.draft.model_copy(update={"ngram": stack.draft.ngram.model_copy(update={"min_tokens": 3})})
    wanted = read_arm("ngram:k=5", stack.model_copy(update={"draft": draft}))[0]
    assert wanted.draft.ngram.min_tokens == 3
    assert wanted.draft.length == 5


def test_the_document_names_no_folder_of_this_machine() -> None:
    """A head in a folder is shown by its last part."""
    arm = plan_arms(ngram_stack(), ("eagle3:k=3,model=/secret/place/head",), running=4)[2]
    assert arm.described().draft["model"] == "…/head"


@pytest.mark.parametrize(
    "own", ["draft:\n  method: ngram\n", "draft: {method: ngram, ngram: {min_tokens: 3}}\n"]
)
def test_a_stack_that_leaves_the_length_to_the_method(own: str) -> None:
    """No `draft_length` is the method's default: `k=3` is the stack's own draft, not a second arm of its name."""
    stack = load_stack_text(f"apiVersion: outrider/v1alpha1\ntarget: {{model: org/target}}\n{own}", "a.yaml")
    arms = plan_arms(stack, ("ngram:k=2+3+5",), running=4)
    assert [arm.name for arm in arms] == ["baseline", "ngram-k3", "ngram-k2", "ngram-k5"]
    assert {arm.stack.draft.ngram.min_tokens for arm in arms[1:]} == {stack.draft.ngram.min_tokens}


def test_two_heads_of_one_length_are_refused() -> None:
    """Two different drafts never share a name."""
    with pytest.raises(StackError, match="would be called eagle3-k3"):
        plan_arms(ngram_stack(), ("eagle3:k=3,model=org/a", "eagle3:k=3,model=org/b"), running=4)

"""Records of every form there is become conversations, or are counted by the reason why not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.measure.prompt_sets.shape import Unusable
from outrider.train.conversations import Conversation, conversation

USER, GPT = {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}


def said(role: str, content: object) -> dict[str, object]:
    """A message in OpenAI's form."""
    return {"role": role, "content": content}


def reason(record: object) -> str:
    """Why a record makes no conversation."""
    with pytest.raises(Unusable) as caught:
        conversation(record)
    return str(caught.value)


def test_data_conversations() -> None:
    """Each odd record of the field's reports is put right or dropped with its reason; none ends the run."""
    records: list[object] = [
        {"conversations": []},
        {"conversations": [GPT, USER, GPT]},
        {"messages": [said("user", "One."), said("user", "Two."), said("assistant", "Both.")]},
        {"conversations": [USER, GPT]},
        {"messages": [said("user", "Why?"), said("assistant", "Because.")]},
        "Why?",
        {"messages": [said("user", "Why?"), said("narrator", "He paused."), said("user", "Well?")]},
    ]
    kept, dropped = [], Counter[str]()
    for record in records:
        try:
            kept.append(conversation(record))
        except Unusable as why:
            dropped[str(why)] += 1
    assert [one.turns for one in kept] == [("Why?",), ("One.\n\nTwo.",), ("Why?",), ("Why?",), ("Why?",)]
    assert dropped == {"empty conversation": 1, "unknown role": 1}


@pytest.mark.parametrize("role", ["narrator", "Assistant2", "", None, 7, ["assistant"], {"role": "user"}])
def test_an_unknown_role_is_not_an_assistant(role: object) -> None:
    """What nobody knows is not passed over as an answer, wherever it stands: the conversation is dropped."""
    for messages in (
        [said("user", "a"), {"role": role, "content": "b"}],
        [{"role": role, "content": "b"}, said("user", "a")],
    ):
        assert reason({"messages": messages}) == "unknown role"


@pytest.mark.parametrize(
    ("record", "turns"),
    [
        ({"prompt": "a"}, ("a",)),
        ({"text": "a"}, ("a",)),
        ({"question": "a", "answer": "b"}, ("a",)),
        ({"instruction": "a", "input": "", "output": "c"}, ("a",)),
        ({"instruction": "a", "input": "b", "output": "c"}, ("a\n\nb",)),
        ({"turns": ["a", "b"]}, ("a", "b")),
        ({"prompt": [said("user", "a")]}, ("a",)),
        ([said("user", "a"), said("assistant", "b"), said("user", "c")], ("a", "c")),
        ({"messages": [{"from": "User", "value": "a"}]}, ("a",)),
        ({"conversation": [said("human", "a")]}, ("a",)),
        ({"messages": [said("user", [{"type": "text", "text": "a"}])]}, ("a",)),
        ({"messages": [said("assistant", None), said("user", "a")]}, ("a",)),
    ],
)
def test_forms(record: object, turns: tuple[str, ...]) -> None:
    """The forms that are about, in either pair of keys, all say what their users said."""
    assert conversation(record).turns == turns


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (None, "not an object or a string"),
        (3.5, "not an object or a string"),
        ({}, "no prompt field"),
        ([], "empty conversation"),
        ("  ", "empty user turn"),
        ({"turns": []}, "empty conversation"),
        ({"messages": "a"}, "not a list of messages"),
        ({"messages": [said("user", "a"), "b"]}, "not a list of messages"),
        ({"messages": [said("user", None)]}, "not text"),
        ({"messages": [said("user", "a"), said("user", 5)]}, "not text"),
        ({"messages": [said("assistant", "a")]}, "no user turn"),
        ({"messages": [said("user", "a"), said("tool", "b")]}, "needs tools"),
        ({"messages": [said("user", "a"), {**said("assistant", None), "tool_calls": [1]}]}, "needs tools"),
        ({"messages": [said("user", [{"type": "image_url", "image_url": "x"}])]}, "not text"),
        ("a\0b", "NUL character"),
        ("a\ud800", "half a character (lone surrogate)"),
        (Unusable("bad JSON"), "bad JSON"),
    ],
)
def test_reasons(record: object, why: str) -> None:
    """Every record that makes none says why."""
    assert reason(record) == why


def test_the_system_text_stays() -> None:
    """As a message or beside the conversation; it is the first message of what is asked."""
    inside = conversation(
        {"messages": [said("system", "Be brief."), said("user", "a"), said("assistant", "b")]}
    )
    beside = conversation({"conversations": [USER, GPT], "system": "Be brief."})
    assert inside == Conversation(("a",), "Be brief.")
    assert beside.messages() == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    )


def test_long_conversations_are_cut_and_say_so() -> None:
    """The first turns are kept; a conversation of exactly the limit is whole."""
    record = {"turns": ["a", "b", "c"]}
    assert conversation(record, 2) == Conversation(("a", "b"), cut=True)
    assert conversation(record, 3) == conversation(record) == Conversation(("a", "b", "c"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "conversations",
                    "role",
                    "from",
                    "content",
                    "value",
                    "turns",
                    "system",
                    "instruction",
                ]
            ),
            inner | st.sampled_from(["user", "assistant", "system"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_no_record_is_a_crash(record: object) -> None:
    """Whatever JSON holds is a conversation with something said in each turn, or has a short reason."""
    try:
        turns, why = conversation(record).turns, "-"
    except Unusable as unusable:
        turns, why = ("-",), str(unusable)
    assert turns
    assert all(turn.strip() for turn in turns)
    assert 0 < len(why) < 60

"""The pieces of a chat template, as tokens, by what the engine makes of a few conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from outrider.core.errors import TrainingError
from outrider.train.generation import Target
from outrider.train.template import (
    ChatTemplate,
    common_end,
    common_start,
    learn_template,
    next_turn_ids,
    opening_ids,
)
from tests.train.scripted_engine import (
    Script,
    ScriptedEngine,
    bare,
    chatml,
    decode,
    encode,
    one_turn,
    scripted,
    thoughtless,
    trimming,
)

Messages = Sequence[dict[str, str]]


def instruction(messages: Messages, generate: bool) -> str:
    """Headings instead of marks; a full stop before a line's end is one token with it."""
    names = {"user": "### Instruction:", "assistant": "### Response:", "system": "### System:"}
    text = "".join(f"{names[m['role']]}\n{m['content']}\n" for m in messages)
    return text + ("### Response:\n" if generate else "")


def counted(message: dict[str, str]) -> dict[str, str]:
    """A message that begins with its length, which its writer cannot know."""
    return {**message, "content": f"{len(message['content'])} letters: {message['content']}"}


def learn(engine: ScriptedEngine, system: str | None = None) -> ChatTemplate:
    """The pieces of an engine's template."""

    async def run() -> ChatTemplate:
        async with Target(engine.access) as target:
            return await learn_template(target, system)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("template", "start", "end", "after", "history"),
    [
        (
            chatml,
            "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>",
            "<|im_end|>\n<|im_start|>user\n",
            "kept",
        ),
        (
            trimming,
            "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>",
            "<|im_end|>\n<|im_start|>user\n",
            "kept",
        ),
        (
            thoughtless,
            "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>",
            "<|im_end|>\n<|im_start|>user\n",
            "rewritten",
        ),
        (one_turn, "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n", "<|im_end|>", "", "unknown"),
        (bare, "<s>User:", "Assistant:", "</s>\nUser:", "kept"),
        (instruction, "### Instruction:\n", "### Response:", "", "unknown"),
    ],
)
def test_the_pieces_are_found(
    template: Callable[[Messages, bool], str], start: str, end: str, after: str, history: str
) -> None:
    """Where a user's text begins and ends, what stands between an answer and the next; a space stays with its word."""
    with scripted(Script(template=template)) as engine:
        found = learn(engine)
    assert decode(found.user_start) == start
    assert (decode(found.user_end) or found.stop_texts[0]) == end
    assert bool(found.user_end) != bool(found.stop_texts)
    assert (decode(found.after_answer), found.history) == (after, history)


def test_the_system_text_is_part_of_the_start() -> None:
    """With it asked for, the pieces are those that follow it."""
    with scripted() as engine:
        found = learn(engine, "Be brief.")
    assert decode(found.user_start) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            lambda messages, generate: chatml([{**m, "content": ""} for m in messages], generate),
            "cannot be found",
        ),
        (
            lambda messages, generate: chatml(
                [{**m, "content": m["content"].upper()} for m in messages], generate
            ),
            "cannot be found",
        ),
        (lambda messages, generate: chatml([counted(m) for m in messages], generate), "cannot be found"),
        (lambda messages, generate: 1 / 0, "cannot be used"),
    ],
)
def test_a_template_that_is_no_use_is_refused_by_name(template: Any, message: str) -> None:
    """A user's text that is left out or changed cannot be found, and a template that fails cannot be used."""

    def raising(messages: Messages, generate: bool) -> str:
        try:
            return str(template(messages, generate))
        except ZeroDivisionError:
            raise ValueError("division by zero") from None

    with scripted(Script(template=raising)) as engine, pytest.raises(TrainingError, match=message) as caught:
        learn(engine)
    assert "the chat template of toy" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("template", [chatml, bare, trimming])
@pytest.mark.parametrize("user", ["More.", " padded ", "7", "Why?\n\nReally.", "<|im_end|>"])
def test_a_later_turn_is_what_the_template_makes_of_it(template: Any, user: str) -> None:
    """Answer and turn, put together as tokens, are what the template makes of the conversation as a whole."""
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "An answer."}]
    with scripted(Script(template=template)) as engine:
        pieces = learn(engine)

        async def run() -> tuple[int, ...]:
            async with Target(engine.access) as target:
                return await next_turn_ids(target, pieces, user)

        tail = asyncio.run(run())
        whole = engine.render([*talk, {"role": "user", "content": user}])
        begun = engine.render(talk[:1])
        answer = encode(" An answer." if template is bare else "An answer.")
    assert tuple(whole) == (*begun, *answer, *tail)


def test_a_template_that_changes_on_the_way_is_noticed() -> None:
    """Pieces learnt from another template are not put together with this one's; a date in it may change."""
    script = Script()
    with scripted(script) as engine:
        pieces = learn(engine)

        async def turn() -> tuple[int, ...]:
            async with Target(engine.access) as target:
                return await next_turn_ids(target, pieces, "More.")

        before = asyncio.run(turn())
        script.template = lambda messages, generate: chatml(messages, generate).replace(
            "Be good.", "Be evil."
        )
        assert asyncio.run(turn()) == before
        script.template = lambda messages, generate: chatml(messages, generate).replace(
            "Be good.", "Be as good as gold."
        )
        with pytest.raises(TrainingError, match="not what it was") as caught:
            asyncio.run(turn())
    assert "Repeat" in caught.value.hint


def test_an_opening_ends_where_the_user_goes_on() -> None:
    """The tokens of the opening, whole, and nothing that the next word would change."""
    with scripted(Script(template=bare)) as engine:

        async def run() -> tuple[int, ...]:
            async with Target(engine.access) as target:
                return await opening_ids(target, [], "Write a poem on")

        assert asyncio.run(run()) == tuple(encode("<s>User: Write a poem on"))


def test_what_sequences_share() -> None:
    """The longest common beginning and end; of one sequence, all of it."""
    assert common_start([[1, 2, 3], [1, 2], [1, 2, 9]]) == (1, 2)
    assert common_end([[3, 1, 2], [1, 2], [9, 1, 2]]) == (1, 2)
    assert common_start([[1, 2]]) == common_end([[1, 2]]) == (1, 2)
    assert common_start([[1], [2]]) == common_end([[1], [2]]) == ()

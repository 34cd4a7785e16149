"""A chat template's pieces as token ids, found by asking the engine what it makes of a few conversations.

What all of several texts have in common before and after them is the template's. So no marker has to survive in a text, a
template may trim what it is given, and a space that a tokenizer joins to the next word stays with the word.

Source: `/tokenize` with `messages` of vLLM 0.26.0 and 0.32.0, which renders as `/v1/chat/completions` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outrider.core.errors import TrainingError
from outrider.train.generation import Refused, Target
from outrider.train.rows import AGAIN

Ids = tuple[int, ...]
Messages = Sequence[Mapping[str, str]]
# No two begin or end with the same character, so that what they share is the template's.
USER_PROBES = ("Hello there", "7 apples?", "(so far)", "Und jetzt.", '"Quoted"', "x = 1;")
ANSWER_PROBES = ("Sure thing", "It is 7.", "- one\n- two!", "(yes)")
THINKING = "<think>\nFirst a thought.\n</think>\n\nThen the word"
THOUGHT = "First a thought."
_MARK = re.compile(r"[<\[].+[>\]]")  # a token that no text holds: <|im_end|>, </s>, [/INST]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """What the template puts around what is said.

    `user_start`: from the conversation's begin to where the first user's text begins. `user_end`: the token that ends it, where
    there is one of its own; else `stop_texts` holds the text that follows it. `after_answer`: from the end of an answer's text
    to where the next user's text begins. `answered`: a question and its answer, and `answer` the answer's part of it.
    `history` says how an earlier answer stands in a later prompt: ``kept`` (its own tokens), ``rewritten`` (its text, without
    thoughts), ``unknown`` (the pieces cannot be told apart: no second turn).
    """

    user_start: Ids
    user_end: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    after_answer: Ids = ()
    answered: Ids = ()
    answer: Ids = ()
    history: Literal["kept", "rewritten", "unknown"] = "unknown"


async def learn_template(target: Target, system: str | None = None) -> ChatTemplate:
    """Find the pieces of the engine's chat template, with `system` as its system text.

    Raises:
        TrainingError: the template cannot be used: it refuses a conversation, or a user's text is not to be found in it.
    """
    name = f"the chat template of {target.access.model}"
    try:
        made = [await target.chat_ids(_opened(system, probe)) for probe in USER_PROBES]
        start, end = common_start(made), common_end(made)
        after = set()
        for ids, probe in zip(made, USER_PROBES, strict=True):
            before, found, rest = (await target.text_of(ids[len(start) :])).partition(probe)
            if before.strip() or not found:
                raise TrainingError(
                    f"{name}: the user's text cannot be found in what it makes of a turn",
                    hint="Set `target.chat_template` to another one.",
                )
            after.add(rest.strip())
        has_mark = bool(end) and _MARK.fullmatch((await target.text_of(end[:1])).strip()) is not None
        stop_texts = tuple(after - {""}) if len(after) == 1 and not has_mark else ()
        pieces = await _learn_history(target, system)
    except Refused as refusal:
        hint = "Set `target.chat_template` to another one"
        hint += ", or leave the system text out." if system else "."
        raise TrainingError(f"{name} cannot be used: {refusal}", hint=hint) from refusal
    return replace(
        pieces,
        user_start=start,
        user_end=end[:1] if has_mark else (),
        stop_texts=stop_texts,
    )


async def opening_ids(target: Target, before: Messages, opening: str = "") -> Ids:
    """Tokens of a conversation up to where its user goes on writing after `opening`. Raises Refused, TrainingError."""
    words = (" the", " 7", "\nx", " (") if opening else USER_PROBES[:3]
    return common_start([await target.chat_ids([*before, _user(f"{opening}{word}")]) for word in words])


async def next_turn_ids(target: Target, template: ChatTemplate, user: str) -> Ids:
    """Tokens from the end of an answer to where the next one begins, `user` between them.

    Raises:
        Refused: the template does not take the text.
        TrainingError: the template has changed since it was learnt.
    """
    made = await target.chat_ids([_user(USER_PROBES[0]), _assistant(ANSWER_PROBES[0]), _user(user)])
    end = len(template.answered)
    if made[end - len(template.answer) : end] != template.answer:  # not all of it: it may hold the date
        raise TrainingError(f"the chat template of {target.access.model} is not what it was", hint=AGAIN)
    return made[end:]


async def _learn_history(target: Target, system: str | None) -> ChatTemplate:
    """The pieces around an answer, and how it stands in a later prompt. Raises Refused."""
    tails = []
    answered: Ids = ()
    answer: Ids = ()
    for users_system in (system, None):  # the last round is the one that `next_turn_ids` builds on
        begun = _opened(users_system, USER_PROBES[0])
        first = await target.chat_ids(begun)
        for user in USER_PROBES[1:4]:
            made = [await target.chat_ids([*begun, _assistant(one), _user(user)]) for one in ANSWER_PROBES]
            tail = common_end(made)
            for ids, probe in zip(made, ANSWER_PROBES, strict=True):
                middle = _between(ids, first, tail)
                if ids[: len(first)] != first or (await target.text_of(middle)).lstrip() != probe:
                    return ChatTemplate(())
            tails.append(tail)
            answered = made[0][: len(made[0]) - len(tail)]
            answer = answered[len(first) :]
    joint = common_start(tails)
    if not joint:
        return ChatTemplate(())
    thinking = await target.chat_ids([*begun, _assistant(THINKING), _user(USER_PROBES[1])])
    return ChatTemplate(
        (),
        after_answer=joint,
        answered=answered,
        answer=answer,
        history="kept" if THOUGHT in await target.text_of(thinking) else "rewritten",
    )


def _between(ids: Ids, start: Ids, end: Ids) -> Ids:
    return ids[len(start) : len(ids) - len(end)]


def common_start(sequences: Iterable[Sequence[int]]) -> Ids:
    """The longest beginning that all have."""
    rows = list(sequences)
    length = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return tuple(rows[0][:length])


def common_end(sequences: Iterable[Sequence[int]]) -> Ids:
    """The longest end that all have."""
    return common_start([row[::-1] for row in sequences])[::-1]


def _opened(system: str | None, user: str) -> list[dict[str, str]]:
    return [*([{"role": "system", "content": system}] if system else []), _user(user)]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}

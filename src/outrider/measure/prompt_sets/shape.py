"""What every format makes of a record: a `Shape`, or an `Unusable` with the reason that is counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ANSWERS = frozenset({"assistant", "gpt", "chatgpt", "bard", "bing", "model", "bot"})
USERS = frozenset({"user", "human"})
SYSTEMS = frozenset({"system", "developer"})
TOOLS = frozenset({"tool", "function", "function_call", "observation"})


class Unusable(Exception):
    """This record makes no prompt; its text is the reason, in words short enough to be counted by."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One record, understood: its user turns, and what else it says about itself."""

    turns: tuple[str, ...]
    system: str | None = None
    category: str = ""
    own_id: str = ""


def text_of(value: object) -> str:
    """A string, or the texts of a list of content parts. Raises Unusable.

    Source: the content parts of the OpenAI chat API (``{"type": "text", "text": …}``).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        texts = [part.get("text") for part in value if part.get("type") == "text"]
        if len(texts) == len(value) and all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    raise Unusable("not text")


def strings_of(value: object) -> tuple[str, ...]:
    """A list of strings, as it stands. Raises Unusable."""
    if not isinstance(value, list) or not all(isinstance(turn, str) for turn in value):
        raise Unusable("not text")
    return tuple(value)


def talk(messages: object, role_key: str, text_key: str) -> tuple[str | None, tuple[str, ...]]:
    """System text and user turns of a list of messages; the answers in it are left out, the model gives its own.

    Raises:
        Unusable: not a list of messages, a role nobody knows, tools, no user turn, or an answer before the first question.
    """
    if not isinstance(messages, list):
        raise Unusable("not a list of messages")
    system: list[str] = []
    turns: list[str] = []
    for message in messages:
        if not isinstance(message, dict):
            raise Unusable("not a list of messages")
        role = message.get(role_key)
        if not isinstance(role, str) or role not in ANSWERS | USERS | SYSTEMS | TOOLS:
            raise Unusable("unknown role")
        if role in TOOLS or message.get("tool_calls"):
            raise Unusable("needs tools")
        if role in ANSWERS and not turns:
            raise Unusable("begins with an answer")
        if role in SYSTEMS and turns:
            raise Unusable("system text after the first turn")
        if role not in ANSWERS:
            (turns if role in USERS else system).append(text_of(message.get(text_key)))
    if not turns:
        raise Unusable("no user turn")
    return "\n\n".join(system) or None, tuple(turns)


def id_of(record: dict[str, object], keys: Iterable[str] = ("id", "question_id", "prompt_id")) -> str:
    """The record's own id in one short line, or empty."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return "".join(c for c in str(value)[:80] if c.isalnum() or c in "-_./:")
    return ""


def word_of(value: object) -> str:
    """A category's name: a short string, else empty."""
    return value if isinstance(value, str) and value.isprintable() and len(value) <= 60 else ""

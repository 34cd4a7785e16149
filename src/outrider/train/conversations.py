"""Any record of anyone's data -> a conversation to be answered anew, or the reason why it makes none.

Only what users and the system said is taken: every answer is written again by the target, for a draft head learns what the
target says, not what another model said.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.measure.prompt_sets import own
from outrider.measure.prompt_sets.shape import ANSWERS, USERS, Unusable, text_of

Messages = tuple[dict[str, str], ...]
_LISTS = ("messages", "conversations", "conversation", "prompt", "text")


@dataclass(frozen=True, slots=True)
class Conversation:
    """User turns in order, each to be answered before the next; `cut` says that the record went on after them."""

    turns: tuple[str, ...]
    system: str | None = None
    cut: bool = False

    def messages(self) -> Messages:
        """As chat messages, the answers left out: the system's, if any, then one of the user's a turn."""
        system = ({"role": "system", "content": self.system},) if self.system else ()
        return (*system, *({"role": "user", "content": turn} for turn in self.turns))


def conversation(record: object, max_turns: int = 0) -> Conversation:
    """What `record` is, in any of the forms that are about; its first `max_turns` user turns (0: all).

    Forms: a string; a list of messages; an object with `messages`, `conversations` (`role` and `content`, or `from` and
    `value`), `turns`, `prompt`, `text`, `question`, or `instruction` and `input`. Answers before the first question are left
    out; what a user said in several messages in a row is one turn.

    Raises:
        Unusable: with the reason that is counted. A role nobody knows is one: it may be anything, also no user.
    """
    if isinstance(record, Unusable):
        raise record
    shape = own.shape(_as_usual(record))
    if not shape.turns:
        raise Unusable("empty conversation")
    turns = shape.turns[:max_turns] if max_turns else shape.turns
    _refuse_unsendable(turns, shape.system)
    return Conversation(turns, shape.system or None, cut=len(turns) < len(shape.turns))


def _as_usual(record: object) -> object:
    """The record in one of the forms that prompt sets know, its messages in order. Raises Unusable."""
    if isinstance(record, list):
        record = {"messages": record}
    if not isinstance(record, dict):
        return record
    for key in _LISTS:
        value = record.get(key)
        if isinstance(value, list) and (not value or isinstance(value[0], dict)):
            return {"messages": _in_turn(value), "system": record.get("system")}
    for key in ("question", "query", "instruction"):
        if key in record and not record.keys() & {*_LISTS, "turns"}:
            more = record.get("input") if key == "instruction" else ""
            asked = text_of(record[key])
            return {
                "prompt": f"{asked}\n\n{text_of(more)}" if more else asked,
                "system": record.get("system"),
            }
    return record


def _in_turn(messages: list[object]) -> list[dict[str, object]]:
    """Messages by `role` and `content`, without leading answers, a user's messages in a row made one. Raises Unusable."""
    if not messages:
        raise Unusable("empty conversation")
    found: list[dict[str, object]] = []
    for message in messages:
        if not isinstance(message, dict):
            raise Unusable("not a list of messages")
        role = message.get("role", message.get("from"))
        role = role.strip().lower() if isinstance(role, str) else ""
        content = message.get("content", message.get("value"))
        asked = any(one["role"] in USERS for one in found)
        if role in ANSWERS and not asked and not message.get("tool_calls"):
            continue
        if role in USERS and found and found[-1]["role"] in USERS:
            found[-1]["content"] = f"{text_of(found[-1]['content'])}\n\n{text_of(content)}"
            continue
        found.append({**message, "role": role, "content": content})
    return found


def _refuse_unsendable(turns: tuple[str, ...], system: str | None) -> None:
    """Raises Unusable for what no server could be sent."""
    if not all(turn.strip() for turn in turns):
        raise Unusable("empty user turn")
    whole = "".join((system or "", *turns))
    if "\0" in whole:
        raise Unusable("NUL character")
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise Unusable("half a character (lone surrogate)") from None

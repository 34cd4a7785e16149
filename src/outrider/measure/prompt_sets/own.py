"""The user's own JSONL: a bare string, or an object in one of the forms that are about.

Sources: OpenAI's chat format (`messages`), ShareGPT (`conversations`), MT-Bench (`turns`), plain data sets (`prompt`, `text`).
"""

from __future__ import annotations

from outrider.measure.prompt_sets.shape import Shape, Unusable, id_of, strings_of, talk, text_of, word_of


def shape(record: object) -> Shape:
    """One record in any of the forms; the first of the fields that is there decides. Raises Unusable."""
    if isinstance(record, str):
        return Shape((record,))
    if not isinstance(record, dict):
        raise Unusable("not an object or a string")
    system, turns = _turns(record)
    if (given := record.get("system")) is not None:
        if system is not None:
            raise Unusable("two system texts")
        system = text_of(given)
    return Shape(turns, system, word_of(record.get("category")), id_of(record))


def _turns(record: dict[str, object]) -> tuple[str | None, tuple[str, ...]]:
    if "messages" in record:
        return talk(record["messages"], "role", "content")
    if "conversations" in record:
        return talk(record["conversations"], "from", "value")
    if "turns" in record:
        return None, strings_of(record["turns"])
    for key in ("prompt", "text"):
        if key in record:
            value = record[key]
            if isinstance(value, list) and value and all(isinstance(x, dict) and "role" in x for x in value):
                return talk(value, "role", "content")
            if isinstance(value, list) and value and all(isinstance(turn, str) for turn in value):
                return None, tuple(value)
            return None, (text_of(value),)
    raise Unusable("no prompt field")

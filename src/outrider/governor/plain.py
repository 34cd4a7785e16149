"""Records to plain JSON values and back; strict on the way back, since those come from outside.

Raises ValueError for everything that is not as written: unknown, missing and repeated keys, wrong types, figures that cannot be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from outrider.governor.ladder import Rung
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading

MAX_NAME = 64

Record = TypeVar("Record", Credit, StepReading, StartProbe, Snapshot, Rung)


def to_plain(record: Any, without: tuple[str, ...] = ()) -> dict[str, object]:
    """A record's fields that are not as they are by default."""
    found: dict[str, object] = {}
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name in without or (one.default is not MISSING and value == one.default):
            continue
        if isinstance(value, tuple):
            value = [list(item) if isinstance(item, tuple) else to_plain(item) for item in value]
        found[one.name] = value
    return found


def from_plain(kind: type[Record], value: object, **more: object) -> Record:
    """A record from plain values; `more` are members that were read already."""
    given = members(value, tuple(one.name for one in fields(kind) if one.name not in more))
    needed = (one.name for one in fields(kind) if one.name not in more and one.default is MISSING)
    if missing := next((name for name in needed if name not in given), None):
        raise ValueError(f"{missing} is missing")
    hints = get_type_hints(kind)
    make: Any = kind
    made: Record = make(
        **{name: _typed(item, str(hints[name]), name) for name, item in given.items()}, **more
    )
    return made


def rung_from(value: object) -> Rung:
    """A rung of a ladder; its break-even lengths are [running requests, AL] pairs."""
    given = dict(members(value, tuple(one.name for one in fields(Rung))))
    pairs = []
    for pair in items(given.pop("break_even", []), "break_even", 100):
        batch_and_length = items(pair, "a pair of batch and length", 2)
        if len(batch_and_length) != 2:
            raise ValueError("break_even: pairs of [running requests, AL]")
        pairs.append(tuple(number(one, "break_even") for one in batch_and_length))
    return from_plain(Rung, given, break_even=tuple(pairs))


def parse(line: bytes) -> object:
    """The value of a line of JSON."""
    try:
        return json.loads(line, parse_constant=_no_number, object_pairs_hook=_no_repeated_key)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def line_of(value: object) -> str:
    """A line of JSON, its end included."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"


def members(value: object, known: tuple[str, ...]) -> Mapping[str, object]:
    """An object that has no other keys than these."""
    if not isinstance(value, dict):
        raise ValueError("an object was expected")
    if unknown := next((key for key in value if key not in known), None):
        raise ValueError(f"{unknown[:MAX_NAME]!r} is no key here: {', '.join(known)}")
    return value


def items(value: object, name: str, longest: int) -> list[Any]:
    """A list that is not longer."""
    if not isinstance(value, list) or len(value) > longest:
        raise ValueError(f"{name}: a list of at most {longest}")
    return value


def text(value: object, name: str, longest: int = MAX_NAME) -> str:
    """A short printable text."""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise ValueError(f"{name}: a text of at most {longest} printable characters")
    return value


def number(value: object, name: str) -> int | float:
    """A finite number of a sane size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is a number")
    if not -1e15 <= value <= 1e15 or not math.isfinite(value):
        raise ValueError(f"{name} is out of bounds")
    return value


def _typed(value: object, hint: str, name: str) -> object:
    if value is None and "None" in hint:
        return None
    if "bool" in hint:
        if not isinstance(value, bool):
            raise ValueError(f"{name} is true or false")
        return value
    if "str" in hint:
        return text(value, name)
    found = number(value, name)
    if "float" in hint:
        return float(found)
    if found != int(found):
        raise ValueError(f"{name} is a whole number, not {found!r}")
    return int(found)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _no_repeated_key(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands there twice")
    return value

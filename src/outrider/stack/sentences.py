"""pydantic's error records -> sentences a person understands, with the nearest known key where one is unknown.

Source: error types of pydantic-core 2 (`pydantic_core.core_schema.ErrorType`); a type that is not listed here keeps pydantic's
own message.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from outrider.stack.models import API_VERSION
from outrider.stack.yaml_source import Path, dotted

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a block of keys",
    "model_type": "a block of keys",
    "model_attributes_type": "a block of keys",
}
_NOUNS = {dict: "a block of keys", list: "a list", type(None): "nothing", bool: "true or false", str: "text"}


def sentence(error: ErrorDetails, root: type[BaseModel]) -> tuple[str, str]:
    """(message, hint) for one pydantic error of model `root`."""
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    path = error["loc"]
    if path == ("apiVersion",):
        return _api_version(kind, given)
    if kind == "extra_forbidden":
        return _unknown_key(path, root)
    if kind == "missing":
        return "is missing", f"Add `{dotted(path)}`."
    if kind == "literal_error":
        return _one_of(str(context["expected"]), given)
    if special := _special(path, kind, given):
        return special
    if kind in _KINDS:
        return _wrong_kind(_KINDS[kind], given)
    return _out_of_bounds(kind, context, given) or error["msg"], ""


def _special(path: Path, kind: str, given: object) -> tuple[str, str] | None:
    """Mistakes that are made often enough to have their own words."""
    if path[:2] == ("serve", "keys") and len(path) <= 3 and kind in _KINDS:
        # what stands there may be the key itself, so it is not repeated
        hint = "Keys themselves do not stand here: `outrider key new` prints the lines that do."
        return f"must be {_KINDS[kind]}", hint
    if path[-1] == "sha256" and kind == "string_type":
        hint = "Put quotes around its 64 digits: without letters YAML reads them as a number."
        return "must be text, not a number", hint
    if path[-1] == "memory_fraction" and kind == "less_than_equal" and isinstance(given, int | float):
        hint = f"A share, not percent: {given / 100:g}." if given <= 100 else "A share: 0.9 is 90 %."
        return f"must be at most 1, not {_shown(given)}", hint
    return None


def _api_version(kind: str, given: object) -> tuple[str, str]:
    if kind == "missing":
        return (
            "is missing: it says which form of the file this is",
            f"Begin the file with `apiVersion: {API_VERSION}`.",
        )
    return (
        f"{_shown(given)} is not known; this version of Outrider reads {API_VERSION}",
        f"Write `apiVersion: {API_VERSION}`.",
    )


def _unknown_key(path: Path, root: type[BaseModel]) -> tuple[str, str]:
    known = known_keys(root, path[:-1])
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if near:
        return "is not a known key", f"Did you mean `{near[0]}`?"
    elsewhere = _keys_elsewhere(root).get(str(path[-1]))
    if elsewhere:
        return "is not known here", f"It belongs to `{elsewhere}`."
    return "is not a known key", f"Known here: {', '.join(known)}." if known else ""


def _one_of(expected: str, given: object) -> tuple[str, str]:
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(str(given), names, n=1, cutoff=0.6)
    hint = f"Did you mean `{near[0]}`?" if near else ""
    if isinstance(given, bool):
        hint = "YAML reads a bare yes, no, on, off as true or false: put quotes around it."
    choices = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    return f"must be {choices}; not {_shown(given)}", hint


def _wrong_kind(wanted: str, given: object) -> tuple[str, str]:
    hint = ""
    if wanted == "text" and isinstance(given, bool):
        hint = "YAML reads a bare yes, no, on, off as true or false: put quotes around it."
    elif wanted == "text" and isinstance(given, int | float):
        hint = f'Put quotes around it: "{given}".'
    elif wanted.endswith("number") and isinstance(given, str):
        hint = "Take the quotes, unit or exponent away: YAML reads this as text."
    return f"must be {wanted}, not {_shown(given)}", hint


def _out_of_bounds(kind: str, context: Mapping[str, Any], given: object) -> str:
    match kind:
        case "greater_than":
            return f"must be more than {context['gt']:g}, not {_shown(given)}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}, not {_shown(given)}"
        case "less_than":
            return f"must be less than {context['lt']:g}, not {_shown(given)}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}, not {_shown(given)}"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case "string_pattern_mismatch":
            return f"{_shown(given)} does not have the right form ({context['pattern']})"
        case "too_short" | "too_long":
            wanted = context.get("min_length", context.get("max_length"))
            return f"must have exactly {wanted} entries, not {context['actual_length']}"
    return ""


def _shown(value: object) -> str:
    """A value as an error message may show it: short, containers only by kind."""
    if isinstance(value, dict | list | type(None)):
        return _NOUNS[type(value)]
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…'"


def known_keys(root: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys that may stand under `path`, as the file writes them; empty where any may."""
    model: type[BaseModel] | None = root
    for part in path:
        if model is None:
            return []
        if isinstance(part, int):
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        model = _model_in(fields[part].annotation) if part in fields else None
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _keys_elsewhere(root: type[BaseModel]) -> dict[str, str]:
    """Key -> the one top-level section that has it."""
    found: dict[str, list[str]] = {}
    for section, field in root.model_fields.items():
        model = _model_in(field.annotation)
        for key in model.model_fields if model else ():
            found.setdefault(key, []).append(section)
    return {key: sections[0] for key, sections in found.items() if len(sections) == 1}


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside ``X``, ``X | None`` or ``list[X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (types.UnionType, typing.Union, list, typing.Annotated):
        return next((model for arg in typing.get_args(annotation) if (model := _model_in(arg))), None)
    return None

"""The stack's JSON Schema and its reference page, made from the models' own field descriptions.

``python -m outrider.stack.schema [DOCS_FOLDER]`` writes both files; a test fails when they are stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from outrider.stack.models import API_VERSION, Stack

SCHEMA_ID = f"urn:outrider:stack:{API_VERSION.partition('/')[2]}"
Schema = dict[str, object]

INTRODUCTION = f"""# The stack file

One YAML file says what to serve, with which draft, on what, for whom. `outrider check FILE` reports everything that is wrong
with it at once, each with its line and column. Unknown keys are refused. Relative paths are meant from the file's folder.

```yaml
apiVersion: {API_VERSION}
target:
  model: meta-llama/Llama-3.1-8B-Instruct
draft:
  method: eagle3
  model: RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3
```

Editors check the file while you type with [stack.schema.json](stack.schema.json). More examples: `examples/`.

This page is made from `outrider/stack/models.py` by `python -m outrider.stack.schema`.
"""


def json_schema() -> Schema:
    """JSON Schema (draft 2020-12) of the stack file."""
    schema = Stack.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def markdown() -> str:
    """The reference page: one table a section."""
    schema = json_schema()
    definitions = _block(schema["$defs"])
    parts = [INTRODUCTION, "## The file\n\n" + _table(schema, definitions)]
    for path, name, given in _sections(schema, definitions, ""):
        section = _with_defaults(_block(definitions[name]), given)
        text = str(section.get("description", "")).partition("\n")[0]
        parts.append(f"## `{path}`\n\n{text}\n\n{_table(section, definitions)}")
    return "\n".join(parts)


def _with_defaults(section: Schema, given: Schema) -> Schema:
    """`section` with the defaults that the key which holds it gives, where they are not the block's own."""
    fields = _block(section["properties"])
    changed = {key: {**_block(field), "default": given[key]} for key, field in fields.items() if key in given}
    return {**section, "properties": {**fields, **changed}}


def _sections(schema: Schema, definitions: Schema, above: str) -> Iterator[tuple[str, str, Schema]]:
    """(dotted path, definition name, the key's own default) of every block of keys, outer first."""
    for key, field in _block(schema["properties"]).items():
        name = _definition(_block(field))
        if name:
            path = f"{above}{key}{'[]' if _block(field).get('type') == 'array' else ''}"
            yield path, name, _block(_block(field).get("default"))
            yield from _sections(_block(definitions[name]), definitions, f"{path}.")


def _definition(field: Schema) -> str:
    """The definition a field refers to, directly, as an alternative to null, or as list entries; '' if none."""
    for place in (field, *(_list(field.get("anyOf"))), _block(field.get("items", {}))):
        reference = str(_block(place).get("$ref", ""))
        if reference:
            return reference.rpartition("/")[2]
    return ""


def _table(section: Schema, definitions: Schema) -> str:
    required = set(map(str, _list(section.get("required"))))
    rows = ["| key | what may stand there | default | meaning |", "| --- | --- | --- | --- |"]
    for key, raw in _block(section["properties"]).items():
        field = _block(raw)
        default = "**needed**" if key in required else _default(field)
        meaning = str(field.get("description", "")).replace("|", "\\|")
        if not meaning and _definition(field):
            meaning = str(_block(definitions[_definition(field)]).get("description", ""))
        rows.append(f"| `{key}` | {_kind(field)} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def _default(field: Schema) -> str:
    value = field.get("default")
    if isinstance(value, dict):
        return f"`{', '.join(f'{key}: {one}' for key, one in value.items())}`"
    return f"`{json.dumps(value)}`" if value is not None else ""


def _kind(field: Schema) -> str:
    """Words for a field's type and bounds."""
    alternatives = [_block(one) for one in _list(field.get("anyOf"))]
    if alternatives:
        return " or ".join(_kind(one) for one in alternatives if one.get("type") != "null")
    if _definition(field):
        return "list of blocks" if field.get("type") == "array" else "block"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in _list(field["enum"]) if isinstance(value, str))
    if field.get("type") == "array":
        return f"list of {_kind(_block(field.get('items', {})))}"
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true, false",
        "object": "block",
    }
    text = names.get(str(field.get("type")), "anything")
    bounds = [f"{sign} {field[name]}" for name, sign in _BOUNDS if name in field]
    return f"{text}, {', '.join(bounds)}" if bounds else text


_BOUNDS = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))


def _block(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def pages() -> dict[str, str]:
    """File name in docs/ -> content."""
    return {"stack.md": markdown(), "stack.schema.json": json.dumps(json_schema(), indent=2) + "\n"}


def main(arguments: list[str]) -> None:
    """Write the pages into the folder named, docs/ by default."""
    folder = Path(arguments[0] if arguments else "docs")
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

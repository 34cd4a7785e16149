"""The generated reference is true: fresh, complete, and the schema accepts what loading accepts."""

from pathlib import Path

import yaml

from outrider.stack import schema
from outrider.stack.load import built_in_text
from outrider.stack.models import API_VERSION, Stack

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_pages_are_fresh() -> None:
    """docs/ holds what `python -m outrider.stack.schema` writes now."""
    for name, text in schema.pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, (
            f"run python -m outrider.stack.schema: {name} is stale"
        )


def test_every_field_is_described() -> None:
    """No key of any block goes without a meaning in the table."""
    rows = [row for row in schema.markdown().splitlines() if row.startswith("| `")]
    assert len(rows) > 60
    assert [row for row in rows if row.rstrip().endswith("|  |")] == []


def test_schema_names_every_top_level_key() -> None:
    """The schema and the models agree, the built-in stack's keys are in it, and unknown keys are forbidden."""
    made = schema.json_schema()
    properties = made["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {field.alias or name for name, field in Stack.model_fields.items()}
    assert set(yaml.safe_load(built_in_text())) <= set(properties)
    assert made["additionalProperties"] is False


def test_main_writes_into_the_folder_named(tmp_path: Path) -> None:
    """The module's command writes both pages."""
    schema.main([str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stack.md", "stack.schema.json"]


def test_a_nested_block_shows_the_defaults_in_force() -> None:
    """The batch lane's table has its own defaults, not those of the lane type; so has the JSON Schema."""
    limits = Stack.model_validate({"apiVersion": API_VERSION, "target": {"model": "a/b"}}).serve.lanes.batch
    section = schema.markdown().partition("## `serve.lanes.batch`")[2]
    assert f"| `{limits.max_queue}` |" in section
    assert f"| `{limits.queue_timeout_s}` |" in section
    lanes = schema.json_schema()["$defs"]["Lanes"]["properties"]  # type: ignore[index]
    assert lanes["batch"]["default"] == limits.model_dump()


def test_the_draft_that_nobody_wrote_is_on_the_page() -> None:
    """Without `draft:` an n-gram draft is used, and the page says so in its row."""
    row = next(line for line in schema.markdown().splitlines() if line.startswith("| `draft` |"))
    assert "`method: ngram`" in row
    assert "default: ngram" in row

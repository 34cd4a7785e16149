"""Write the pages of docs/ that are made from code, or check that they are up to date (`--check`).

A setting, metric, command or key that is not in the docs cannot exist: the pages are made from the same tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from outrider.cli.main import COMMANDS, cli
from outrider.deploy.dashboard import dashboard_file
from outrider.deploy.render import CHART
from outrider.deploy.slices import slices_file
from outrider.stack import schema
from outrider.telemetry import names
from outrider.train.job import TrainJob

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 100


def metrics_page() -> str:
    """docs/metrics.md"""
    return (
        "# Metrics\n\nServed by the front at `/metrics`, without a key. Made from `outrider/telemetry/names.py`.\n\n"
        + names.markdown()
    )


def cli_page() -> str:
    """docs/cli.md: every command's own --help."""
    root = _context(cli, "outrider", None)
    parts = [
        "# Command line\n\nMade from the commands' own `--help`.\n",
        _block("outrider --help", cli.get_help(root)),
    ]
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None, name
        parts.append(_help(root, name, command))
    return "\n".join(parts)


def _help(parent: click.Context, name: str, command: click.Command) -> str:
    context = _context(command, name, parent)
    text = _block(f"{context.command_path} --help", command.get_help(context))
    if isinstance(command, click.Group):
        text += "".join("\n" + _help(context, sub, child) for sub, child in command.commands.items())
    return text


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """The context a command has when it is run, at a fixed width."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _block(title: str, text: str) -> str:
    return f"## `{title}`\n\n```text\n{text}\n```\n"


def schema_page() -> str:
    """docs/stack.schema.json"""
    return json.dumps(schema.json_schema(), indent=2) + "\n"


def settings_page() -> str:
    """docs/train-settings.md"""
    given = ("method", "target", "target_name", "rows", "out", "work")
    rows = [
        f"| `{name}` | {'' if field.default is None else f'`{field.default}`'} | {field.description} |"
        for name, field in TrainJob.model_fields.items()
        if name not in given
    ]
    head = "# Settings of the trainer\n\n`outrider train --option NAME=VALUE`. Made from `outrider/train/job.py`.\n\n"
    return "\n".join([f"{head}| setting | default | |", "| --- | --- | --- |", *rows]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "stack.schema.json": schema_page,
    "stack.md": schema.markdown,
    "train-settings.md": settings_page,
    str(CHART / "files" / "mig.yaml"): slices_file,
    str(CHART / "files" / "dashboard.json"): dashboard_file,
}


def main() -> int:
    """0, or 1 when `--check` found a stale page."""
    stale = []
    for name, make in PAGES.items():
        page, text = DOCS / name, make()
        if "--check" not in sys.argv:
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"{DOCS / name} does not say what the code says: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

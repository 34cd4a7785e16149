"""`outrider weights`: put a stack's weights in place without serving."""

from __future__ import annotations

from pathlib import Path

import click

from outrider.engines.vllm.adapter import VllmEngine
from outrider.launch.prepare import resolved_draft, resolved_target
from outrider.stack.load import load_stack


@click.command("weights")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
def weights_command(stack: Path | None) -> None:
    """Fetch and convert the weights of STACK (the built-in one without a file), once, into your cache.

    Prints the folders the engine loads; of a hub id, the id: the engine fetches those itself. The cache is
    OUTRIDER_CACHE, else XDG_CACHE_HOME/outrider, else ~/.cache/outrider.
    """
    loaded = load_stack(stack)
    python = VllmEngine().find(loaded).python
    target = resolved_target(loaded, python, _say)
    click.echo(target)
    if draft := resolved_draft(loaded, target, python, _say):
        click.echo(draft)


def _say(line: str) -> None:
    click.echo(line, err=True)

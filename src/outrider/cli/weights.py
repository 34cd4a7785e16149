"""`outrider weights`: put a stack's weights in place without serving."""

from __future__ import annotations

from pathlib import Path

import click

from outrider.engines.choose import engine_of
from outrider.launch.placed import place_pair, read_expected
from outrider.launch.prepare import resolved_draft, resolved_target
from outrider.stack.load import load_stack


@click.command("weights")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Put everything, hub models too, into DIRECTORY/target and DIRECTORY/draft instead.",
)
@click.option(
    "--expect",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="With --into: the pair.json whose content ids every file must have.",
)
def weights_command(stack: Path | None, into: Path | None, expect: Path | None) -> None:
    """Fetch and convert the weights of STACK (the built-in one without a file), once, into your cache.

    Prints the folders the engine loads; of a hub id, the id: the engine fetches those itself. The cache is
    OUTRIDER_CACHE, else XDG_CACHE_HOME/outrider, else ~/.cache/outrider.
    """
    loaded = load_stack(stack)
    if expect and not into:
        raise click.UsageError("--expect goes with --into")
    if into:
        place_pair(loaded, engine_of(loaded), into, read_expected(expect) if expect else None, _say)
        return
    python = engine_of(loaded).find(loaded).python
    target = resolved_target(loaded, python, _say)
    click.echo(target)
    if draft := resolved_draft(loaded, target, python, _say):
        click.echo(draft)


def _say(line: str) -> None:
    click.echo(line, err=True)

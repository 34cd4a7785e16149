"""`outrider weights`: put a stack's weights in place without serving."""

from __future__ import annotations

from pathlib import Path

import click

from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack
from outrider.stack.models import METHODS_WITH_WEIGHTS
from outrider.stack.weights import resolve


@click.command("weights")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
def weights_command(stack: Path | None) -> None:
    """Fetch and convert the weights of STACK (the built-in one without a file), once, into your cache.

    Prints the folders the engine loads; of a hub id, the id: the engine fetches those itself. The cache is
    OUTRIDER_CACHE, else XDG_CACHE_HOME/outrider, else ~/.cache/outrider.
    """
    loaded = load_stack(stack)
    python = VllmEngine().find(loaded).python
    click.echo(resolve(loaded.target.model, sha256=loaded.target.sha256, python=python, progress=_say))
    if loaded.draft.method in METHODS_WITH_WEIGHTS and loaded.draft.model:
        click.echo(resolve(loaded.draft.model, python=python, progress=_say))


def _say(message: str) -> None:
    click.echo(f"[weights] {message}", err=True)

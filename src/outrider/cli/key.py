"""`outrider key new`: a key for a client and the hash for the stack."""

from __future__ import annotations

import hashlib
import secrets

import click


@click.group("key")
def key_command() -> None:
    """Make API keys."""


@key_command.command("new")
@click.option("--name", default="client-1", show_default=True, help="Name shown in logs and metrics.")
def new_command(name: str) -> None:
    """Print a new key and the lines for the stack.

    The key is shown once; the stack's `serve.keys` hold only its hash.
    """
    key = f"or-{secrets.token_urlsafe(32)}"
    click.echo(f"key (shown once; give it to the client): {key}\n")
    click.echo("serve:\n  keys:")
    click.echo(f"    - name: {name}\n      sha256: {hashlib.sha256(key.encode()).hexdigest()}")

"""`outrider pair`: the manifest that says which target and draft belong together: verify it, show it, write one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from outrider.core.errors import Problem, StackError, WeightsError
from outrider.stack.content import part_of
from outrider.stack.digests import Digester
from outrider.stack.find_facts import Found, Source, find_both
from outrider.stack.head_rows import MANIFEST
from outrider.stack.load import Reading, read_stack, usable
from outrider.stack.manifest import PairManifest, as_text, read_manifest, write_manifest
from outrider.stack.manifest_text import page
from outrider.stack.models import Stack
from outrider.stack.pair_manifest import (
    has_pair,
    local_target,
    manifest_beside,
    references,
    shape_of,
    stored_head,
    verify_pair,
)
from outrider.stack.weights import kind_of, local_folder

_STACK = click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
_MANIFEST = click.option(
    "--manifest",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The manifest, where it is not the pair.json beside the head.",
)


@click.group("pair")
def pair_command() -> None:
    """Verify, show or write the manifest of a pair: one target and one draft, by the hashes of both (docs/pair.md)."""


@pair_command.command("verify")
@_STACK
@_MANIFEST
@click.option("--fresh", is_flag=True, help="Hash every file anew, also those that were hashed before.")
def verify_command(stack: Path | None, manifest: Path | None, fresh: bool) -> None:
    """Recompute the hashes of STACK's target and draft, and refuse it if one half changed.

    Exits with 10, and every reason, when the pair is another than the manifest's; with 11 when a half is not here to be hashed.
    """
    reading = read_stack(stack)
    loaded = _with_pair(usable(reading))
    path = manifest or manifest_beside(loaded)
    if path is None:
        raise _no_manifest(loaded, "Name it with --manifest, or write one: outrider pair write.")
    told = read_manifest(path)
    found = find_both(loaded, Source(need_hub=False))
    problems = verify_pair(loaded, told, found, Digester(_say, fresh=fresh))
    if problems:
        count = f"{len(problems)} difference{'s' if len(problems) != 1 else ''}"
        message = f"This stack is not the pair {told.id} of {path.name}: {count}."
        raise StackError(message, tuple(map(reading.located, problems)), hint=_after(problems))
    click.echo(f"pair {told.id}: every hash is the pair's")
    for name, part in (("target", told.target), ("draft", told.draft)):
        click.echo(f"  {name:<8}{part.model}: {_files(len(part.content))}")
    if stored_head(loaded) and local_target(loaded) is None:
        click.echo(
            "  not recomputed: the head with the target's rows (`outrider weights` fetches the target)"
        )
    for problem in found.problems:
        click.echo(reading.located(problem).render(), err=True)


@pair_command.command("show")
@click.argument("place", metavar="STACK|pair.json", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest itself.")
def show_command(place: Path | None, as_json: bool) -> None:
    """Print a manifest so that it can be read: beside the head of a stack, or in a file or folder.

    Nothing is compared: `outrider pair verify` does that.
    """
    manifest = read_manifest(_place_of(place))
    if as_json:
        click.echo(as_text(manifest), nl=False)
        return
    for line in page(manifest):
        click.echo(line)


@pair_command.command("write")
@_STACK
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; default: pair.json beside the head, which a head on a hub does not have.",
)
@click.option(
    "--replace", "replaces", is_flag=True, help="Write over a manifest of another pair that stands there."
)
def write_command(stack: Path | None, out: Path | None, replaces: bool) -> None:
    """Write a manifest for the pair of STACK as it is now.

    It has no served acceptance: that has to be measured. A manifest of the same pair stays as it is, with all that was measured
    of it.
    """
    reading = read_stack(stack)
    loaded = _with_pair(usable(reading))
    path = out or _beside(loaded)
    target, draft = (part_of(one, Digester(_say)) for one in references(loaded))
    manifest = PairManifest(target, draft, loaded.draft.method, draft_length=loaded.draft.length)
    if path.exists() and not replaces:
        before = read_manifest(path)
        if before.id != manifest.id:
            raise StackError(
                f"{path} is of another pair ({before.id}; this one is {manifest.id}).",
                hint="--replace writes over it, with all that was measured; or give another place with --out.",
            )
        click.echo(f"pair {before.id}: {path} is of this pair already")
        return
    found = find_both(loaded, Source())
    if found.target is None or found.draft is None:
        raise _unknown(reading, found)
    write_manifest(replace(manifest, shape=shape_of(found.target, found.draft)), path)
    click.echo(f"pair {manifest.id}: {path}")


def _with_pair(stack: Stack) -> Stack:
    if not has_pair(stack):
        problem = Problem(
            f"method {stack.draft.method} has no weights of its own", "draft.method", "pair-manifest"
        )
        hint = "A pair has a head or a draft model: methods eagle3, p-eagle and draft-model."
        raise StackError("This stack has no pair.", (problem,), hint=hint)
    return stack


def _beside(stack: Stack) -> Path:
    model = str(stack.draft.model)
    if kind_of(model) != "folder":
        where = "on a hub" if kind_of(model) == "hub" else "not in a folder of yours"
        raise StackError(f"the draft {model} is {where}.", hint="Say where to write: --out FILE.")
    return local_folder(model) / MANIFEST


def _place_of(place: Path | None) -> Path:
    """The manifest that is meant: the file itself, the one in a folder, or the one beside a stack's head."""
    if place and place.is_dir():
        return place / MANIFEST
    if place and place.suffix == ".json":
        return place
    stack = _with_pair(usable(read_stack(place)))
    path = manifest_beside(stack)
    if path is None:
        raise _no_manifest(stack, "Name the file, or write one: outrider pair write.")
    return path


def _no_manifest(stack: Stack, hint: str) -> StackError:
    """Raises WeightsError where it is the head that is not there: a built-in one of another name."""
    model = str(stack.draft.model)
    if kind_of(model) == "builtin":
        local_folder(model)
    return StackError(f"there is no {MANIFEST} beside the draft {model}.", hint=hint)


def _unknown(reading: Reading, found: Found) -> StackError | WeightsError:
    problems = tuple(map(reading.located, found.problems))
    if all(one.severity != "error" for one in problems):
        return WeightsError(
            "\n".join(one.render() for one in problems), hint="outrider weights STACK, then again."
        )
    return StackError("What this pair is made of is not known.", problems)


def _after(problems: list[Problem]) -> str:
    sides = {problem.path.partition(".")[0] for problem in problems if problem.rule == "pair-content"}
    if sides == {"target"}:
        return "The target changed, the head did not: take the pair's target, or train and measure the head anew."
    if sides == {"draft"}:
        return "The head changed, the target did not: take the pair's head, or measure this one and write its manifest."
    return "Take both halves of one pair."


def _files(count: int) -> str:
    return f"{count} content id{'s' if count != 1 else ''}"


def _say(message: str) -> None:
    click.echo(f"[pair] {message}", err=True)

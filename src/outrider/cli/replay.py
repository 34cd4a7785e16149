"""`outrider replay`: what a policy would have done over a recorded trace. The one place that reads trace files."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from outrider.cli.replay_text import as_text
from outrider.core.errors import MeasurementError, Problem, StackError
from outrider.governor.policy import Policy
from outrider.governor.replay import Replay, replay
from outrider.governor.settings import PolicySettings, problems_of, settings_from
from outrider.governor.trace import MAX_LINE_BYTES, Trace
from outrider.stack.yaml_source import MAX_BYTES, read_document

LINES = 40
_HINT = "Every setting is described in docs/replay.md."


@click.command("replay")
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="KEY=VALUE|FILE.yaml",
    help="A setting that is not the default, or a YAML file of them (alone or under `policy:`). Again for more; of one key the "
    "last counts.",
)
@click.option(
    "--width", type=click.IntRange(60, 400), help="Columns to print in; default: the terminal's, at most 120."
)
@click.option("--all", "everything", is_flag=True, help=f"Print every switch, not only the last {LINES}.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def replay_command(
    trace: Path, policies: tuple[str, ...], width: int | None, everything: bool, as_json: bool
) -> None:
    """Say what a policy would have done over TRACE, a recording of the governor's snapshots (.jsonl, .jsonl.gz).

    \b
    Examples:
      outrider replay trace.jsonl
      outrider replay trace.jsonl --policy dwell_s=30 --policy sustained_requests=12
      outrider replay trace.jsonl --policy careful.yaml --width 80

    \b
    Prints when which draft would have been in force and why, shares of time,
    switches, alerts; and what that gains or loses against each draft kept all
    the time, modelled: the trace holds only what ran. docs/replay.md has the
    rules, every setting, and the form of a trace.
    """
    settings = _settings(policies)
    found = replay_file(trace, settings)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    columns = width or min(shutil.get_terminal_size((80, 24)).columns, 120)
    click.echo(as_text(found, settings, max(columns, 60), None if everything else LINES))


def replay_file(path: Path, settings: PolicySettings) -> Replay:
    """The replay of a trace file. Raises MeasurementError: it cannot be read, is no trace, or holds no snapshot."""
    try:
        read = Trace(_lines(path), path.name)
        found = replay(Policy(read.ladder, settings), read.looks())
    except (OSError, EOFError) as error:
        raise MeasurementError(
            f"{path.name} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="A trace is a .jsonl file, or one packed with gzip and named .jsonl.gz.",
        ) from error
    if found is None:
        raise MeasurementError(
            f"{path.name} holds no snapshot: nothing was decided in it",
            hint="Record for a few seconds at least.",
        )
    return found.with_left_out(read.left_out)


def _lines(path: Path) -> Iterator[bytes]:
    """The file's lines; of one that is too long only as much as shows that it is."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as source:
        while line := source.readline(MAX_LINE_BYTES + 1):
            yield line


def _settings(policies: tuple[str, ...]) -> PolicySettings:
    """The defaults with what was given. Raises click.BadParameter for an option, StackError for a file."""
    given: dict[str, object] = {}
    for text in policies:
        name, equals, value = text.partition("=")
        if equals and not Path(text).exists():
            one = {name.strip(): _value(value.strip())}
            if wrong := problems_of(one):
                raise click.BadParameter(f"{wrong[0][1]}\n  → {_HINT}", param_hint="--policy")
            given |= one
        else:
            given |= _from_file(Path(text))
    if wrong := problems_of(given):  # each is right alone, but not with the others
        raise click.BadParameter(f"{wrong[0][1]}\n  → {_HINT}", param_hint="--policy")
    return settings_from(given)


def _value(text: str) -> object:
    for known, value in (("true", True), ("false", False)):
        if text.lower() == known:
            return value
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _from_file(path: Path) -> dict[str, object]:
    """The settings of a YAML file. Raises StackError with every problem and its line."""
    try:
        with path.open("rb") as source:
            text = source.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        raise click.BadParameter(f"{words}\n  → KEY=VALUE, or a YAML file.", param_hint="--policy") from None
    document = read_document(text, str(path))
    problems, value = list(document.problems), document.value
    place: tuple[str, ...] = ()
    if isinstance(value, dict) and list(value) == ["policy"]:
        place, value = ("policy",), value["policy"]
    if not problems and not isinstance(value, dict):
        problems.append(
            Problem("a policy is a block of settings", rule="policy", hint=_HINT, file=str(path), line=1)
        )
    if problems or not isinstance(value, dict):
        raise StackError(f"{path} is no policy.", tuple(problems), hint=_HINT)
    wrong = problems_of(value)
    if wrong:
        found = tuple(document.problem((*place, key), words, "policy", _HINT) for key, words in wrong)
        raise StackError(f"{path} is no policy.", found, hint=_HINT)
    return value

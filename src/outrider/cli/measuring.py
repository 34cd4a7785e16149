"""What the commands that measure have in common: their options, progress on one line, the answers at the end."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from outrider.bench.arms import plan_arms
from outrider.bench.document import RunDocument
from outrider.bench.session import Session, Wish, measure, settings_of
from outrider.cli.ranges import Finite
from outrider.core.errors import MeasurementError, StackError
from outrider.engines.base import Engine
from outrider.measure.load import LoadRunner
from outrider.measure.prompt_sets import PromptOptions, load_prompt_set
from outrider.measure.prompts import PromptSet
from outrider.stack.models import Stack

DEFAULT_SETS = ("demo-humaneval", "demo-mt-bench")
STILL_EVERY_S = 30.0
GRID: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
QUICK: Mapping[str, Any] = {"output_tokens": 32, "natural_end": 4, "natural_tokens": 64}


def numbers(text: str, option: str) -> tuple[int, ...]:
    """``1,8,32`` as numbers. Raises click.BadParameter."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise click.BadParameter(
            f"{text!r} is not a list of whole numbers from 1 on, such as 1,8,32", param_hint=option
        )
    return found


def requests_by_concurrency(text: str | None, concurrency: tuple[int, ...] | None) -> dict[int, int]:
    """``200`` for every concurrency that is named, or ``1=8,8=184``. Raises click.BadParameter."""
    if not text:
        return {}
    try:
        if "=" in text:
            pairs = [part.split("=") for part in text.split(",")]
            found = {int(at): int(count) for at, count in pairs}
        else:
            found = dict.fromkeys(concurrency or (0,), int(text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither one number for every load, such as 200, nor one for each, such as 1=16,8=184",
            param_hint="--requests",
        ) from None
    if min(found.values()) < 1:
        raise click.BadParameter("a cell needs at least one request", param_hint="--requests")
    if 0 in found:
        raise click.BadParameter(
            "one number for every load needs the loads beside it: --concurrency 1,8,32; or say 1=16,8=184",
            param_hint="--requests",
        )
    if unknown := sorted(found.keys() - set(concurrency or found)):
        raise click.BadParameter(
            f"{', '.join(map(str, unknown))} at once is not measured; --concurrency says "
            f"{', '.join(map(str, concurrency or ()))}",
            param_hint="--requests",
        )
    return found


def progress_line(now: Callable[[], float] = time.monotonic) -> Callable[[str], None]:
    """A `say` for stderr: a line that ends in a carriage return is overwritten by the next on a terminal.

    Elsewhere (a log file, CI) such a line is said only where nothing was for STILL_EVERY_S: a long run must not look hung.
    """
    width, told = 0, now()

    def say(line: str) -> None:
        nonlocal width, told
        passing = line.endswith("\r")
        if not sys.stderr.isatty():
            if passing and now() - told < STILL_EVERY_S:
                return
            passing = False
        text, told = line.rstrip("\r"), now()
        sys.stderr.write(
            "\r" + text.ljust(width) + ("" if passing else "\n")
            if width
            else text + ("" if passing else "\n")
        )
        width = len(text) if passing else 0
        sys.stderr.flush()

    return say


def load_sets(specs: tuple[str, ...], data: Path | None, limit: int | None) -> list[PromptSet]:
    """The prompt sets, with one line on each. Raises MeasurementError."""
    for spec in specs:
        if Path(spec.rpartition("=")[2]).is_dir():
            raise click.BadParameter(
                f"{spec} is a folder; name a file in it, or say --data {spec.rpartition('=')[2]} and a set's name",
                param_hint="--set",
            )
    options = PromptOptions(data_folder=data)
    found = [load_prompt_set(spec, limit, options) for spec in specs or DEFAULT_SETS]
    for one in found:
        click.echo(f"{one.name}: {one.dropped_words()}", err=True)
        for note in one.notes:
            click.echo(f"  {note}", err=True)
    if len({one.name for one in found}) < len(found):
        raise MeasurementError("two prompt sets have the same name", hint="Name each: --set LABEL=FILE.")
    return found


def show(document: RunDocument, file: Path, report: str = "report") -> None:
    """The answers, and where the run's `file` and its reports lie."""
    for answer in document.answers:
        click.echo(f"• {answer.text}")
    click.echo(
        f"\nreport: {file.with_name(f'{report}.html')}\n        {file.with_name(f'{report}.md')}\ndata:   {file}"
    )


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "arm": click.option(
        "--arm",
        "arms",
        multiple=True,
        metavar="METHOD[:k=3+5,model=…]",
        help="One more draft to compare; again for more. The baseline and the stack's own draft are always there.",
    ),
    "set": click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="NAME | LABEL=FILE",
        help="Prompt set: humaneval, gsm8k, mt-bench, spec-bench/rag, your own .jsonl, … (docs/prompt-sets.md); default: two "
        "small ones that come with Outrider.",
    ),
    "data": click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        envvar="OUTRIDER_DATA",
        help="Folder where named prompt sets lie.",
    ),
    "limit": click.option(
        "--limit", type=click.IntRange(1), help="Prompts of each set, an even choice; default: all."
    ),
    "concurrency": click.option(
        "--concurrency", metavar="1,8,32", help="Requests at once; default: 1,8,32, on a CPU 1,4."
    ),
    "grid": click.option("--grid", is_flag=True, help="Concurrency 1, 2, 4 … 128: for the crossover."),
    "trials": click.option(
        "--trials",
        type=click.IntRange(1, 99),
        help="Times each cell is measured; default: 3. Intervals need 2, better 3.",
    ),
    "requests": click.option(
        "--requests",
        metavar="N | 1=16,8=184",
        help="Counted requests of a cell; default: enough for a p99 from 8 at once up; on a CPU 12 or more.",
    ),
    "warmup": click.option(
        "--warmup",
        type=click.IntRange(1),
        help="Uncounted requests before each cell, after the warm-up waves; default: as many as run at once, 2 or more.",
    ),
    "output_tokens": click.option(
        "--output-tokens",
        type=click.IntRange(2),
        help="Length of every answer in the throughput table; default: 256, on a CPU 64.",
    ),
    "temperature": click.option(
        "--temperature",
        type=Finite(0, 2),
        default=0.0,
        show_default=True,
        help="Of the throughput table.",
    ),
    "natural_end": click.option(
        "--natural-end",
        type=click.IntRange(0),
        help="Prompts of each set that are answered greedily to their natural end, for the acceptance table; default: 16, 0 for "
        "none.",
    ),
    "natural_tokens": click.option(
        "--natural-tokens",
        type=click.IntRange(8),
        help="Longest such answer; default: 1024, on a CPU 128.",
    ),
    "no_interleave": click.option(
        "--no-interleave",
        is_flag=True,
        help="Arm by arm instead of A B B A: fewer starts, but drift is not cancelled.",
    ),
    "prefix_cache": click.option("--prefix-cache", is_flag=True, help="Leave the engine's prefix cache on."),
    "no_report": click.option(
        "--no-report",
        is_flag=True,
        help="Only measure; write the report later or on another machine: outrider bench --report-only --out DIR.",
    ),
    "quick": click.option(
        "--quick",
        is_flag=True,
        help="A first look: 32-token answers, 4 prompts of each set to their natural end of at most 64 tokens; the trials stay.",
    ),
}


def measure_options(
    folder: str, *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of every command that measures; the command takes them as ``**given`` for `wish_from`.

    `folder`: the default of --out, as help says it. `without`: names of those that mean nothing to this command.
    """
    out = click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"The run's folder; default: {folder}. A run that was interrupted goes on in it.",
    )
    kept = [option for name, option in OPTIONS.items() if name not in without]
    return lambda command: reduce(lambda wrapped, option: option(wrapped), reversed([out, *kept]), command)


def wish_from(given: Mapping[str, Any]) -> Wish:
    """The options as a wish. Raises click.BadParameter."""
    short = QUICK if given["quick"] else {}
    if given["grid"] and given["concurrency"]:
        raise click.UsageError(
            "--grid and --concurrency both say which loads are measured: give one of them."
        )
    at = GRID if given["grid"] else None
    if given["concurrency"]:
        at = numbers(given["concurrency"], "--concurrency")
    natural_end = given.get("natural_end", 0)
    return Wish(
        arms=given["arms"],
        concurrency=at,
        trials=given["trials"] or 3,
        output_tokens=given["output_tokens"] or short.get("output_tokens"),
        requests=requests_by_concurrency(given["requests"], at),
        warmup=given["warmup"] or 0,
        temperature=given["temperature"],
        natural_end=natural_end if natural_end is not None else short.get("natural_end", 16),
        natural_tokens=given.get("natural_tokens") or short.get("natural_tokens"),
        interleaved=not given["no_interleave"],
        prefix_cache=given["prefix_cache"],
    )


@contextmanager
def as_option(option: str) -> Iterator[None]:
    """What is refused inside is a mistake in this option: exit 2, with the same hint. Raises click.BadParameter."""
    try:
        yield
    except (MeasurementError, StackError) as error:
        words = str(error).removeprefix(f"{option} ")
        raise click.BadParameter(
            f"{words}\n  → {error.hint}" if error.hint else words, param_hint=option
        ) from None


def checked(wish: Wish, stack: Stack, engine: Engine) -> Wish:
    """The wish, once its arms and loads can be had of this stack and engine: before any prompt set is read.

    Raises click.BadParameter for an option that cannot be, EngineError.
    """
    if wish.arms:
        with as_option("--arm"):
            plan_arms(stack, wish.arms, 1)
    with as_option("--requests"):
        settings_of(wish, engine.find(stack).device)
    return wish


def refuse_other_options(context: click.Context, kept: Collection[str], why: str) -> None:
    """Raises click.UsageError if an option was typed that would be ignored; those in `kept` are not."""
    ignored = [
        parameter.opts[0]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and parameter.name not in kept
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if ignored:
        raise click.UsageError(f"{why}: {', '.join(ignored)} would be ignored.")


def run_session(session: Session, folder: Path, runner: LoadRunner, *, report: bool) -> None:
    """Measure into the folder and show the answers."""
    say = progress_line()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # as Ctrl-C: what is done is written, nothing is left behind
    cells = sum(len(block.cells) for block in session.plan.blocks())
    say(f"{len(session.plan.arms)} arms, {cells} cells into {folder}")
    found = measure(session, folder, runner, say, report=report)
    if found is not None:
        show(found, folder / "run.json")
    else:
        say(f"measured; now `outrider bench --report-only --out {folder}`")

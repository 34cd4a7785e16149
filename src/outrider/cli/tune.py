"""`outrider tune`: the measured map turned into a draft length by batch size, its edges measured, written into the stack."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from outrider.bench.compare import read_run
from outrider.bench.document import PromptSetInfo, RunDocument
from outrider.bench.schedule import accept, edges, measured_at
from outrider.bench.session import Wish, measure, prepared
from outrider.bench.tune import INTERACTIVE_LOAD, Proposal, draft_block, proposal, refused_words, with_draft
from outrider.cli.measuring import (
    DEFAULT_SETS,
    checked,
    load_sets,
    measure_options,
    progress_line,
    refuse_other_options,
    requests_by_concurrency,
    wish_from,
)
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole
from outrider.engines.choose import startable
from outrider.measure.aiperf import AiperfRunner
from outrider.stack.load import load_stack, load_stack_text
from outrider.stack.models import Stack

LENGTHS = "k=2+3+5"
EVERY = 1
# Options that say something beside --from; the others are the run's.
OF_FROM = (
    "out",
    "run",
    "interactive_load",
    "dry_run",
    "no_edges",
    "sets",
    "data",
    "limit",
    "trials",
    "requests",
    "warmup",
    "output_tokens",
    "temperature",
    "no_interleave",
    "prefix_cache",
    "quick",
)


@click.command("tune")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False))
@measure_options("tune-NAME", without=("natural_end", "natural_tokens", "no_report"))
@click.option(
    "--from",
    "run",
    type=click.Path(path_type=Path, exists=True),
    help="A bench run (folder or run.json) to take the map from, instead of measuring it. The edges are measured on its prompt "
    "sets and with its settings: name the same --set.",
)
@click.option(
    "--interactive-load",
    type=click.IntRange(1),
    default=INTERACTIVE_LOAD,
    show_default=True,
    help="Requests at once up to which the interactive lane is judged.",
)
@click.option(
    "--dry-run", is_flag=True, help="Measure all of it, the edges too, and print; the file stays as it is."
)
@click.option(
    "--no-edges",
    is_flag=True,
    help="Print what the map says and stop: the edges are not measured, nothing is written.",
)
def tune_command(
    stack: Path,
    out: Path | None,
    run: Path | None,
    interactive_load: int,
    dry_run: bool,
    no_edges: bool,
    **given: Any,
) -> None:
    """Measure which draft length pays at which batch, and write it into STACK.

    \b
    1. measures the stack's draft at K = 2, 3, 5 (or what --arm names) over the
       loads, or reads a run: --from DIR
    2. proposes a method and [first, last, K] rows: off wherever no length's 95 %
       interval lies above no draft, and above the largest load; prints the change
    3. measures both sides of every edge with those rows in force, on the same
       prompts: none may be slower than no draft
    4. writes the `draft` block of STACK, with the reasons as comments above it.
       Everything else stays, comments too, but for those inside a block in braces

    \b
    Examples:
      outrider tune my.yaml --grid --set humaneval --set mine.jsonl
      outrider tune my.yaml --from bench-my --no-edges
    """
    say = progress_line()
    loaded, text = load_stack(stack), stack.read_text(encoding="utf-8")
    folder = out or Path(f"tune-{loaded.name or loaded.served_name}")
    if (folder / "plan.json").exists():
        raise click.BadParameter(f"{folder} holds a bench run; name another folder", param_hint="--out")
    if run is not None:
        refuse_other_options(
            click.get_current_context(), OF_FROM, "--from takes loads and drafts from the run"
        )
    wish = wish_from(given | ({"requests": None} if run else {}))
    document = read_run(run) if run is not None else None
    requests = requests_at(given["requests"], document) if document else None
    if document is None or not no_edges:  # to print what a run says, no engine is needed
        checked(wish, loaded, startable(loaded))
    bench = None
    if document is None:
        bench = _Bench(loaded, given, folder, say)
        arms = wish.arms or ((f"{loaded.draft.method}:{LENGTHS}",) if loaded.draft.method != "none" else ())
        document = bench.run("map", loaded, replace(wish, arms=arms))
    elif not no_edges:
        bench = _Bench(loaded, given | {"sets": sets_of(document, given["sets"])}, folder, say)
        bench.refuse_other_prompts(document)
        wish = like(wish, document, given)
    found = proposal(document, loaded.engine.max_running_requests, interactive_load)
    for line in found.reasons:
        click.echo(line)
    block = draft_block((yaml.safe_load(text) or {}).get("draft") or {"method": "ngram"}, found)
    changed = with_draft(text, block, [f"tuned: {line}" for line in found.reasons])
    tuned = load_stack_text(changed, stack.name)
    click.echo(
        "".join(difflib.unified_diff(text.splitlines(True), changed.splitlines(True), str(stack), str(stack)))
    )
    if no_edges or bench is None:
        click.echo("--no-edges: a proposal; its edges are not measured, the file is as it was")
        return
    if found.rows:
        tuned_stack = loaded.model_copy(update={"draft": _placed(tuned, loaded)})
        bench.accept(tuned_stack, found, wish, requests or requests_at(given["requests"], document))
    if dry_run:
        click.echo("--dry-run: the file is as it was")
        return
    put_stack(stack, changed)
    click.echo(f"written into {stack}")


def put_stack(stack: Path, changed: str) -> None:
    """Put the new text in the file's place, whole or not at all. Raises MeasurementError."""
    put_whole(
        stack,
        changed,
        lambda error: MeasurementError(
            f"{stack} cannot be written: {error.strerror or error}; it is as it was",
            hint="Free space, or see whose file it is, and repeat the command: what was measured is kept.",
        ),
    )


def sets_of(document: RunDocument, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The prompt sets to measure the edges of a run's map on: its own. Raises click.UsageError where they must be named."""
    names = tuple(one.name for one in document.prompt_sets)
    if asked or set(names) <= set(DEFAULT_SETS):
        return asked or names
    raise click.UsageError(
        f"--from: the edges are measured on the run's own prompts ({', '.join(names)}): name them again with --set, or say "
        "--no-edges to see the proposal alone."
    )


def like(wish: Wish, document: RunDocument, given: dict[str, Any]) -> Wish:
    """The wish with the run's settings wherever no option says otherwise."""
    settings = document.settings
    typed = click.get_current_context().get_parameter_source("temperature") is ParameterSource.COMMANDLINE
    return replace(
        wish,
        trials=given["trials"] or settings.trials,
        output_tokens=wish.output_tokens or settings.output_tokens,
        warmup=wish.warmup or settings.warmup,
        temperature=wish.temperature if typed else settings.temperature,
    )


def requests_at(asked: str | None, document: RunDocument) -> Callable[[int], int | None]:
    """Counted requests at an edge: those asked for, else the map's at that load or the next larger; None: the default."""
    at_each = requests_by_concurrency(asked, (EVERY,)) if asked and "=" not in asked else {}
    counts = requests_by_concurrency(asked, None) if asked and "=" in asked else document.settings.requests

    def at(load: int) -> int | None:
        above = [one for one in sorted(counts) if one >= load]
        return at_each.get(EVERY) or (counts[above[0]] if above else None)

    return at


def _placed(tuned: Stack, loaded: Stack) -> Any:
    """The tuned draft with its model where the stack's folder has it."""
    if tuned.draft.method != loaded.draft.method:
        return tuned.draft
    return tuned.draft.model_copy(update={"model": loaded.draft.model})


def _counts(sets: Sequence[PromptSetInfo]) -> str:
    return ", ".join(f"{one.name} ({one.prompts} prompts)" for one in sets)


class _Bench:
    """The benches of one tuning, each in a folder of its own, so that an interrupted one goes on."""

    def __init__(self, stack: Stack, given: dict[str, Any], folder: Path, say: Any) -> None:
        self._engine = startable(stack)
        self._runner = AiperfRunner(self._engine.request_acceptance)
        self._sets = load_sets(given["sets"], given["data"], given["limit"])
        self._folder, self._say = folder, say

    def run(self, name: str, stack: Stack, wish: Wish) -> RunDocument:
        """One bench into `folder/name`."""
        session = prepared(stack, self._engine, self._sets, wish, self._say)
        found = measure(session, self._folder / name, self._runner, self._say)
        assert found is not None  # noqa: S101  (a report was asked for)
        return found

    def refuse_other_prompts(self, document: RunDocument) -> None:
        """Raises click.BadParameter if these are not the prompts of the run: its map says nothing of others."""
        run = {one.sha256: one.name for one in document.prompt_sets}
        mine = {one.prompts_sha256: one.name for one in self._sets}
        if run.keys() != mine.keys():
            raise click.BadParameter(
                f"these are not the prompts of the run: it has {_counts(document.prompt_sets)}, here are "
                f"{', '.join(f'{one.name} ({len(one.prompts)} prompts)' for one in self._sets)}\n"
                "  → Name the same files, with the --limit of the run; or measure the map anew, without --from.",
                param_hint="--set",
            )

    def accept(
        self, tuned: Stack, found: Proposal, wish: Wish, requests: Callable[[int], int | None]
    ) -> None:
        """Measure the edges of the proposal with it in force. Raises MeasurementError where it must not be written."""
        largest = tuned.engine.max_running_requests
        at = tuple(edges(found.rows, largest))
        self._say(
            f"measuring the edges of {[list(row) for row in found.rows]}: {', '.join(map(str, at))} at once"
        )
        counts = {load: count for load in at if (count := requests(load))}
        document = self.run("edges", tuned, replace(wish, arms=(), concurrency=at, requests=counts))
        arm = next(one.name for one in document.arms if one.method != "none")
        refused = accept(found.rows, measured_at(document, arm), largest)
        if refused:
            raise MeasurementError(
                f"the schedule is not written: {refused_words(refused)}",
                hint="Measure more trials, or fewer lengths: --trials 5, --arm METHOD:k=2.",
            )

"""`outrider tune`: the measured map turned into a draft length by batch size, its edges measured, written into the stack."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml

from outrider.bench.compare import read_run
from outrider.bench.document import RunDocument
from outrider.bench.schedule import accept, edges, measured_at
from outrider.bench.session import Wish, measure, prepared
from outrider.bench.tune import INTERACTIVE_LOAD, Proposal, draft_block, proposal, refused_words, with_draft
from outrider.cli.measuring import load_sets, measure_options, progress_line, wish_from
from outrider.core.errors import MeasurementError
from outrider.engines.vllm.adapter import VllmEngine
from outrider.measure.aiperf import AiperfRunner
from outrider.stack.load import load_stack, load_stack_text
from outrider.stack.models import Stack

LENGTHS = "k=2+3+5"


@click.command("tune")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@measure_options
@click.option(
    "--from",
    "run",
    type=click.Path(path_type=Path, exists=True),
    help="A bench run (folder or run.json) to take the map from, instead of measuring it.",
)
@click.option(
    "--interactive-load",
    type=click.IntRange(1),
    default=INTERACTIVE_LOAD,
    show_default=True,
    help="Requests at once up to which the interactive lane is judged.",
)
@click.option("--dry-run", is_flag=True, help="Measure and print, but leave the file as it is.")
def tune_command(
    stack: Path, out: Path | None, run: Path | None, interactive_load: int, dry_run: bool, **given: Any
) -> None:
    """Measure which draft length pays at which batch, and write it into STACK.

    \b
    1. measures the stack's draft at K = 2, 3, 5 (or what --arm names) over the loads, or reads a run: --from DIR
    2. proposes a method and [first, last, K] rows; where no length surely pays, the draft is off
    3. measures both sides of every edge with those rows in force: none may be slower than no draft
    4. writes the `draft` block of STACK, with the reason as a comment; everything else in the file stays

    \b
    Examples:
      outrider tune my.yaml --grid --set humaneval --set mine.jsonl
      outrider tune my.yaml --from bench-my --dry-run
    """
    say = progress_line()
    loaded, text = load_stack(stack), stack.read_text(encoding="utf-8")
    folder = out or Path(f"tune-{loaded.name or loaded.served_name}")
    wish = wish_from(given)
    bench = _Bench(loaded, given, folder, say)
    if run is not None:
        document = read_run(run)
    else:
        arms = wish.arms or ((f"{loaded.draft.method}:{LENGTHS}",) if loaded.draft.method != "none" else ())
        document = bench.run("map", loaded, replace(wish, arms=arms, natural_end=0))
    found = proposal(document, loaded.engine.max_running_requests, interactive_load)
    for line in found.reasons:
        click.echo(line)
    block = draft_block((yaml.safe_load(text) or {}).get("draft") or {"method": "ngram"}, found)
    changed = with_draft(text, block, [f"tuned: {line}" for line in found.reasons])
    tuned = load_stack_text(changed, stack.name)
    if found.rows:
        bench.accept(loaded.model_copy(update={"draft": _placed(tuned, loaded)}), found, wish)
    click.echo(
        "".join(difflib.unified_diff(text.splitlines(True), changed.splitlines(True), str(stack), str(stack)))
    )
    if dry_run:
        click.echo("--dry-run: the file is as it was")
        return
    scratch = stack.with_name(f".{stack.name}.new")
    try:
        scratch.write_text(changed, encoding="utf-8")
        scratch.replace(stack)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise MeasurementError(
            f"{stack} cannot be written: {error.strerror or error}; it is as it was",
            hint="Free space, or see whose file it is, and repeat the command: what was measured is kept.",
        ) from error
    click.echo(f"written into {stack}")


def _placed(tuned: Stack, loaded: Stack) -> Any:
    """The tuned draft with its model where the stack's folder has it."""
    if tuned.draft.method != loaded.draft.method:
        return tuned.draft
    return tuned.draft.model_copy(update={"model": loaded.draft.model})


class _Bench:
    """The benches of one tuning, each in a folder of its own, so that an interrupted one goes on."""

    def __init__(self, stack: Stack, given: dict[str, Any], folder: Path, say: Any) -> None:
        self._engine = VllmEngine()
        self._runner = AiperfRunner(self._engine.request_acceptance)
        self._sets = load_sets(given["sets"], given["data"], given["limit"])
        self._folder, self._say = folder, say

    def run(self, name: str, stack: Stack, wish: Wish) -> RunDocument:
        """One bench into `folder/name`."""
        session = prepared(stack, self._engine, self._sets, wish, self._say)
        found = measure(session, self._folder / name, self._runner, self._say)
        assert found is not None  # noqa: S101  (a report was asked for)
        return found

    def accept(self, tuned: Stack, found: Proposal, wish: Wish) -> None:
        """Measure the edges of the proposal with it in force. Raises MeasurementError where it must not be written."""
        largest = tuned.engine.max_running_requests
        at = tuple(edges(found.rows, largest))
        self._say(
            f"measuring the edges of {[list(row) for row in found.rows]}: {', '.join(map(str, at))} at once"
        )
        document = self.run(
            "edges", tuned, replace(wish, arms=(), concurrency=at, requests={}, natural_end=0)
        )
        arm = next(one.name for one in document.arms if one.method != "none")
        refused = accept(found.rows, measured_at(document, arm), largest)
        if refused:
            raise MeasurementError(
                f"the schedule is not written: {refused_words(refused)}",
                hint="Measure more trials, or fewer lengths: --trials 5, --arm METHOD:k=2.",
            )

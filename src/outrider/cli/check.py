"""`outrider check`: every reason why a stack cannot work or does not fit, at once, before any weights are loaded."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from outrider.core.errors import EngineError, EngineNotInstalled, Problem, StackError
from outrider.engines.base import Install
from outrider.stack.accelerators import unknown_accelerator
from outrider.stack.find_facts import UNREACHABLE, Source
from outrider.stack.load import BUILT_IN, Reading, read_stack
from outrider.stack.memory import GB, Budget
from outrider.stack.models import Stack
from outrider.stack.preflight import Examination, examine, in_order

ANOTHER_DEVICE = "engine-device"  # the rule of `engines.vllm.judge`


def _known_accelerator(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name and (unknown := unknown_accelerator(name)):
        raise click.BadParameter(f"{unknown[0]}. {unknown[1]}")
    return name


@click.command("check")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--accelerator",
    metavar="NAME",
    callback=_known_accelerator,
    help="Reckon for this one instead of the stack's: h200, h100-mig-3g.40gb, l40s …",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--offline",
    is_flag=True,
    help="Ask no hub: judge by what is on this machine, and say what was not judged.",
)
@click.option(
    "--facts",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with models' config.json, as ORG/NAME/config.json, NAME/config.json or NAME.config.json; it wins over "
    "the hub.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print notes, and MIG slices in the overview, too.")
def check_command(
    stack: Path | None,
    accelerator: str | None,
    as_json: bool,
    offline: bool,
    facts: Path | None,
    verbose: bool,
) -> None:
    """Say whether STACK can work and fits, before a byte of weights is loaded; without STACK the built-in one.

    \b
    pair     vocabulary and tokenizer, widths, tapped layers, context, head defects
    memory   weights + draft + KV cache against an accelerator, with the arithmetic
    engine   what the installed version can do, if one is installed here

    Facts come from config.json and safetensors headers: local, or from the hub (HF_ENDPOINT, HF_TOKEN,
    HF_HUB_OFFLINE). Exits with 10 when the stack is refused, with 11 when a hub that does not answer leaves it unjudged.
    """
    name = str(stack) if stack else f"the built-in stack ({BUILT_IN})"
    try:
        reading = read_stack(stack)
    except StackError as error:
        found = Examination(error.problems)
    else:
        found = _examine(reading, accelerator, Source(facts, offline))
    _report(name, found, as_json, verbose)
    if found.refused or found.unjudged:
        # not click's Exit: outside standalone mode click makes a return value of that
        sys.exit(StackError.exit_code if found.refused else EngineError.exit_code)


def _examine(reading: Reading, accelerator: str | None, source: Source) -> Examination:
    stack = reading.stack
    if stack is None:
        return Examination(reading.problems)
    if accelerator:
        stack = _with_engine(stack, accelerator=accelerator)
    install, engine_side = _judge_engine(stack)
    device = install.device if install else ""
    detected = stack.engine.device == "auto" and stack.engine.accelerator is None and device == "cpu"
    here = _with_engine(stack, device=device) if detected else stack
    on_this_cpu = here.engine.accelerator is None and here.engine.device == device == "cpu"
    found = examine(here, source, bf16=not on_this_cpu or install is None or install.bf16)
    if (
        detected
    ):  # `auto` is the CPU here; the stack may be meant for elsewhere, so that its memory refuses nothing
        softer = (replace(p, severity="warning") if p.rule == "memory" else p for p in found.problems)
        found = replace(found, problems=tuple(softer))
    told = {problem.path for problem in reading.problems}
    engine_side = [one for one in engine_side if one.rule != "extra-arg-refused" or one.path not in told]
    judged = [reading.located(problem) for problem in (*found.problems, *engine_side)]
    return replace(found, problems=in_order((*reading.problems, *judged)))


def _with_engine(stack: Stack, **changes: str) -> Stack:
    return stack.model_copy(update={"engine": stack.engine.model_copy(update=changes)})


def _judge_engine(stack: Stack) -> tuple[Install | None, list[Problem]]:
    """The installed engine, if there is one, and what it says.

    Nothing installed, or another device's build, is no reason to refuse here.
    """
    from outrider.engines.choose import engine_of  # noqa: PLC0415  # only after the stack itself is read

    engine = engine_of(stack)
    try:
        install = engine.find(stack)
    except EngineNotInstalled as error:
        message = f"the engine's side was not judged: {error}"
        return None, [Problem(message, "engine", "engine-not-installed", error.hint, "warning")]
    except EngineError as error:
        return None, [Problem(str(error), "engine", "engine", error.hint)]
    return install, [elsewhere(problem) for problem in engine.judge(stack, install)]


def elsewhere(problem: Problem) -> Problem:
    """Another device's build installed here refuses nothing that is only looked at: the stack may run elsewhere."""
    return replace(problem, severity="warning") if problem.rule == ANOTHER_DEVICE else problem


def _report(name: str, found: Examination, as_json: bool, verbose: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_json(name, found), indent=2))
        return
    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 120))
    for line in render(name, found, width, verbose=verbose):
        click.echo(line)


def render(name: str, found: Examination, width: int, *, verbose: bool = False) -> Iterator[str]:
    """The report in lines no longer than `width`, where words allow it; `verbose`: notes and MIG slices too."""
    yield from _wrap(f"{name}: {_pair_words(found.stack)}" if found.stack else name, width, "  ")
    if found.pair:
        yield f"pair {found.pair}"
    yield ""
    problems = [one for one in found.problems if verbose or one.severity != "note"]
    for problem in problems:
        first, _, hint = problem.render().partition("\n")
        yield from _wrap(first, width, "  ")
        if hint:
            yield from _wrap(hint.strip(), width, "      ", "    ")
    if problems:
        yield ""
    if found.budget:
        yield from _budget_table(found.budget, width)
    if found.overview and not found.refused:
        yield from _overview_table(found.overview, verbose)
    yield _verdict(found)


def _verdict(found: Examination) -> str:
    errors = sum(one.severity == "error" and one.rule != UNREACHABLE for one in found.problems)
    warnings = sum(problem.severity == "warning" for problem in found.problems)
    reasons = f"{errors} reason{'s' if errors != 1 else ''}"
    partly = any(problem.rule in ("facts", "engine-not-installed") for problem in found.problems)
    fine = "nothing speaks against it" + (", as far as it was judged" if partly else "")
    said = f"refused, for {reasons}" if errors else fine
    if found.unjudged:
        said = (
            f"{said}; the rest could not be judged"
            if errors
            else "could not be judged: the hub did not answer"
        )
    return f"{said}{f'; {warnings} warning' + 's' * (warnings != 1) if warnings else ''}"


def _pair_words(stack: Stack) -> str:
    draft = stack.draft
    if draft.method == "none":
        return f"{stack.target.model} without a draft"
    model = f" {draft.model}" if draft.model else ""
    return f"{stack.target.model} with draft {draft.method}{model}, K = {draft.length}"


def _budget_table(budget: Budget, width: int) -> Iterator[str]:
    parallel = budget.tensor_parallel
    where = budget.accelerator.label
    yield f"Memory of {where}" + (f", on each of {parallel}" if parallel > 1 else "") + " (GB = 10⁹ bytes)"
    for line in budget.lines:
        yield from _row(line.name, line.size_bytes, line.arithmetic, width)
    if not budget.accelerator.is_cpu:
        words = "left for the KV cache" if budget.kv_room_bytes > 0 else "missing"
        yield from _row("= left", budget.kv_room_bytes, words, width)
    context, asked = budget.ask.context, budget.ask.requests
    yield from _row(
        "a request", budget.request_bytes, f"{context:,} tokens: {budget.request_arithmetic}", width
    )
    yield from _wrap(
        f"KV cache for {budget.kv_tokens:,} tokens: {budget.full_requests} requests of {context:,} tokens at once; "
        f"{asked} may run at once.",
        width,
        "  ",
        "  ",
    )
    yield ""


def _row(name: str, size_bytes: int, arithmetic: str, width: int) -> Iterator[str]:
    head = f"  {name:<10}{size_bytes / GB:>10.3f} GB  "
    yield from _wrap(arithmetic, width, " " * len(head), head)


def _overview_table(budgets: tuple[Budget, ...], slices: bool) -> Iterator[str]:
    ask = budgets[0].ask
    yield f"Memory ({ask.context:,} tokens a request; name one with --accelerator for the arithmetic)"
    yield f"  {'accelerator':<20}{'left for KV':>13}{'KV tokens':>12}{'requests':>10}"
    for budget in budgets:
        if "-mig-" in budget.accelerator.name and not slices:
            continue
        room = f"{budget.kv_room_bytes / GB:.1f} GB"
        fits = (
            f"{budget.kv_tokens:>12,}{budget.full_requests:>10}" if budget.fits else f"{'does not fit':>22}"
        )
        yield f"  {budget.accelerator.name:<20}{room:>13}{fits}"
    if not slices:
        yield "  MIG slices: --verbose"
    yield ""


def _wrap(text: str, width: int, later: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _as_json(name: str, found: Examination) -> dict[str, object]:
    return {
        "stack": name,
        "refused": found.refused,
        "unjudged": found.unjudged,
        "pair": found.pair or None,
        "problems": [asdict(problem) for problem in found.problems],
        "memory": _budget_json(found.budget) if found.budget else None,
        "overview": [_budget_json(budget) for budget in found.overview],
    }


def _budget_json(budget: Budget) -> dict[str, object]:
    return {
        "accelerator": budget.accelerator.name,
        "memory_bytes": budget.accelerator.memory_bytes,
        "tensor_parallel": budget.tensor_parallel,
        "lines": [asdict(line) for line in budget.lines],
        "kv_room_bytes": budget.kv_room_bytes,
        "request_bytes": budget.request_bytes,
        "kv_tokens": budget.kv_tokens,
        "full_context_requests": budget.full_requests,
        "context_tokens": budget.ask.context,
        "asked_requests": budget.ask.requests,
        "fits": budget.fits,
    }

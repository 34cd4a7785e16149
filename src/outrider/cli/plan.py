"""`outrider plan`: the engine's own command, so that a user can leave us at any time."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import click

from outrider.cli.check import ANOTHER_DEVICE, elsewhere
from outrider.core.errors import StackError
from outrider.engines.base import LaunchPlan
from outrider.engines.choose import engine_of
from outrider.launch.prepare import planned_models
from outrider.stack.arithmetic import IN_FLOAT32, with_arithmetic
from outrider.stack.find_facts import Source, find_both
from outrider.stack.load import read_stack, usable
from outrider.stack.plain_engine import engines_of
from outrider.stack.shapes import shaped

KEY_PLACEHOLDER = "choose-a-key"


@click.command("plan")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--port",
    type=click.IntRange(1, 65534),
    default=8001,
    show_default=True,
    help="Port of the engine (a plain one beside it has the next); `serve` takes a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print argv, env, warnings, notes and files as JSON.")
def plan_command(stack: Path | None, port: int, as_json: bool) -> None:
    """Print the exact engine command for STACK (the built-in one without a file); nothing is started.

    Weights that `serve` would convert are named by the folder they get; `outrider weights` puts them there. For SGLang and
    TensorRT-LLM (`engine.name`) none need be installed: their flags are those of one version, read, never run here.
    """
    reading = read_stack(stack)
    loaded = shaped(usable(reading))
    engine = engine_of(loaded)
    install = engine.find(loaded)
    told = [one for one in map(elsewhere, engine.judge(loaded, install)) if one.rule == ANOTHER_DEVICE]
    if told and loaded.engine.device != "auto":
        # the command is for where the stack will run
        install = replace(install, device=loaded.engine.device, bf16=True)
    judged = [reading.located(problem) for problem in engine.judge(loaded, install)]
    if refused := tuple(problem for problem in judged if problem.severity == "error"):
        raise StackError("There is no command for this stack.", refused)
    settled = with_arithmetic(loaded, find_both(loaded, Source(offline=True)).target, bf16=install.bf16)
    own, *beside = (
        engine.plan(one, install, planned_models(one), port + number)
        for number, one in enumerate(engines_of(settled))
    )
    warnings = [one.render() for one in (*map(reading.located, told), *judged) if one.severity == "warning"]
    for text in warnings:
        click.echo(text, err=True)
    if settled != loaded:
        click.echo(f"note: {IN_FLOAT32}", err=True)
    if (why := own.notes.get("drafts")) and not beside:
        click.echo(f"note: no request can have another draft than the stack's: {why}", err=True)
    if as_json:
        told_all = {**_as_json(own), "warnings": warnings}
        if beside:
            told_all["plain_engine"] = _as_json(beside[0])
        click.echo(json.dumps(told_all, indent=2))
    else:
        plain = (f"\n# the plain engine beside it\n{command_text(plan)}" for plan in beside)
        click.echo("\n".join((command_text(own), *plain)))


def _as_json(plan: LaunchPlan) -> dict[str, object]:
    told: dict[str, object] = {"argv": plan.argv, "env": dict(plan.env), "notes": dict(plan.notes)}
    return told | ({"files": dict(plan.files)} if plan.files else {})


def command_text(plan: LaunchPlan) -> str:
    """The command as one can paste it into a shell: files that it names, environment, then one flag a line."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in plan.env.items()]
    in_argv = f"$({plan.key_variable})"
    if plan.key_variable and in_argv not in plan.argv:
        settings.append(f"{plan.key_variable}={KEY_PLACEHOLDER}")
    files = "".join(f"cat > {name} <<'END'\n{text}END\n" for name, text in plan.files.items())
    lines = [" ".join(settings)] if settings else []
    words: list[str] = []
    for argument in (KEY_PLACEHOLDER if each == in_argv else each for each in plan.argv):
        if argument.startswith("--") and words:
            lines.append(" ".join(words))
            words = []
        words.append(shlex.quote(argument))
    return files + " \\\n  ".join([*lines, " ".join(words)])

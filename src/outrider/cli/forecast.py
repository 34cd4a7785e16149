"""`outrider forecast`: what a draft would be worth on this accelerator, before its weights are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from outrider.bench.forecast import (
    Stated,
    forecast_arms,
    forecast_prompts,
    forecast_stack,
    info_of,
    of_arm,
    read_stated,
)
from outrider.bench.session import prepared
from outrider.cli.measuring import as_option, checked, measure_options, progress_line, run_session, wish_from
from outrider.engines.choose import startable
from outrider.measure.aiperf import AiperfRunner
from outrider.stack.load import load_stack

TEMPERATURE = (
    1.0  # greedy dummy weights repeat themselves, and a mixture of experts then uses few of its experts
)
PROMPTS = 512  # different ones; a cell with more requests begins again


OF_TEXT = ("set", "data", "limit", "natural_end", "natural_tokens")  # random weights read no text


@click.command("forecast")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--acceptance",
    "specs",
    multiple=True,
    required=True,
    metavar="[METHOD=]0.82,0.68,…|AL@K",
    help="How often position 1, 2, … of a draft is accepted, of all drafts; or an acceptance length and the K it was measured "
    "at. Again for another method.",
)
@click.option("--source", default="", help="Where the acceptance is from; the report prints it.")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(8, 100_000),
    default=128,
    show_default=True,
    help="Length of every prompt; their text is generated.",
)
@measure_options("forecast-NAME", without=OF_TEXT)
def forecast_command(
    stack: Path,
    specs: tuple[str, ...],
    source: str,
    prompt_tokens: int,
    out: Path | None,
    **given: Any,
) -> None:
    """Say what STACK's draft would be worth on this machine, from `config.json` alone: no weights are fetched.

    \b
    Examples:
      outrider forecast my.yaml --acceptance 0.82,0.68,0.56
      outrider forecast my.yaml --acceptance 3.06@3 --source "its model card"
      outrider forecast my.yaml --acceptance 3.06@3 \\
          --arm p-eagle:k=7,model=org/head --acceptance p-eagle=4.37@7

    \b
    The shapes of target and draft are loaded with random weights and measured
    as `outrider bench` does; the acceptance is yours. On a GPU the engine draws
    it; a CPU build cannot, so there the speed-up is reckoned:
    AL(K) × T(b, 0)/T(b, K). Every figure is labelled. The best draft length at
    each batch, and the AL that just pays, come first. Default temperature: 1.
    """
    say = progress_line()
    loaded = load_stack(stack)
    engine = startable(loaded)
    with as_option("--acceptance"):
        stated = read_stated(specs, loaded.draft.method, source)
    folder = out or Path(f"forecast-{loaded.name or loaded.served_name}")
    runner = AiperfRunner(engine.request_acceptance)
    prompts = forecast_prompts(prompt_tokens, PROMPTS)
    wish = checked(wish_from(given), forecast_stack(loaded), engine)
    context = click.get_current_context()
    if context.get_parameter_source("temperature") is ParameterSource.DEFAULT:
        wish = replace(wish, temperature=TEMPERATURE)
    session = prepared(forecast_stack(loaded), engine, (prompts,), wish, say)
    synthetic = session.install.device != "cpu"
    with as_option("--acceptance"):
        arms = forecast_arms(session.plan.arms, stated, synthetic=synthetic)
    used: dict[str, Stated] = {
        arm.stack.draft.method: of_arm(arm, stated) for arm in arms if not arm.is_baseline
    }
    if unused := sorted(stated.keys() - used.keys()):
        raise click.BadParameter(
            f"acceptance is stated for {', '.join(unused)}, which is no arm\n  → Add it: --arm METHOD:k=…,model=…",
            param_hint="--acceptance",
        )
    info = info_of(used, synthetic=synthetic)
    session = replace(session, plan=replace(session.plan, arms=arms), forecast=info)
    run_session(session, folder, runner, report=not given["no_report"])

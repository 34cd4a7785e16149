"""`outrider train`: a draft head for the stack's target, from nothing but the target, measured as it is served."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import click
import uvloop
from click.core import ParameterSource

from outrider.cli.measuring import load_sets, progress_line
from outrider.cli.ranges import Finite
from outrider.cli.training_screen import TrainingScreen
from outrider.core.errors import TrainingError
from outrider.engines.choose import startable
from outrider.measure.prompts import PromptSet
from outrider.measure.served_acceptance import ServedSettings
from outrider.stack.load import load_stack
from outrider.stack.models import Stack
from outrider.train.answers import AnswerSettings
from outrider.train.job import Method, checked_settings
from outrider.train.pair import training_facts, write_pair, write_stack
from outrider.train.process import check_installed
from outrider.train.prompts import PromptSettings
from outrider.train.run import Data, drafted, make_data, measure_head, train_head
from outrider.train.selfplay import SelfPlay, UserTurns
from outrider.train.specforge import SpecForgeSettings, write_specforge
from outrider.train.specforge_target import refuse_settings
from outrider.train.wish import Wish

CONVERSATIONS = {"cpu": 500, "cuda": 20_000}
K: dict[str, int] = {"eagle3": 3, "p-eagle": 5}
_DATA_OPTIONS = {
    "conversations": ("conversations",),
    "sources": ("sources",),
    "only_data": ("fill",),
    "openings": ("openings", "opening_share"),
    "system": ("system",),
    "answer_tokens": ("max_answer_tokens",),
    "answer_temperature": ("temperature",),
}


@click.command("train")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--method",
    type=click.Choice(get_args(Method)),
    default="eagle3",
    show_default=True,
    help="eagle3 drafts one token after another; p-eagle all of them in one pass.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the head; default: head-NAME-METHOD. A run that was stopped goes on in it.",
)
@click.option(
    "--conversations",
    type=click.IntRange(2),
    help="How many are written and answered; default: 20,000, on a CPU 500.",
)
@click.option(
    "--data",
    "sources",
    multiple=True,
    metavar="FILE | FOLDER | ORG/NAME",
    help="Take prompts from here first (JSONL, or a hub's data set); the target answers them anew. Again for more.",
)
@click.option("--only-data", is_flag=True, help="With --data: the target writes no prompts of its own.")
@click.option(
    "--opening",
    "openings",
    multiple=True,
    metavar="TEXT",
    help="How a self-written prompt may begin, in place of the default list: say what your traffic asks. Again for more.",
)
@click.option(
    "--system", metavar="TEXT", help="System text of all conversations; default: the chat template's own."
)
@click.option(
    "--answer-tokens",
    type=click.IntRange(8),
    default=512,
    show_default=True,
    help="Longest answer.",
)
@click.option(
    "--answer-temperature",
    type=Finite(0, 2),
    default=0.0,
    show_default=True,
    help="Of the answers; 0 is greedy.",
)
@click.option(
    "--rows-of",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIRECTORY",
    help="Train on the conversations of this other head's folder: two methods, one set of data.",
)
@click.option(
    "--epochs", type=click.IntRange(1), help="Times that every conversation is seen; default: 8, on a CPU 4."
)
@click.option(
    "--minutes", "max_minutes", type=Finite(min=0, min_open=True), help="Train no longer than this."
)
@click.option("--layers", type=click.IntRange(1, 8), help="Decoder layers of the head; default: 1.")
@click.option(
    "--draft-vocab",
    "draft_vocab_size",
    type=click.IntRange(0),
    help="Tokens the head can draft; default: 8192, 0 for all.",
)
@click.option("--seed", type=click.IntRange(0), help="Of weights and order; default: 0.")
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting of the trainer, such as loss=ce (docs/train-settings.md lists them). Again for more.",
)
@click.option(
    "--draft-length",
    type=click.IntRange(1, 16),
    help="K that the head is served and measured with; default: 3, p-eagle 5.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME | LABEL=FILE",
    help="Held-out prompts for served acceptance (docs/prompt-sets.md); never trained on. Default: two small sets that "
    "come with Outrider.",
)
@click.option(
    "--set-data", type=click.Path(path_type=Path, file_okay=False), help="Folder where named prompt sets lie."
)
@click.option("--limit", type=click.IntRange(1), help="Prompts of each set; default: all.")
@click.option(
    "--served-tokens",
    type=click.IntRange(8),
    default=128,
    show_default=True,
    help="Longest answer when the head is measured.",
)
@click.option(
    "--concurrency", type=click.IntRange(1), help="Conversations written at once; default: 1024, on a CPU 16."
)
@click.option(
    "--backend",
    type=click.Choice(["speculators", "specforge"]),
    default="speculators",
    show_default=True,
    help="specforge: write data and launch command for SGLang's SpecForge instead of training here.",
)
@click.option(
    "--until",
    type=click.Choice(["data", "training"]),
    help="Stop after this step; the same command without it goes on.",
)
def train_command(stack: Path | None, **given: Any) -> None:
    """Train a draft head for STACK's target; without STACK for the built-in one, on this machine's CPU.

    \b
    Examples:
      outrider train --minutes 5                        see it work, no GPU needed
      outrider train my.yaml --method p-eagle --conversations 20000
      outrider train my.yaml --data prompts.jsonl --set humaneval --set mine.jsonl

    \b
    1. prompts    the target writes what users would ask, or takes yours
    2. answers    the target answers them; this is what the head must learn
    3. training   in a process of its own, kept every minute
    4. served     the engine loads the head and counts what it accepts
    Then OUT holds the head, pair.json, and stack.yaml to serve it with.

    Stopped at any point, the same command goes on. Training needs
    `make train-env`, or `pip install '.[train]'` into the engine's environment.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loaded, say = load_stack(stack), progress_line()
    engine = startable(loaded)
    install = engine.find(loaded)
    if given["backend"] == "speculators" and given["until"] != "data":
        check_installed(install.python)
    sets = load_sets(given["sets"], given["set_data"], given["limit"])
    wish = _wish(loaded, given, sets, install.device)
    handed = _for_specforge(wish) if given["backend"] == "specforge" else None
    with _told_how_to_go_on(wish.out, say):
        screen = TrainingScreen(say)
        data = uvloop.run(make_data(loaded, engine, wish, screen))
        if handed:
            _hand_over(loaded, data, wish, handed, say)
            return
        if given["until"] == "data":
            say(
                f"{data.answers.kept:,} conversations in {data.rows}; the same command without --until goes on"
            )
            return
        summary = train_head(loaded, data, wish, install.python, screen)
        if given["until"] == "training":
            say(f"the head is in {wish.out}, not yet measured; the same command without --until goes on")
            return
        served = uvloop.run(measure_head(loaded, engine, wish, screen))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        facts = training_facts(wish, data, summary, ["outrider", *sys.argv[1:]], created)
        manifest = write_pair(drafted(loaded, wish), wish, served, facts, screen.note)
        for one in served:
            rates = " ".join(f"{rate:.2f}" for rate in one.per_position)
            click.echo(
                f"• {one.prompt_set}: AL {one.acceptance_length:.2f} at K = {one.draft_length} (positions {rates})"
            )
        click.echo(f"\nhead:  {wish.out}   pair {manifest.id}")
        click.echo(f"serve: {called(sys.argv[0])} serve {write_stack(loaded, wish)}")
        click.echo(
            "AL says how much is accepted, not how much time that saves: `outrider bench` of the same file does."
        )


@contextmanager
def _told_how_to_go_on(out: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C in here ends with a word on it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped; the same command goes on in {out}")
        raise


def called(program: str) -> str:
    """``outrider``, or the path it was started by (``.venv/bin/outrider``) where its name alone is not found."""
    by_path = Path(program).name == "outrider" and shutil.which("outrider") is None
    return shlex.quote(program) if by_path else "outrider"


def _wish(stack: Stack, given: dict[str, Any], sets: Sequence[PromptSet], device: str) -> Wish:
    method: Method = given["method"]
    if given["only_data"] and not given["sources"]:
        raise click.UsageError("--only-data needs --data.")
    held_out = tuple(turn for one in sets for prompt in one.prompts for turn in prompt.turns)
    user = UserTurns(held_out=held_out)
    play = SelfPlay(user=user, system=given["system"])
    if given["openings"]:
        play = replace(play, openings=given["openings"], opening_share=1.0)
    answers = AnswerSettings(
        temperature=given["answer_temperature"], max_answer_tokens=given["answer_tokens"], user=user
    )
    names = ("epochs", "max_minutes", "layers", "draft_vocab_size", "seed")
    settings = {name: given[name] for name in names if given[name] is not None}
    served = ServedSettings(output_tokens=given["served_tokens"], concurrency=4 if device == "cpu" else 32)
    return Wish(
        method=method,
        out=given["out"] or Path(f"head-{stack.name or stack.served_name}-{method}"),
        conversations=given["conversations"] or CONVERSATIONS[device],
        prompts=PromptSettings(sources=given["sources"], fill=not given["only_data"], play=play),
        answers=answers,
        settings=checked_settings(_more(settings, given["more"])),
        sets=sets,
        draft_length=given["draft_length"] or K[method],
        served=served,
        concurrency=given["concurrency"],
        rows_of=given["rows_of"],
        said=_said(),
    )


def _said() -> frozenset[str]:
    """What of the data is on the command line, as a folder's `data.json` calls it."""
    context = click.get_current_context()
    return frozenset(
        name
        for option, names in _DATA_OPTIONS.items()
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        for name in names
    )


def _more(settings: Mapping[str, object], options: Sequence[str]) -> dict[str, object]:
    """`settings` and ``NAME=VALUE`` ones; values as JSON where they are, else as text. Raises click.BadParameter."""
    found = dict(settings)
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{option!r} is not NAME=VALUE", param_hint="--option")
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint="--option")
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError):
            found[name] = text
    return found


def _for_specforge(wish: Wish) -> SpecForgeSettings:
    """Those settings of the wish that SpecForge has too. Raises TrainingError: there are others, or it cannot do this."""
    asked = {
        "layers": "draft_layers",
        "depth": "depth",
        "epochs": "epochs",
        "seed": "seed",
        "draft_vocab_size": "draft_vocab_size",
    }
    if unknown := sorted(wish.settings.keys() - asked.keys()):
        raise TrainingError(
            f"SpecForge is not told of {', '.join(unknown)}",
            hint="Leave it out, and change run.yaml in the folder that is written.",
        )
    settings = SpecForgeSettings(
        method=wish.method,
        **{asked[name]: value for name, value in wish.settings.items()},  # type: ignore[arg-type]
    )
    refuse_settings(settings)
    return settings


def _hand_over(
    stack: Stack, data: Data, wish: Wish, settings: SpecForgeSettings, say: Callable[[str], None]
) -> None:
    """Write what SpecForge needs. Raises TrainingError."""
    files = write_specforge(
        data.rows,
        data.target,
        stack.target.model,
        wish.out / "specforge",
        settings,
        revision=stack.target.revision or "",
    )
    say(f"{files.rows:,} rows for SpecForge in {files.folder}; README.txt there says what to run where")

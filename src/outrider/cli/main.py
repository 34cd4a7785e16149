"""`outrider`: the group, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import sys
import traceback

import click

from outrider import __version__
from outrider.core.errors import EngineStartFailed, OutriderError, StackError

# Name → (module, attribute, one line for --help). Modules are imported when their command runs: --help stays quick.
COMMANDS = {
    "serve": (
        "outrider.cli.serve",
        "serve_command",
        "Serve a target with its draft; the built-in stack without a file.",
    ),
    "front": (
        "outrider.cli.front",
        "front_command",
        "Listen for clients before engines that run elsewhere, as in a cluster.",
    ),
    "check": (
        "outrider.cli.check",
        "check_command",
        "Say whether a stack can work and fits, before loading any weights.",
    ),
    "plan": (
        "outrider.cli.plan",
        "plan_command",
        "Print the exact engine command, so that you can run it yourself.",
    ),
    "weights": (
        "outrider.cli.weights",
        "weights_command",
        "Fetch and convert the weights a stack needs, without serving.",
    ),
    "bench": (
        "outrider.cli.bench",
        "bench_command",
        "Measure what the draft is worth on real traffic, and write a report.",
    ),
    "compare": (
        "outrider.cli.compare",
        "compare_command",
        "Gate a change: exit 1 if a bench run is worse than another.",
    ),
    "forecast": (
        "outrider.cli.forecast",
        "forecast_command",
        "Say what a draft would be worth here, before its weights are fetched.",
    ),
    "tune": (
        "outrider.cli.tune",
        "tune_command",
        "Measure which draft length pays at which batch, and write it into the stack.",
    ),
    "pair": (
        "outrider.cli.pair",
        "pair_command",
        "Verify, show or write the manifest that says which target and draft belong together.",
    ),
    "train": (
        "outrider.cli.train",
        "train_command",
        "Train a draft head for the target, and measure what the engine accepts of it.",
    ),
    "replay": (
        "outrider.cli.replay",
        "replay_command",
        "Say what a policy would have done over a recorded trace of traffic.",
    ),
    "scale-plan": (
        "outrider.cli.scale_plan",
        "scale_plan_command",
        "Try a load and a scaling policy on a model, before you buy GPUs.",
    ),
    "scale-demo": (
        "outrider.cli.scale_demo",
        "scale_demo_command",
        "Show scale-out on this machine: a real Prometheus, engines as processes.",
    ),
    "render": (
        "outrider.cli.render",
        "render_command",
        "Turn a stack into Helm values or Kubernetes manifests.",
    ),
    "key": ("outrider.cli.key", "key_command", "Make an API key and the hash that goes into the stack."),
}

HELP = """Serve language models with speculative decoding that has to earn its keep.

A draft proposes tokens, the target verifies them in one pass: the same text, sooner, when the draft matches. Outrider runs
the pair on vLLM, measures what the draft is worth, and says it for every request.

\b
Start here:
  outrider serve                 a small model with a draft head, no GPU needed
  outrider check my-stack.yaml   every reason why a pair cannot work, at once
  outrider plan my-stack.yaml    the engine command behind it

STACK is a YAML file (docs/stack.md, examples/). Without one, the built-in stack is used.

\b
Exit codes:
  0    done; compare: nothing is worse
  1    compare: a regression, and nothing else
  2    usage: the command line itself
  10   the stack
  11   the engine, its weights, or a hub that does not answer
  12   a measurement that failed, or must not be believed
  13   a training that failed, or whose head is broken
  14   values or manifests that cannot be rendered
  70   a fault of Outrider itself, with a traceback
  130  interrupted; bench, tune, forecast and train go on when repeated
"""
CRASH = 70  # EX_SOFTWARE of sysexits.h. Python's own 1 would read as a regression.
INTERRUPTED = 130  # 128 + SIGINT
CLOSED_PIPE = 141  # 128 + SIGPIPE: who read our output went away


class _Lazy(click.Group):
    """A group that imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(
    cls=_Lazy, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="outrider")
def cli() -> None:
    """The group itself does nothing."""


def explain(error: OutriderError) -> str:
    """What a person reads: the problems or the log's end first, then the error, last what to do next."""
    lines = [problem.render() for problem in error.problems] if isinstance(error, StackError) else []
    if isinstance(error, EngineStartFailed) and error.log_tail:
        lines += ["the engine's last lines:", *(f"  | {line}" for line in error.log_tail)]
        # An argument parser prints its whole usage first: its one sentence is what matters.
        lines += [
            f"the engine says: {line.partition(': error: ')[2]}"
            for line in error.log_tail
            if ": error: " in line
        ]
    lines.append(f"outrider: {error}")
    if error.hint:
        lines.append(f"  → {error.hint}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line; deliberate errors end with their exit code, mistakes of ours with a traceback and 70."""
    sys.exit(_status())


def _status() -> int | str | None:
    out = sys.stdout
    try:
        status = cli.main(standalone_mode=False)  # click returns the code of `ctx.exit(code)` here
        return status if isinstance(status, int) else 0
    except SystemExit as ended:
        return ended.code if sys.stdout is out else CLOSED_PIPE  # click puts a mute stream there, and says 1
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OutriderError as error:
        click.echo(explain(error), err=True)
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        click.echo(_crashed(error), err=True)
        return CRASH


def _crashed(error: Exception) -> str:
    words = f"outrider: {type(error).__name__}: {error}"
    if isinstance(error, OSError):
        return f"{words}\n  → Mend what the system says, and repeat the command."
    return f"{words}\n  → This is a fault of Outrider: please report it with the lines above."

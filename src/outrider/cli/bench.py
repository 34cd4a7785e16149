"""`outrider bench`: measure what the draft is worth, and write a report that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from outrider.bench.session import prepared, renew_reports, report_name, write_reports
from outrider.cli.measuring import (
    checked,
    load_sets,
    measure_options,
    progress_line,
    refuse_other_options,
    run_session,
    show,
    wish_from,
)
from outrider.engines.choose import startable
from outrider.measure.aiperf import AiperfRunner
from outrider.stack.load import load_stack


@click.command("bench")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@measure_options("bench-NAME")
@click.option("--report-only", is_flag=True, help="Write the reports of what the folder holds, run nothing.")
@click.option(
    "--renew",
    metavar="RUN.json",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Write a stored run.json and its reports again, without the run's folder: measured figures stay, what follows from "
    "them (speed-ups, step costs, answers) is reckoned by this version.",
)
def bench_command(
    stack: Path | None, out: Path | None, report_only: bool, renew: Path | None, **given: Any
) -> None:
    """Compare STACK's draft, and more of them, with no draft at all: on the real server, with tails and cost.

    \b
    Examples:
      outrider bench                                    a first run, no GPU needed
      outrider bench my.yaml --set humaneval --set mine.jsonl
      outrider bench my.yaml --arm eagle3:k=3+5 --arm ngram:k=3 --grid

    \b
    It writes one folder: report.html (one file, opens offline), report.md,
    run.json, and the raw records. Every cell that is done is kept: the same
    command goes on where it stopped. Gate a change with `outrider compare`,
    turn the result into a schedule with `outrider tune`.

    Needs `make bench-env` (the load generator, in an environment of its own).
    """
    if renew is not None:
        refuse_other_options(click.get_current_context(), ("renew",), "--renew measures nothing")
        show(renew_reports(renew), renew, report_name(renew))
        return
    if report_only:
        refuse_other_options(
            click.get_current_context(), ("out", "report_only"), "--report-only measures nothing"
        )
        folder = out or _default(stack)
        show(write_reports(folder), folder / "run.json")
        return
    loaded = load_stack(stack)
    engine = startable(loaded)
    wish = checked(wish_from(given), loaded, engine)
    runner = AiperfRunner(engine.request_acceptance)
    prompt_sets = load_sets(given["sets"], given["data"], given["limit"])
    session = prepared(loaded, engine, prompt_sets, wish, progress_line())
    run_session(session, out or _default(stack), runner, report=not given["no_report"])


def _default(stack: Path | None) -> Path:
    loaded = load_stack(stack)
    return Path(f"bench-{loaded.name or loaded.served_name}")

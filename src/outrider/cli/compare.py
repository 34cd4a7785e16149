"""`outrider compare`: a gate for changes. Exit code 0, 1 (regression) or 12 (cannot be said)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from outrider.bench.compare import Comparison, Tolerances, compare, read_run

_HEAD = ("figure", "arm", "set", "before", "after", "worse by", "surely", "")
_WIDTH = (10, 16, 14, 7, 7, 8, 7, 3)  # 79 columns with the spaces between


@click.command("compare")
@click.argument("reference", type=click.Path(path_type=Path, exists=True))
@click.argument("candidate", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.03,
    show_default=True,
    help="Change for the worse of TPOT, AL - 1 and position rates that is let through, as a share.",
)
@click.option(
    "--force", is_flag=True, help="Compare runs of other settings, prompts, labels or hardware too."
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_context
def compare_command(
    ctx: click.Context, reference: Path, candidate: Path, tolerance: float, force: bool, as_json: bool
) -> None:
    """Say whether the run CANDIDATE is worse than the run REFERENCE: acceptance and time per output token.

    Both are folders that `outrider bench` wrote, or their run.json. Worse is what is beyond the tolerance even at the
    favourable end of its 95 % interval, so noise alone does not trip the gate. docs/compare.md has the rule.

    \b
    Exit codes:
      0   nothing is worse
      1   a regression
      12  it cannot be said: not comparable, too few trials, or too noisy
    """
    found = compare(read_run(reference), read_run(candidate), Tolerances(tolerance, tolerance), force=force)
    click.echo(as_text(found) if not as_json else json.dumps(as_data(found), indent=2))
    ctx.exit(1 if found.regressed else 0)


def as_data(found: Comparison) -> dict[str, object]:
    """For machines: every check with its figures, unrounded."""
    return {
        "regressed": found.regressed,
        "sentence": found.sentence(),
        "checks": [
            {**asdict(check), "regressed": check.regressed, "seen": check.seen} for check in found.checks
        ],
        "fallen": list(found.fallen),
        "notes": list(found.notes),
    }


def as_text(found: Comparison) -> str:
    """For people: a table of at most 80 columns, notes, and one sentence at the end."""
    rows = [_HEAD]
    for check in found.checks:
        digits = 1 if check.unit else 3
        rows.append(
            (
                check.figure + (f" {check.unit}" if check.unit else ""),
                check.arm,
                check.prompt_set,
                f"{check.reference:.{digits}f}",
                f"{check.candidate:.{digits}f}",
                f"{check.change:+.1%}",
                f"{check.surely:+.1%}",
                "BAD" if check.regressed else "ok",
            )
        )
    lines = [_line(row) for row in rows]
    lines += [f"fallen: {one}" for one in found.fallen]
    lines += [f"note: {one}" for one in found.notes]
    return "\n".join([*lines, "", found.sentence()])


def _line(row: tuple[str, ...]) -> str:
    cells = []
    for place, (text, width) in enumerate(zip(row, _WIDTH, strict=True)):
        short = text if len(text) <= width else f"{text[: width - 1]}…"
        cells.append(short.rjust(width) if 3 <= place < 7 else short.ljust(width))
    return " ".join(cells).rstrip()

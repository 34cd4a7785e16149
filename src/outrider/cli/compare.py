"""`outrider compare`: a gate for changes. Exit code 0, 1 (regression) or 12 (cannot be said)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import fill

import click

from outrider.bench.compare import Tolerances, compare, read_run
from outrider.bench.comparison import Comparison
from outrider.bench.gates import ALL, Check

_HEAD = ("figure", "arm", "where", "before", "after", "worse by", "surely", "")
_WIDTH = (15, 12, 13, 6, 6, 8, 7, 3)  # 77 columns with the spaces between
_COLUMNS = 80
_FIGURES = {
    "al": "acceptance",
    "tpot": "tpot",
    "tok-s": "tok_s",
    "ttft": "ttft",
    "ttft-tail": "ttft_tail",
    "e2e-tail": "e2e_tail",
    "step-gap": "step_gap",
}


class Tolerance(click.ParamType[tuple[tuple[str, ...], float | None]]):
    """``0.05``, ``ttft=0.1``, ``e2e-tail=off``: the fields of `Tolerances` it is for, and the share."""

    name = "tolerance"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, ...], float | None]:
        """Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        name, equals, share = str(value).rpartition("=")
        if equals and name not in _FIGURES:
            self.fail(f"{name!r} is none of {', '.join(_FIGURES)}", param, ctx)
        chosen = (_FIGURES[name],) if equals else tuple(_FIGURES.values())
        if equals and share == "off":
            return chosen, None
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1:
            self.fail(
                f"{share!r} is no share from 0 to below 1{' and not off' if equals else ''}", param, ctx
            )
        return chosen, number


def tolerances(given: Sequence[tuple[tuple[str, ...], float | None]]) -> Tolerances:
    """The defaults with what was given; a bare share is for every figure, a named one goes before it, wherever it stands."""
    found = Tolerances()
    for chosen, share in sorted(given, key=lambda one: -len(one[0])):
        found = replace(found, **dict.fromkeys(chosen, share))
    return found


@click.command("compare")
@click.argument("reference", type=click.Path(path_type=Path, exists=True))
@click.argument("candidate", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--tolerance",
    "given",
    type=Tolerance(),
    metavar="[FIGURE=]SHARE|off",
    multiple=True,
    help="Change for the worse that is let through, as a share: of every figure (0.05), or of one (ttft=0.1), which off "
    "switches off; again for more. Figures: al (and position rates), tpot, tok-s 0.03; ttft, ttft-tail, e2e-tail, "
    "step-gap 0.05.",
)
@click.option(
    "--force", is_flag=True, help="Compare runs of other settings, prompts, labels or hardware too."
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_context
def compare_command(
    ctx: click.Context,
    reference: Path,
    candidate: Path,
    given: tuple[tuple[tuple[str, ...], float | None], ...],
    force: bool,
    as_json: bool,
) -> None:
    """Say whether the run CANDIDATE is worse than the run REFERENCE: acceptance, times and throughput, at every load.

    Both are folders that `outrider bench` wrote, or their run.json. Worse is what is beyond the tolerance even at the
    favourable end of its 95 % interval and more than the noise of all checks together would make, so noise alone does not
    trip the gate. docs/compare.md has the rule.

    \b
    Exit codes:
      0   nothing is worse
      1   a regression
      12  it cannot be said: not comparable, too few trials, or too noisy
    """
    found = compare(read_run(reference), read_run(candidate), tolerances(given), force=force)
    click.echo(as_text(found) if not as_json else json.dumps(as_data(found), indent=2))
    ctx.exit(1 if found.regressed else 0)


def as_data(found: Comparison) -> dict[str, object]:
    """For machines: every check with its figures, unrounded."""
    return {
        "regressed": found.regressed,
        "sentence": found.sentence(),
        "checks": [{**asdict(check), "regressed": check.regressed} for check in found.checks],
        "fallen": list(found.fallen),
        "not_gated": list(found.not_gated),
        "notes": list(found.notes),
    }


def as_text(found: Comparison) -> str:
    """For people: a table of at most 80 columns (single loads where they are worse), notes, and one sentence at the end."""
    shown = [check for check in found.checks if check.concurrency is None or check.regressed]
    lines = [_line(_HEAD), *(_line(_row(check)) for check in shown)]
    if hidden := len(found.checks) - len(shown):
        lines.append(f"and {hidden} checks of single loads: ok (--json has them)")
    for kind, said in (("fallen", found.fallen), ("not gated", found.not_gated), ("note", found.notes)):
        lines += [fill(f"{kind}: {one}", _COLUMNS, subsequent_indent="  ") for one in said]
    return "\n".join([*lines, "", found.sentence()])


def _row(check: Check) -> tuple[str, ...]:
    return (
        check.figure + (f" {check.unit}" if check.unit else ""),
        check.arm,
        _where(check),
        _number(check.reference),
        _number(check.candidate),
        f"{check.change:+.1%}",
        f"{check.surely:+.1%}",
        "BAD" if check.regressed else "ok",
    )


def _where(check: Check) -> str:
    """``code``, ``code at 4``: the set's name gives way."""
    load = "" if check.concurrency is None else f" at {check.concurrency}"
    return (
        f"{_short('all loads' if check.prompt_set == ALL else check.prompt_set, _WIDTH[2] - len(load))}{load}"
    )


def _number(value: float) -> str:
    """Four digits or so: ``0.583``, ``16.43``, ``1023``."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _line(row: tuple[str, ...]) -> str:
    cells = []
    for place, (text, width) in enumerate(zip(row, _WIDTH, strict=True)):
        short = _short(text, width)
        cells.append(short.rjust(width) if 3 <= place < 7 else short.ljust(width))
    return " ".join(cells).rstrip()

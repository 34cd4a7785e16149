"""`outrider scale-demo`: scale-out shown on this machine, with a real Prometheus and replicas that are processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop

from outrider.cli.ranges import Finite
from outrider.cli.scale_plan import LOAD
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole
from outrider.deploy.scale_demo.document import ScaleRun
from outrider.deploy.scale_demo.prometheus import find
from outrider.deploy.scale_demo.run import Wish, run
from outrider.deploy.scale_model import Phase
from outrider.deploy.scaling_policy import declared, read_policy
from outrider.deploy.service_times import read_times

RUN, CHART = "run.json", "chart.svg"
TIMES, ARM, DRAFT, DRAFT_LENGTH = "llama-3.3-70b", "eagle3-k3", "eagle3", 3


def _chart() -> Callable[[ScaleRun], str]:
    """Looked for before minutes are spent. Raises MeasurementError where matplotlib is missing."""
    try:
        from outrider.deploy.scale_demo.chart import render_chart  # noqa: PLC0415  (an extra's)
    except ImportError as error:
        hint = "Install it: `make bench-env`, or `pip install 'outrider[bench]'`."
        raise MeasurementError(f"the chart needs {error.name}", hint=hint) from error
    return render_chart


def _unwritable(out: Path, error: OSError) -> MeasurementError:
    return MeasurementError(f"cannot write into {out}: {error.strerror}", hint="Name another folder: --out.")


@click.command("scale-demo")
@click.option(
    "--load", "phases", type=LOAD, default="3.2@45s,9.6@150s,3.2@150s", show_default=True, metavar="RATE@TIME,…",
    help="Requests a second and for how long: before, more, and after.",
)  # fmt: skip
@click.option(
    "--compression", type=Finite(1, 60), default=10.0, show_default=True,
    help="Every window of the control loop is divided by it. With 1 give a load of an hour and more.",
)  # fmt: skip
@click.option(
    "--policy", "policy_path", metavar="FILE[#NAME]",
    help="Rendered manifests with a ScaledObject; default: the policy that the chart declares.",
)  # fmt: skip
@click.option(
    "--concurrency", type=click.IntRange(1, 128), default=16, show_default=True,
    help="Requests an engine is given at once.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the arrivals.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("scale-demo"), show_default=True,
    help=f"Folder for {RUN}, {CHART} and the logs.",
)  # fmt: skip
def scale_demo_command(phases: tuple[Phase, ...], out: Path, **given: Any) -> None:
    """Show scale-out on this machine: load × 3, replicas rise, the queue wait returns under target, no request is lost.

    \b
    A real Prometheus scrapes the real front; the policy's own queries are asked;
    the autoscaler's documented arithmetic starts and drains engines. These are
    processes that simulate a Llama 3.3 70B with an EAGLE-3 draft by the times
    measured on an H200. Windows are compressed, and it says so; `outrider
    scale-plan` plays the declared ones on a virtual clock. Takes 6 minutes.
    """
    if len(phases) != 3:
        raise click.BadParameter("three parts: before, more, and after", param_hint="--load")
    find()
    chart, times = _chart(), read_times(TIMES, ARM)
    policy = read_policy(given["policy_path"]) if given["policy_path"] else declared(given["concurrency"])
    wish = Wish(
        phases=phases,
        times=times,
        draft=DRAFT,
        draft_length=DRAFT_LENGTH,
        concurrency=given["concurrency"],
        output_tokens=times.output_tokens,
        policy=policy,
        compression=given["compression"],
        seed=given["seed"],
    )
    logs = out / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from error
    began_s = time.monotonic()
    found = uvloop.run(run(wish, logs, lambda line: click.echo(line, err=True)))
    put_whole(out / RUN, found.model_dump_json(indent=1, by_alias=True) + "\n", partial(_unwritable, out))
    put_whole(out / CHART, chart(found), partial(_unwritable, out))
    click.echo(
        f"{time.monotonic() - began_s:.0f} s; every window of the loop 1/{wish.compression:g} of the declared one; engines "
        f"simulated, by times of one {times.hardware}"
    )
    if found.longest_gap_s > 3 * found.policy.sync_s:
        click.echo(f"  ! this machine was too busy: nothing ran for {found.longest_gap_s:.0f} s")
    for check in found.checks:
        click.echo(f"  {'✓' if check.good else '✗'} {check.name}: {check.found}")
    for why, count in found.lost.items():
        click.echo(f"    lost, {why}: {count}")
    click.echo(f"{out / RUN}, {out / CHART}")
    if not found.good:
        raise MeasurementError("the run did not show what it is to show", hint=f"Its logs: {logs}")

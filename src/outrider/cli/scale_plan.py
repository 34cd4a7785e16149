"""`outrider scale-plan`: a load and a scaling policy tried on a model of front and engines, before GPUs are bought."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from outrider.cli.scale_plan_text import Plan, as_text
from outrider.deploy.scale_model import Phase, Site
from outrider.deploy.scale_plan import Cpu, Outcome, plan
from outrider.deploy.scaling import External, Policy
from outrider.deploy.scaling_policy import SETTINGS, declared, on_cpu, quantity, read_policy, with_settings
from outrider.deploy.service_times import ServiceTimes, built_in, read_times
from outrider.front.settings import LaneRule, settings_from
from outrider.stack.load import load_stack

DEFAULT_TIMES = "llama-3.3-70b"
BASE_SHARE = (
    0.7  # of what one replica can serve: the load we assume where none is given, then three times that
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HINT = "docs/scale.md describes every setting."


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time: 90, 90s, 15m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def read_load(text: str) -> tuple[Phase, ...]:
    """``2@10m,6@30m``: 2 requests a second for 10 minutes, then 6 for 30. Raises ValueError."""
    phases = []
    for part in text.split(","):
        rate, at, length = part.partition("@")
        try:
            rate_s = float(rate)
        except ValueError:
            rate_s = -1.0
        if not at or not 0 <= rate_s < 1e6:
            raise ValueError(f"{part!r} is not RATE@TIME, as 2@10m (2 requests a second for 10 minutes)")
        phase = Phase(rate_s, _seconds(length))
        if phase.length_s <= 0:
            raise ValueError(f"{part!r} takes no time")
        phases.append(phase)
    return tuple(phases)


class _Of(click.ParamType[object]):
    """An option read by a function that raises ValueError."""

    def __init__(self, name: str, read: object) -> None:
        self.name, self._read = name, read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)  # type: ignore[operator]  # one of two functions above
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME, LOAD = _Of("time", _seconds), _Of("load", read_load)


@click.command("scale-plan")
@click.argument("stack", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--load",
    "phases",
    type=LOAD,
    metavar="RATE@TIME,…",
    help="Requests a second and for how long. Default: what 70 % of one replica serves for 10 minutes, three times that for 40, "
    "and the first again for 40.",
)
@click.option(
    "--times",
    "source",
    default=DEFAULT_TIMES,
    show_default=True,
    metavar="RUN|run.json",
    help=f"Where the engine's times are from: a bench of yours, or one of the H200 runs: {', '.join(built_in())}.",
)
@click.option(
    "--arm", help="The arm of that run; default: the one measured at the most loads, a draft before none."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    help="Requests an engine is given at once; default: the stack's, or 64.",
)
@click.option(
    "--output-tokens", type=click.IntRange(2, 1_000_000), help="Of each answer; default: the run's."
)
@click.option(
    "--start", "start_s", type=TIME, default="2m", show_default=True, metavar="TIME",
    help="From the decision to a ready engine: node, image, weights, warm-up.",
)  # fmt: skip
@click.option("--gpus", type=click.IntRange(1, 64), default=1, show_default=True, help="GPUs of one replica.")
@click.option(
    "--policy",
    "policy_path",
    metavar="FILE[#NAME]",
    help="Rendered manifests with a ScaledObject or HorizontalPodAutoscaler; default: the policy that the chart declares.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help=f"A setting of the policy; again for more: {', '.join(SETTINGS)}.",
)  # fmt: skip
@click.option(
    "--max-queue",
    type=click.IntRange(1, 1_000_000),
    help="Requests the front's queue holds; default: the stack's, or 256.",
)
@click.option(
    "--queue-timeout",
    type=TIME,
    metavar="TIME",
    help="A request waits this long at most; default: the stack's, or 60s.",
)
@click.option(
    "--cpu", "cpu_text", default="0.5,0.7,0.8", show_default=True, metavar="IDLE,FULL,TARGET",
    help="For the comparison with scaling on CPU: an engine's CPU with no work and with all places taken, and the target, as "
    "shares of what its pod requests. Assumed, not measured.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the arrivals.")
@click.option(
    "--width", type=click.IntRange(60, 400), help="Columns to print in; default: the terminal's, at most 120."
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON, second by second.")
def scale_plan_command(stack: Path | None, phases: tuple[Phase, ...] | None, **given: Any) -> None:
    """Try a load and a scaling policy on a model of the front and its engines, before you buy GPUs.

    \b
    Examples:
      outrider scale-plan
      outrider scale-plan my.yaml --load 4@10m,12@40m,4@40m --gpus 2
      outrider scale-plan --times my-bench/run.json --set up_period_s=60 --set max_replicas=4
      outrider scale-plan --policy rendered.yaml --json

    \b
    Everything it prints is modelled: the queue is the front's own code, engines
    go by the times of a bench, the autoscaler by Kubernetes' documented rules.
    docs/scale.md says what that leaves out. `outrider scale-demo` shows the
    same with real processes.
    """
    site = _site(stack, given)
    policy = _policy(given["policy_path"], given["settings"], site.concurrency)
    load = phases or _default_load(site)
    idle, full, target = _cpu(given["cpu_text"])
    # Where the policy has no target for the queue wait, 500 ms is what the answer is held to.
    wanted_ms = next((one.target for one in policy.metrics if quantity(one) == "queue_wait_ms"), 500.0)
    cpu, seed = Cpu(idle, full), given["seed"]
    try:
        found = plan(load, site, policy, wanted_ms, seed=seed, cpu=cpu)
        by_cpu = plan(load, site, on_cpu(policy, target), wanted_ms, seed=seed, cpu=cpu)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}\n  → Take a shorter or a lighter load.", param_hint="--load"
        ) from error
    whole = Plan(load, site, policy, given["gpus"], found, by_cpu, (idle, full, target))
    if given["as_json"]:
        click.echo(json.dumps(_members(whole), indent=1))
        return
    columns = given["width"] or min(shutil.get_terminal_size((80, 24)).columns, 120)
    click.echo(as_text(whole, max(columns, 60)))


def _site(stack: Path | None, given: Mapping[str, Any]) -> Site:
    times = read_times(given["source"], given["arm"])
    lane, places = _of_stack(stack, times)
    places = given["concurrency"] or places
    if places > times.largest:
        raise click.BadParameter(
            f"{places} at once, but the run has no times beyond {times.largest}\n"
            f"  → Take --concurrency {times.largest}, or --times with a run measured at {places}.",
            param_hint="--concurrency",
        )
    queue = LaneRule(given["max_queue"] or lane.max_queue, given["queue_timeout"] or lane.queue_timeout_s)
    tokens = given["output_tokens"] or times.output_tokens
    return Site(times, places, tokens, given["start_s"], queue)


def _of_stack(path: Path | None, times: ServiceTimes) -> tuple[LaneRule, int]:
    if path is None:
        return LaneRule(), min(64, times.largest)
    stack = load_stack(path)
    return settings_from(stack).lanes["interactive"], stack.engine.max_running_requests


def _policy(path: str | None, settings: Sequence[str], places: int) -> Policy:
    policy = read_policy(path) if path else declared(places)
    given = {}
    for text in settings:
        name, equals, value = text.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            wrong = f"{text!r} is not KEY=NUMBER" if equals else f"{text!r} is not KEY=VALUE"
            raise click.BadParameter(f"{wrong}\n  → {_HINT}", param_hint="--set") from None
    try:
        policy = with_settings(policy, given)
    except ValueError as error:
        raise click.BadParameter(f"{error}\n  → {_HINT}", param_hint="--set") from error
    for metric in policy.metrics:
        quantity(metric)
    return policy


def _cpu(text: str) -> tuple[float, float, float]:
    try:
        idle, full, target = (float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not three numbers, as 0.5,0.7,0.8", param_hint="--cpu"
        ) from None
    if not 0 <= idle <= full or target <= 0:
        raise click.BadParameter("0 ≤ IDLE ≤ FULL and 0 < TARGET", param_hint="--cpu")
    return idle, full, target


def _default_load(site: Site) -> tuple[Phase, ...]:
    base = BASE_SHARE * site.times.requests_per_s(site.concurrency, site.output_tokens)
    return Phase(base, 600), Phase(3 * base, 2400), Phase(base, 2400)


def _members(whole: Plan) -> dict[str, object]:
    """The JSON: everything under ``modelled``, what went in beside it."""
    return {
        "schema": "outrider/scale-plan/v1",
        "load": [asdict(phase) for phase in whole.load],
        "site": asdict(whole.site),
        "policy": {
            **asdict(whole.policy),
            "metrics": [
                {"kind": "external" if isinstance(one, External) else "per-pod", **asdict(one)}
                for one in whole.policy.metrics
            ],
        },
        "gpus_per_replica": whole.gpus,
        "modelled": _outcome(whole.found, whole.gpus),
        "modelled_scaling_on_cpu": {
            "assumed": dict(zip(("idle", "full", "target"), whole.cpu, strict=True)),
            **_outcome(whole.by_cpu, whole.gpus),
        },
    }


def _outcome(found: Outcome, gpus: int) -> dict[str, object]:
    return {"gpu_hours": found.replica_hours * gpus, "lost": found.lost, **asdict(found)}

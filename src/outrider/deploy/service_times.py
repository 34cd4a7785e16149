"""How long an engine takes at each load: out of a bench run's `run.json`, or the H200 runs that come with Outrider."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from outrider.bench.document import BASELINE, RunDocument
from outrider.core.errors import MeasurementError

BUILT_IN = "h200_times.json"


@dataclass(frozen=True, slots=True)
class Point:
    """At `running` requests at once: time to the first token (p50, without the queue) and mean time per token after it, ms.

    `step_ms` is a step of the engine, `tokens_per_step` what one makes of a request.
    """

    running: int
    ttft_ms: float
    tpot_ms: float
    step_ms: float
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """One arm of one run, by load. `hardware` as the run names it, `gpu` whether its times are a GPU's, `notes` its labels."""

    run: str
    arm: str
    hardware: str
    gpu: bool
    output_tokens: int
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def largest(self) -> int:
        """The largest load measured."""
        return self.points[-1].running

    def ttft_s(self, running: float) -> float:
        """Seconds from dispatch to the first token with `running` requests at the engine."""
        return self._between(running, [point.ttft_ms for point in self.points]) / 1e3

    def tpot_s(self, running: float) -> float:
        """Seconds per token after the first."""
        return self._between(running, [point.tpot_ms for point in self.points]) / 1e3

    def requests_per_s(self, running: int, output_tokens: int) -> float:
        """What one replica serves when it always has `running` requests."""
        return running / (self.ttft_s(running) + (output_tokens - 1) * self.tpot_s(running))

    def _between(self, running: float, values: list[float]) -> float:
        """Linear between measured loads; the nearest one's value outside of them."""
        loads = [point.running for point in self.points]
        at = bisect_left(loads, running)
        if at == 0:
            return values[0]
        if at == len(loads):
            return values[-1]
        share = (running - loads[at - 1]) / (loads[at] - loads[at - 1])
        return values[at - 1] + share * (values[at] - values[at - 1])


def built_in() -> Mapping[str, Mapping[str, ServiceTimes]]:
    """The committed H200 runs: run → arm → times. `results/h200` holds the whole of them."""
    text = resources.files("outrider.deploy").joinpath(BUILT_IN).read_text(encoding="utf-8")
    return {
        run: {
            arm: ServiceTimes(
                **{
                    **rows,
                    "points": tuple(Point(**point) for point in rows["points"]),
                    "notes": tuple(rows["notes"]),
                }
            )
            for arm, rows in arms.items()
        }
        for run, arms in json.loads(text).items()
    }


def built_in_text(runs: Mapping[str, RunDocument]) -> str:
    """The text of `BUILT_IN` out of the runs' documents."""
    rows = {name: {arm: asdict(one) for arm, one in times_of(run).items()} for name, run in runs.items()}
    return json.dumps(rows, indent=1) + "\n"


def read_times(source: str, arm: str | None) -> ServiceTimes:
    """The times of `arm` in a built-in run or a `run.json`; the one measured at the most loads where no arm is named.

    Raises MeasurementError: there is no such run or arm, or it has no cell that stands.
    """
    arms = built_in().get(source)
    if arms is None:
        arms = times_of(read_run(Path(source)))
    if arm is None:
        return max(arms.values(), key=lambda one: (len(one.points), one.arm != BASELINE))
    if arm not in arms:
        raise MeasurementError(
            f"{Path(source).name} has no times of the arm {arm!r}", hint=f"It has: {', '.join(arms)}."
        )
    return arms[arm]


def read_run(path: Path) -> RunDocument:
    """A run's document. Raises MeasurementError."""
    hint = f"Name a run.json that `outrider bench` wrote, or one of {', '.join(built_in())}."
    try:
        return RunDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise MeasurementError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except ValidationError as error:
        raise MeasurementError(f"{path.name} is not a bench run of this version", hint=hint) from error


def times_of(run: RunDocument) -> dict[str, ServiceTimes]:
    """Every arm's times; of several prompt sets the first one that has the arm. Raises MeasurementError without any."""
    found = {}
    for arm in run.arms:
        for prompt_set in run.prompt_sets:
            points = tuple(
                Point(cell.concurrency, ttft, tpot, step, cell.pooled.tokens_per_chunk or 1.0)
                for cell in sorted(run.cells, key=lambda each: each.concurrency)
                if (cell.arm, cell.prompt_set, cell.state) == (arm.name, prompt_set.name, "ok")
                and cell.pooled
                if (ttft := cell.pooled.ttft_ms.p50) and (tpot := cell.pooled.tpot_ms.mean)
                if (step := cell.pooled.step_ms)
            )
            if points:
                hardware, gpu = _hardware(run)
                found[arm.name] = ServiceTimes(
                    run.name, arm.name, hardware, gpu, run.settings.output_tokens, points, _notes(run)
                )
                break
    if not found:
        raise MeasurementError(
            f"the run {run.name} has no cell with times", hint="Repeat it; see its report."
        )
    return found


def _hardware(run: RunDocument) -> tuple[str, bool]:
    told = run.provenance.get("hardware")
    facts = told if isinstance(told, dict) else {}
    accelerators = facts.get("accelerators")
    on_cpu = "(cpu)" in str(run.provenance.get("engine"))
    if isinstance(accelerators, list) and accelerators and not on_cpu:
        return str(accelerators[0]).partition(",")[0], True
    return f"CPU ({facts.get('processor') or 'unknown'})", False


def _notes(run: RunDocument) -> tuple[str, ...]:
    labels = run.labels
    return (
        f"{labels.weights} weights, {labels.acceptance} acceptance, temperature {labels.temperature:g}",
        *(("not every cell is steady",) if any(c.pooled and not c.pooled.steady for c in run.cells) else ()),
    )

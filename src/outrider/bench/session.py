"""One bench from a stack to its report: what `outrider bench`, `tune` and `forecast` have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pydantic import JsonValue

from outrider.bench import document
from outrider.bench.arms import plan_arms
from outrider.bench.folder import RunFolder
from outrider.bench.matrix import requests_for
from outrider.bench.run import Bench, BenchPlan
from outrider.core.errors import MeasurementError, StackError
from outrider.core.provenance import program, provenance, redact, version_of
from outrider.engines.base import Engine, Install
from outrider.launch.judged import judged
from outrider.launch.service import Service
from outrider.measure.load import LoadRunner
from outrider.measure.prompts import PromptSet
from outrider.stack.models import Stack
from outrider.stack.shapes import shaped


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants measured. None: the default for the machine, which is smaller on a CPU.

    `requests`: counted requests of one cell by concurrency. `warmup`: uncounted ones before a cell, 0: as many as run at once.
    `natural_end`: prompts of each set for the acceptance table.
    """

    arms: tuple[str, ...] = ()
    concurrency: tuple[int, ...] | None = None
    trials: int = 3
    output_tokens: int | None = None
    requests: dict[int, int] = field(default_factory=dict)
    warmup: int = 0
    temperature: float = 0.0
    natural_end: int = 16
    natural_tokens: int | None = None
    interleaved: bool = True
    prefix_cache: bool = False


CPU_WAVES = 7  # a CPU cell has this many times its concurrency in requests, and 12 at least: enough for a steady window


def settings_of(wish: Wish, device: str) -> document.Settings:
    """The wish with this machine's defaults. Raises MeasurementError for what cannot be run."""
    cpu = device == "cpu"
    concurrency = sorted(set(wish.concurrency or ((1, 4) if cpu else (1, 8, 32))))
    unknown = sorted(wish.requests.keys() - set(concurrency))
    if unknown or concurrency[0] < 1 or wish.trials < 1:
        raise MeasurementError(
            f"requests are given for {', '.join(map(str, unknown))} at once, which is not measured"
            if unknown
            else "concurrency and trials start at 1",
            hint=f"Measured are {', '.join(map(str, concurrency))} at once; --concurrency names others.",
        )
    if cpu:
        requests = {at: wish.requests.get(at, max(12, CPU_WAVES * at)) for at in concurrency}
    else:
        requests = {at: requests_for(at, wish.requests) for at in concurrency}
    return document.Settings(
        concurrency=concurrency,
        trials=wish.trials,
        output_tokens=wish.output_tokens or (64 if cpu else 256),
        requests=requests,
        warmup=wish.warmup,
        temperature=wish.temperature,
        natural_end_prompts=wish.natural_end,
        natural_end_tokens=wish.natural_tokens or (128 if cpu else 1024),
    )


@dataclass(frozen=True, slots=True)
class Session:
    """A stack made ready to be measured: its arms judged, what it runs on known.

    `dtype`: what the target's came to on this machine. `forecast`: the acceptance that is stated, where it is not measured.
    """

    stack: Stack
    engine: Engine
    install: Install
    plan: BenchPlan
    dtype: str = "auto"
    forecast: document.ForecastInfo | None = None

    def labels(self) -> document.Labels:
        """What kind of numbers will come of it."""
        made_up = [arm.stack.forecast for arm in self.plan.arms if arm.stack.forecast]
        synthetic = any(forecast.position_rates for forecast in made_up)
        notes = [] if self.plan.interleaved else ["arms were run one after the other, not interleaved"]
        if self.install.device == "cpu":
            notes.append(
                "a CPU run: ratios hold for this machine; its milliseconds and tok/s say nothing of a GPU"
            )
        notes += dict.fromkeys(note for prompts in self.plan.prompt_sets for note in prompts.notes)
        return document.Labels(
            weights="dummy" if self.stack.dummy_weights else "real",
            acceptance="synthetic" if synthetic else "measured",
            acceptance_source=next((forecast.source for forecast in made_up if forecast.source), ""),
            interleaved=self.plan.interleaved,
            absolute_times=self.install.device != "cpu",
            temperature=self.plan.settings.temperature,
            notes=notes,
        )

    def provenance(self, created: str) -> dict[str, JsonValue]:
        """Versions, revisions, hardware, command."""
        target, settings = self.stack.target, self.plan.settings
        found: dict[str, JsonValue] = provenance(["outrider", *sys.argv[1:]], created)  # type: ignore[assignment]
        return found | {
            "engine": f"{self.install.distribution} {self.install.version} ({self.install.device})",
            "plugin": version_of("outrider-vllm") if self.install.plugin else None,
            "target": redact(target.model),
            "target_revision": target.revision or target.sha256,
            "chat_template": "the stack's" if target.chat_template else "the model's own",
            "dtype": self.dtype,
            "quantization": target.quantization,
            "warmup_requests": {f"{at} at once": settings.warmup_requests(at) for at in settings.concurrency},
        }


def prepared(
    stack: Stack, engine: Engine, prompt_sets: Sequence[PromptSet], wish: Wish, say: Callable[[str], None]
) -> Session:
    """Plan the arms and judge each of them, before anything is started.

    Raises StackError with every arm's reasons at once, EngineError, MeasurementError.
    """
    install = engine.find(stack)
    settings = settings_of(wish, install.device)
    arms = plan_arms(stack, wish.arms, max(settings.concurrency), wish.prefix_cache)
    refused, dtype = [], stack.target.dtype
    for arm in arms:
        try:
            found = judged(shaped(arm.stack), engine, say if arm is arms[0] else lambda line: None)
            dtype = found.stack.target.dtype
        except StackError as error:
            refused += [problem for problem in error.problems if problem not in refused]
    if refused:
        raise StackError("These arms cannot be served; nothing was started.", tuple(refused))
    short = [
        f"{prompts.name}: {len(prompts.prompts)} prompts" for prompts in prompt_sets if not prompts.prompts
    ]
    if short:
        raise MeasurementError(f"nothing to send: {', '.join(short)}")
    return Session(
        stack,
        engine,
        install,
        BenchPlan(tuple(arms), tuple(prompt_sets), settings, wish.interleaved),
        dtype,
    )


def bare_document(session: Session) -> document.RunDocument:
    """Everything that is known before the first cell: the document without results."""
    stack, plan = session.stack, session.plan
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return document.RunDocument(
        schema=document.SCHEMA,
        name=stack.name or stack.served_name,
        created=created,
        complete=False,
        settings=plan.settings,
        labels=session.labels(),
        forecast=session.forecast,
        provenance=session.provenance(created),
        served_name=stack.served_name,
        price=stack.price.model_dump(mode="json") if stack.price else None,
        slo=stack.slo.model_dump(mode="json", exclude_none=True),
        arms=[arm.described() for arm in plan.arms],
        prompt_sets=[
            document.PromptSetInfo(
                name=prompts.name,
                prompts=len(prompts.prompts),
                source=prompts.source,
                sha256=prompts.prompts_sha256,
                license=prompts.license,
                dropped=dict(prompts.dropped),
                unused=prompts.unused,
                template=prompts.template,
                notes=list(prompts.notes),
            )
            for prompts in plan.prompt_sets
        ],
        cells=[],
    )


def measure(
    session: Session, folder: Path, runner: LoadRunner, say: Callable[[str], None], *, report: bool = True
) -> document.RunDocument | None:
    """Run what is not done yet, then write `run.json` and both reports, also when it is interrupted.

    Without `report` nothing is written but the measurements: `write_reports` does it later, on any machine.

    Raises MeasurementError (folder, generator, the extra is missing); KeyboardInterrupt after what is done was written.
    """
    if report:
        require_extra()
    run_folder = RunFolder(folder)
    start = partial(Service.start, options=("--forecast",)) if session.stack.forecast else Service.start
    bench = Bench(
        plan=session.plan,
        folder=run_folder,
        runner=runner,
        engine=session.engine,
        start=start,
        say=say,
        start_timeout_s=session.stack.engine.start_timeout_s,
    )
    try:
        bench.run(bare_document(session))
    except KeyboardInterrupt:
        if report:
            write_reports(folder)
        say("\ninterrupted; what is done is kept. The same command goes on from here.")
        raise
    return write_reports(folder) if report else None


def require_extra() -> None:
    """Raises MeasurementError if what the reports are made with is not installed."""
    missing = [name for name in ("numpy", "scipy", "jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise MeasurementError(
            f"the report needs {', '.join(missing)}",
            hint="`make bench-env`, or `pip install 'outrider[bench]'`; or measure here with --no-report, and write the "
            "report elsewhere with `outrider bench --report-only --out DIR`.",
        )


def write_reports(folder: Path) -> document.RunDocument:
    """`run.json`, `report.md` and `report.html` from what the folder holds. Raises MeasurementError."""
    require_extra()
    from outrider.bench.build import build  # noqa: PLC0415  (NumPy, SciPy and matplotlib: only now)
    from outrider.bench.report import write_report  # noqa: PLC0415
    from outrider.bench.report.write import put  # noqa: PLC0415

    found = build(RunFolder(folder))
    put(folder / "run.json", found.model_dump_json(by_alias=True, indent=1) + "\n")
    write_report(found, folder)
    return found


def renew_reports(file: Path) -> document.RunDocument:
    """A stored `run.json` and its reports told by today's code, in place: `NAME.json`, `NAME.md` and `NAME.html`, or
    `run.json` with `report.md` and `report.html`. Where anything changed, its provenance says which version reckoned.

    Raises MeasurementError.
    """
    require_extra()
    from outrider.bench.compare import read_run  # noqa: PLC0415
    from outrider.bench.renew import renewed  # noqa: PLC0415
    from outrider.bench.report import write_report  # noqa: PLC0415
    from outrider.bench.report.write import put  # noqa: PLC0415

    stored = read_run(file)
    found = renewed(stored)
    if found != stored:
        by: dict[str, JsonValue] = {**found.provenance, "answers_reckoned_by": {**program()}}
        found = found.model_copy(update={"provenance": by})
    put(file, found.model_dump_json(by_alias=True, indent=1) + "\n")
    write_report(found, file.parent, report_name(file))
    return found


def report_name(file: Path) -> str:
    """How the reports of a `run.json` are called, without an ending."""
    return "report" if file.name == "run.json" else file.stem

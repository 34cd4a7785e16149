"""From the run's folder to `run.json`: every cell out of its files, then what follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from outrider.bench import document
from outrider.bench.analysis import analyse
from outrider.bench.assemble import CellName, TrialData, cell, natural_end
from outrider.bench.figures import CellData, CellPrice, FigureRules
from outrider.bench.folder import CellRun, RunFolder
from outrider.bench.matrix import CellKey
from outrider.bench.run import BenchPlan
from outrider.bench.window import CPU_RULE, GPU_RULE
from outrider.measure.records import RequestRecord
from outrider.stack.models import Stack


@dataclass(frozen=True, slots=True)
class Origin:
    """What the folder does not know: the stack as the user wrote it, where the numbers come from, what kind they are."""

    stack: Stack
    name: str
    created: str
    provenance: dict[str, JsonValue]
    labels: document.Labels


@dataclass(frozen=True, slots=True)
class _Built:
    cells: list[document.Cell]
    natural: list[document.NaturalEnd]


def build(plan: BenchPlan, folder: RunFolder, origin: Origin) -> document.RunDocument:
    """The whole document, from what is done so far; cells that were not run are `missing`."""
    stack = origin.stack
    price = CellPrice(stack.price.usd_per_hour, stack.price.accelerators) if stack.price else None
    rules = FigureRules(steady=GPU_RULE if origin.labels.absolute_times else CPU_RULE)
    built = _built(plan, folder, price, rules)
    every = [one.state for one in built.cells] + [one.state for one in built.natural]
    bare = document.RunDocument(
        schema=document.SCHEMA,
        name=origin.name,
        created=origin.created,
        complete="missing" not in every,
        settings=plan.settings,
        labels=origin.labels,
        provenance=origin.provenance,
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
        cells=built.cells,
        natural_end=built.natural,
    )

    def records_of(arm: str, prompt_set: str, concurrency: int, trial: int) -> Sequence[RequestRecord]:
        run = folder.load(CellKey(arm, prompt_set, concurrency, trial))
        return run.load.records if run and run.load else ()

    return analyse(bare, records_of)


def _built(plan: BenchPlan, folder: RunFolder, price: CellPrice | None, rules: FigureRules) -> _Built:
    built = _Built([], [])
    lengths = {arm.name: arm.stack.draft.length for arm in plan.arms}
    for arm in plan.arms:
        for prompts in plan.prompt_sets:
            for concurrency in plan.settings.concurrency:
                runs = [
                    folder.load(CellKey(arm.name, prompts.name, concurrency, trial))
                    for trial in range(1, plan.settings.trials + 1)
                ]
                trials = [_trial(run, lengths[arm.name]) for run in runs if run is not None]
                built.cells.append(cell(CellName(arm.name, prompts.name, concurrency), trials, price, rules))
            if plan.settings.natural_end_prompts:
                built.natural.append(_natural(folder, CellKey(arm.name, prompts.name, 0, 1), lengths, rules))
    return built


def _data(run: CellRun, draft_length: int) -> CellData | None:
    return (
        CellData(run.load, run.trace, run.key.concurrency, draft_length)
        if run.load and run.load.records
        else None
    )


def _trial(run: CellRun, draft_length: int) -> TrialData:
    return TrialData(run.key.trial, run.order, run.started, _data(run, draft_length), run.reason)


def _natural(
    folder: RunFolder, key: CellKey, lengths: dict[str, int], rules: FigureRules
) -> document.NaturalEnd:
    run = folder.load(key)
    data = _data(run, lengths[key.arm]) if run else None
    if run is None or data is None:
        state, reason = ("missing", "not run yet") if run is None else ("failed", run.reason or "no records")
        return document.NaturalEnd(arm=key.arm, prompt_set=key.prompt_set, state=state, reason=reason)
    base = None
    if key.arm != document.BASELINE:
        base = folder.load(CellKey(document.BASELINE, key.prompt_set, 0, key.trial))
    records = base.load.records if base and base.load else ()
    return natural_end(CellName(key.arm, key.prompt_set, 0), data, records, run.token_parts, rules)

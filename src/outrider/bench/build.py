"""From the run's folder to `run.json`: every cell out of its files, then what follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench import document
from outrider.bench.analysis import analyse
from outrider.bench.assemble import CellName, TrialData, cell, natural_end
from outrider.bench.figures import CellData, CellPrice, FigureRules
from outrider.bench.folder import CellRun, RunFolder
from outrider.bench.forecast_answers import finished
from outrider.bench.matrix import CellKey
from outrider.bench.window import CPU_RULE, GPU_RULE
from outrider.measure.records import RequestRecord


def build(folder: RunFolder) -> document.RunDocument:
    """The whole document, from what is done so far; cells that were not run are `missing`. Raises MeasurementError."""
    bare = folder.about()
    price = None
    if bare.price:
        price = CellPrice(float(str(bare.price["usd_per_hour"])), int(str(bare.price["accelerators"])))
    rules = FigureRules(steady=GPU_RULE if bare.labels.absolute_times else CPU_RULE)
    cells, natural = [], []
    for arm in bare.arms:
        for prompts in bare.prompt_sets:
            for concurrency in bare.settings.concurrency:
                runs = [
                    folder.load(CellKey(arm.name, prompts.name, concurrency, trial))
                    for trial in range(1, bare.settings.trials + 1)
                ]
                trials = [_trial(run, arm.draft_length) for run in runs if run is not None]
                cells.append(cell(CellName(arm.name, prompts.name, concurrency), trials, price, rules))
            if bare.settings.natural_end_prompts:
                natural.append(
                    _natural(folder, CellKey(arm.name, prompts.name, 0, 1), arm.draft_length, rules)
                )
    states = [one.state for one in cells] + [one.state for one in natural]
    whole = all(len(one.trials) == bare.settings.trials for one in cells)
    full = bare.model_copy(
        update={"cells": cells, "natural_end": natural, "complete": whole and "missing" not in states}
    )

    def records_of(arm: str, prompt_set: str, concurrency: int, trial: int) -> Sequence[RequestRecord]:
        run = folder.load(CellKey(arm, prompt_set, concurrency, trial))
        return run.load.records if run and run.load else ()

    found = analyse(full, records_of)
    return finished(found, found.forecast) if found.forecast else found


def _data(run: CellRun, draft_length: int) -> CellData | None:
    return (
        CellData(run.load, run.trace, run.key.concurrency, draft_length)
        if run.load and run.load.records
        else None
    )


def _trial(run: CellRun, draft_length: int) -> TrialData:
    sent = run.warmup
    warmup = document.WarmUp(waves_s=list(sent.waves_s), unsettled=sent.unsettled) if sent else None
    return TrialData(run.key.trial, run.order, run.started, _data(run, draft_length), run.reason, warmup)


def _natural(folder: RunFolder, key: CellKey, draft_length: int, rules: FigureRules) -> document.NaturalEnd:
    run = folder.load(key)
    data = _data(run, draft_length) if run else None
    if run is None or data is None:
        state, reason = ("missing", "not run yet") if run is None else ("failed", run.reason or "no records")
        return document.NaturalEnd(arm=key.arm, prompt_set=key.prompt_set, state=state, reason=reason)
    base = None
    if key.arm != document.BASELINE:
        base = folder.load(CellKey(document.BASELINE, key.prompt_set, 0, key.trial))
    records = base.load.records if base and base.load else ()
    return natural_end(CellName(key.arm, key.prompt_set, 0), data, records, run.token_parts, rules)

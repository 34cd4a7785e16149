"""Run documents for gates: figures of every trial drawn from a model of noise, no records behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from outrider.bench import document
from outrider.bench.acceptance import Counted, acceptance
from outrider.bench.document import Cell, Figures, Quantiles, RunDocument, Trial
from outrider.core.acceptance import SpecCounters

RATES = (0.78, 0.58, 0.42)


@dataclass(frozen=True)
class Model:
    """Truth and noise of one run. `trial_noise`: sd of what moves all cells of a server's start; `cell_noise`: of each cell.

    `tpot` and `rates` multiply an arm's TPOT and position rates. Acceptance is drawn draft by draft: `drafts` a cell and trial.
    """

    seed: int
    trials: int = 3
    trial_noise: float = 0.02
    cell_noise: float = 0.03
    drafts: int = 1500
    tpot: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    sets: tuple[str, ...] = ("code", "chat")
    concurrency: tuple[int, ...] = (1, 4)
    temperature: float = 0.7


ARMS = (("baseline", "none", 0, 15.0), ("eagle3-k3", "eagle3", 3, 8.0))


def run_of(model: Model) -> RunDocument:
    """The run: two arms, two sets, two loads, three trials unless told otherwise."""
    rng = np.random.default_rng(model.seed)
    cells = []
    for name, _, length, tpot in ARMS:
        starts = model.trial_noise * rng.standard_normal(model.trials)
        for prompts in model.sets:
            for concurrency in model.concurrency:
                trials, counted = [], []
                for trial in range(model.trials):
                    noise = starts[trial] + model.cell_noise * rng.standard_normal()
                    mean = tpot * model.tpot.get(name, 1.0) * concurrency**0.1 * np.exp(noise)
                    rates = [rate * model.rates.get(name, 1.0) for rate in RATES[:length]]
                    counted.append(_drafted(rng, rates, model.drafts if length else 0))
                    trials.append(
                        Trial(trial=trial + 1, order=1, started="", figures=_figures(mean, [counted[-1]]))
                    )
                cells.append(
                    Cell(
                        arm=name,
                        prompt_set=prompts,
                        concurrency=concurrency,
                        state="ok",
                        trials=trials,
                        pooled=_figures(tpot, counted),
                    )
                )
    return _document(model, cells)


def _drafted(rng: np.random.Generator, rates: list[float], drafts: int) -> Counted:
    """Each draft accepts a prefix: position i with probability rates[i]."""
    draws = rng.random(drafts)
    per_position = tuple(float((draws < rate).sum()) for rate in rates)
    return Counted(SpecCounters(drafts, drafts * len(rates), sum(per_position), per_position))


def _figures(tpot: float, counted: list[Counted]) -> Figures:
    empty = Quantiles(n=0)
    return Figures(
        requests=40,
        ok=40,
        output_tokens=4000,
        window_s=40,
        steady=True,
        ttft_ms=empty,
        tpot_ms=Quantiles(n=40, mean=tpot, p50=tpot),
        token_itl_ms=empty,
        step_gap_ms=empty,
        e2e_ms=empty,
        queue_wait_ms=empty,
        first_text_ms=empty,
        acceptance=acceptance(counted),
    )


def _document(model: Model, cells: list[Cell]) -> RunDocument:
    return RunDocument(
        schema=document.SCHEMA,
        name=f"run-{model.seed}",
        created="2026-01-01T00:00:00+00:00",
        complete=True,
        settings=document.Settings(
            concurrency=list(model.concurrency),
            trials=model.trials,
            output_tokens=100,
            requests={},
            warmup=1,
            temperature=model.temperature,
            natural_end_prompts=0,
            natural_end_tokens=0,
        ),
        labels=document.Labels(
            weights="real",
            acceptance="measured",
            interleaved=True,
            absolute_times=True,
            temperature=model.temperature,
        ),
        provenance={"hardware": {"processor": "x", "cores": 2, "accelerators": [], "memory_gib": 24.0}},
        served_name="m",
        arms=[document.Arm(name=name, method=method, draft_length=k) for name, method, k, _ in ARMS],
        prompt_sets=[
            document.PromptSetInfo(name=name, prompts=40, source=name, sha256=name) for name in model.sets
        ],
        cells=cells,
    )

"""Run documents for gates: figures of every trial drawn from a model of noise, no records behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from outrider.bench import document
from outrider.bench.acceptance import Counted, acceptance
from outrider.bench.document import Cell, Figures, Quantiles, RunDocument, Trial
from outrider.bench.quantiles import P95_N, P99_N
from outrider.core.acceptance import SpecCounters

RATES = (0.78, 0.58, 0.42)
DRAFT = "eagle3-k3"


@dataclass(frozen=True)
class Model:
    """Truth and noise of one run. `trial_noise`: sd of what moves all cells of a server's start; `cell_noise`: of each cell.

    `tpot` and `rates` multiply an arm's times and position rates; `planted` (figure, arm, set, concurrency) multiplies one
    figure of one cell (set "" and concurrency 0: of every cell); `off` cells draft nothing. Acceptance is drawn draft by draft:
    `drafts` a cell and trial. `odd`: more noise, of the kind that its name says (`NOISE`).
    """

    seed: int
    trials: int = 3
    trial_noise: float = 0.02
    cell_noise: float = 0.03
    drafts: int = 1500
    requests: int = 123
    tpot: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    planted: Mapping[tuple[str, str, str, int], float] = field(default_factory=dict)
    off: tuple[tuple[str, str, int], ...] = ()
    sets: tuple[str, ...] = ("code", "chat")
    concurrency: tuple[int, ...] = (1, 4)
    temperature: float = 0.7
    odd: str = ""

    def factor(self, figure: str, arm: str, prompts: str, concurrency: int) -> float:
        """What was planted in this figure of this cell."""
        return self.planted.get((figure, arm, prompts, concurrency), 1.0) * self.planted.get(
            (figure, arm, "", 0), 1.0
        )


# Nine ways in which a machine is noisy.
NOISE = {
    "quiet": {"trial_noise": 0.005, "cell_noise": 0.005},
    "usual": {"trial_noise": 0.02, "cell_noise": 0.02},
    "noisy starts": {"trial_noise": 0.04, "cell_noise": 0.01},
    "noisy cells": {"trial_noise": 0.01, "cell_noise": 0.05},
    "heavy tails": {"trial_noise": 0.01, "cell_noise": 0.0, "odd": "heavy tails"},
    "rare stalls": {"trial_noise": 0.01, "cell_noise": 0.01, "odd": "rare stalls"},
    "drift": {"trial_noise": 0.01, "cell_noise": 0.01, "odd": "drift"},
    "one noisy load": {"trial_noise": 0.01, "cell_noise": 0.01, "odd": "one noisy load"},
    "one noisy arm": {"trial_noise": 0.01, "cell_noise": 0.01, "odd": "one noisy arm"},
}

ARMS = (("baseline", "none", 0, 15.0), (DRAFT, "eagle3", 3, 8.0))


def noisy(name: str, seed: int, **more: object) -> Model:
    """A run on the machine of that name."""
    return replace(Model(seed), **{**NOISE[name], **more})  # type: ignore[arg-type]


def run_of(model: Model) -> RunDocument:
    """The run: two arms, two sets, two loads, three trials unless told otherwise."""
    rng = np.random.default_rng(model.seed)
    cells = []
    for name, _, length, tpot in ARMS:
        starts = model.trial_noise * rng.standard_normal(model.trials) + _odd_starts(model, name, rng)
        for prompts in model.sets:
            for concurrency in model.concurrency:
                noise = starts + model.cell_noise * rng.standard_normal(model.trials)
                noise = noise + _odd_cells(model, (name, prompts, concurrency), rng)
                rates = [rate * model.rates.get(name, 1.0) for rate in RATES[:length]]
                drafts = model.drafts if length and (name, prompts, concurrency) not in model.off else 0
                counted = [_drafted(rng, rates, drafts) for _ in range(model.trials)]
                times = tpot * model.tpot.get(name, 1.0) * concurrency**0.1 * np.exp(noise)
                trials = [
                    Trial(
                        trial=place + 1,
                        order=1,
                        started="",
                        figures=_figures(model, (name, prompts, concurrency), float(times[place]), one, rng),
                    )
                    for place, one in enumerate(counted)
                ]
                pooled = _figures(model, (name, prompts, concurrency), tpot, counted[0], rng)
                cells.append(
                    Cell(
                        arm=name,
                        prompt_set=prompts,
                        concurrency=concurrency,
                        state="ok",
                        trials=trials,
                        pooled=pooled.model_copy(update={"acceptance": acceptance(counted)}),
                    )
                )
    return _document(model, cells)


def _odd_starts(model: Model, arm: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise of a server's starts that is not Gaussian, equal and independent."""
    if model.odd == "drift":
        return 0.03 * np.arange(model.trials)
    if model.odd == "one noisy arm" and arm == DRAFT:
        return 0.03 * rng.standard_normal(model.trials)
    return np.zeros(model.trials)


def _odd_cells(model: Model, cell: tuple[str, str, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise of a cell's trials that is not Gaussian, equal and independent."""
    match model.odd:
        case "heavy tails":
            return 0.02 * rng.standard_t(3, model.trials)
        case "rare stalls":
            return 0.3 * (rng.random(model.trials) < 0.03)
        case "one noisy load" if cell[1:] == (model.sets[0], model.concurrency[0]):
            return 0.08 * rng.standard_normal(model.trials)
        case "one noisy arm" if cell[0] == DRAFT:
            return 0.04 * rng.standard_normal(model.trials)
    return np.zeros(model.trials)


def _drafted(rng: np.random.Generator, rates: list[float], drafts: int) -> Counted:
    """Each draft accepts a prefix: position i with probability rates[i]."""
    draws = rng.random(drafts)
    per_position = tuple(float((draws < rate).sum()) for rate in rates)
    return Counted(SpecCounters(drafts, drafts * len(rates), sum(per_position), per_position))


def _figures(
    model: Model, cell: tuple[str, str, int], time_ms: float, counted: Counted, rng: np.random.Generator
) -> Figures:
    """One trial: every time follows the step's, with noise of its own: half a cell's noise, of tails twice as much."""
    empty = Quantiles(n=0)
    own = max(model.cell_noise, 0.02 * bool(model.odd))

    def like(figure: str, times: float, noise: float) -> float:
        return float(
            time_ms * times * model.factor(figure, *cell) * np.exp(noise * own * rng.standard_normal())
        )

    tpot = time_ms * model.factor("TPOT", *cell)
    return Figures(
        requests=model.requests,
        ok=model.requests,
        output_tokens=100 * model.requests,
        window_s=40,
        steady=True,
        output_tok_s=1e6 / like("output tok/s", 1.1, 0.5),
        ttft_ms=_quantiles(model.requests, like("TTFT", 5, 1), like("TTFT tail", 9, 2)),
        tpot_ms=Quantiles(n=model.requests, mean=tpot, p50=tpot),
        token_itl_ms=empty,
        step_gap_ms=_quantiles(40 * model.requests, tpot * 2, like("step gap", 4, 2)),
        e2e_ms=_quantiles(model.requests, 100 * tpot, like("E2E tail", 130, 1)),
        queue_wait_ms=empty,
        first_text_ms=empty,
        acceptance=acceptance([counted]),
    )


def _quantiles(n: int, median: float, tail: float) -> Quantiles:
    return Quantiles(
        n=n, p50=median, p95=0.8 * tail if n >= P95_N else None, p99=tail if n >= P99_N else None
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

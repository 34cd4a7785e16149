"""A whole run made from a model with known truth: step times by batch, acceptance by prompt set, noise by trial."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from outrider.bench import document
from outrider.bench.assemble import CellName, TrialData, cell
from outrider.bench.figures import CellData, CellPrice, FigureRules
from outrider.bench.window import SteadyRule
from outrider.measure.counters import CounterTrace
from outrider.measure.load import LoadResult
from outrider.measure.records import RequestRecord, TokenEvent
from tests.bench.records import counters, trace

RULES = FigureRules(steady=SteadyRule(seconds=1.0, waves=3.0))


@dataclass(frozen=True)
class Draft:
    """One arm: K, position rates by prompt set, T(b, K) in seconds by concurrency."""

    name: str
    method: str
    length: int
    rates: dict[str, Sequence[float]]
    step_s: dict[int, float]


@dataclass(frozen=True)
class Run:
    """What to simulate. `noise`: relative sd of a trial's step time; `spoil` changes a trial's data of one cell."""

    drafts: Sequence[Draft]
    trials: int = 3
    tokens: int = 48
    waves: int = 6
    noise: float = 0.02
    seed: int = 0
    price: CellPrice | None = None
    failed: dict[tuple[str, str, int], str] = field(default_factory=dict)

    @property
    def sets(self) -> list[str]:
        """Prompt sets, as the baseline has them."""
        return list(self.drafts[0].rates)

    @property
    def concurrency(self) -> list[int]:
        """The grid."""
        return sorted(self.drafts[0].step_s)


def _emissions(rng: np.random.Generator, rates: Sequence[float], tokens: int) -> list[int]:
    """Tokens of each step after the first token until `tokens` are made; position i is reached with probability rates[i]."""
    made, steps = 1, []
    while made < tokens:
        draw = rng.random()
        step = 1 + sum(draw < rate for rate in rates)
        steps.append(min(step, tokens - made))
        made += steps[-1]
    return steps


def trial_data(run: Run, draft: Draft, prompts: str, concurrency: int, rng: np.random.Generator) -> CellData:
    """One trial: a closed loop of C places; every step takes T(b, K) with 5 % jitter, times the trial's own factor."""
    factor = 1 + run.noise * rng.standard_normal()
    rates = draft.rates[prompts]
    records: list[RequestRecord] = []
    steps = accepted = first = generated = 0
    per_position = [0] * draft.length
    for place in range(concurrency):
        now = 100.0 + 0.001 * place
        for wave in range(run.waves):
            started = now + 0.002
            at = started + 2 * draft.step_s[concurrency] * factor
            events = [TokenEvent(at, 1)]
            for made in _emissions(rng, rates, run.tokens):
                at += draft.step_s[concurrency] * factor * (1 + 0.05 * abs(rng.standard_normal()))
                events.append(TokenEvent(at, made))
                steps += 1
                accepted += made - 1
                for position in range(made - 1):
                    per_position[position] += 1
            first += 1
            generated += run.tokens
            now = at
            number = wave * concurrency + place
            records.append(
                RequestRecord(
                    id=f"{number}",
                    prompt_id=f"{prompts}/{number % 40}",
                    turn=0,
                    started_s=started,
                    ended_s=at,
                    events=tuple(events),
                    prompt_tokens=100,
                    output_tokens=run.tokens,
                    finish="length",
                )
            )
    records.sort(key=lambda record: record.started_s)
    began, ended = records[0].started_s, max(record.ended_s for record in records)
    drafts = steps if draft.length else 0
    after = counters(
        drafts=drafts,
        proposed=drafts * draft.length,
        accepted=accepted,
        per_position=tuple(per_position),
        steps=float(steps),
        generation=float(generated),
        first=float(first),
    )
    seen: CounterTrace = trace(
        counters(steps=0.0, generation=0.0, first=0.0, per_position=(0,) * draft.length), after, began_s=began
    )
    return CellData(LoadResult(tuple(records), began, ended, "simulated"), seen, concurrency, draft.length)


@dataclass
class Simulated:
    """The document without its derived parts, and the records behind it."""

    document: document.RunDocument
    records: dict[tuple[str, str, int, int], tuple[RequestRecord, ...]]

    def records_of(self, arm: str, prompts: str, concurrency: int, trial: int) -> Sequence[RequestRecord]:
        """As `analyse` asks for them."""
        return self.records.get((arm, prompts, concurrency, trial), ())


def simulate(run: Run) -> Simulated:
    """All cells of all arms. Each has randomness of its own, so that a change of one leaves the others as they are."""
    cells, records = [], {}
    for number, draft in enumerate(run.drafts):
        for place, prompts in enumerate(run.sets):
            for concurrency in run.concurrency:
                trials = []
                for trial in range(1, run.trials + 1):
                    if reason := run.failed.get((draft.name, prompts, concurrency)):
                        trials.append(TrialData(trial, trial, "", failed=reason))
                        continue
                    rng = np.random.default_rng([run.seed, number, place, concurrency, trial])
                    data = trial_data(run, draft, prompts, concurrency, rng)
                    records[draft.name, prompts, concurrency, trial] = data.load.records
                    trials.append(TrialData(trial, trial, "2026-01-01T00:00:00+00:00", data))
                cells.append(cell(CellName(draft.name, prompts, concurrency), trials, run.price, RULES))
    return Simulated(_document(run, cells), records)


def _document(run: Run, cells: list[document.Cell]) -> document.RunDocument:
    price = run.price
    return document.RunDocument(
        schema=document.SCHEMA,
        name="simulated",
        created="2026-01-01T00:00:00+00:00",
        complete=True,
        settings=document.Settings(
            concurrency=run.concurrency,
            trials=run.trials,
            output_tokens=run.tokens,
            requests={concurrency: run.waves * concurrency for concurrency in run.concurrency},
            warmup=2,
            temperature=0.0,
            natural_end_prompts=0,
            natural_end_tokens=0,
        ),
        labels=document.Labels(
            weights="real", acceptance="measured", interleaved=True, absolute_times=True, temperature=0.0
        ),
        provenance={"hardware": {"accelerator": "simulated"}, "engine": "simulated 1"},
        served_name="m",
        price={"usd_per_hour": price.usd_per_hour, "accelerators": price.accelerators} if price else None,
        slo={"ttft_p99_ms": 1000.0},
        arms=[document.Arm(name=d.name, method=d.method, draft_length=d.length) for d in run.drafts],
        prompt_sets=[
            document.PromptSetInfo(name=name, prompts=40, source=name, sha256=name) for name in run.sets
        ],
        cells=cells,
    )


# Step times in the proportions of one H200 with a 70B FP8 shape (engines' facts): 48 tok/s at batch 1, 1.53 and 1.12 × dearer …
GRID = (1, 4, 16, 64)
BASE_S = {1: 0.0207, 4: 0.0210, 16: 0.0220, 64: 0.0281}
GOOD, POOR = (0.82, 0.68, 0.56), (0.40, 0.15, 0.05)
LONG = (0.85, 0.72, 0.60, 0.45, 0.33, 0.25, 0.17)


def baseline(sets: Sequence[str] = ("code", "chat")) -> Draft:
    """No draft."""
    return Draft("baseline", "none", 0, dict.fromkeys(sets, ()), BASE_S)


def eagle(sets: Sequence[str] = ("code", "chat")) -> Draft:
    """AL 3.06 on the first set, 1.6 on the others; a step 1.2 × at batch 1 and 2 × at 64."""
    rates = {name: POOR if place else GOOD for place, name in enumerate(sets)}
    factors = dict(zip(GRID, (1.2, 1.25, 1.4, 2.0), strict=True))
    return Draft("eagle3-k3", "eagle3", 3, rates, {c: BASE_S[c] * factors[c] for c in GRID})


def p_eagle(sets: Sequence[str] = ("code", "chat")) -> Draft:
    """AL 4.37; a step 1.12 × at batch 1 and 4.6 × at 64: slower than no draft there."""
    factors = dict(zip(GRID, (1.12, 1.3, 1.9, 4.9), strict=True))
    return Draft(
        "p-eagle-k7", "p-eagle", 7, dict.fromkeys(sets, LONG), {c: BASE_S[c] * factors[c] for c in GRID}
    )


def slower(draft: Draft, factor: float) -> Draft:
    """The same arm with every step `factor` times as long."""
    return replace(draft, step_s={c: seconds * factor for c, seconds in draft.step_s.items()})

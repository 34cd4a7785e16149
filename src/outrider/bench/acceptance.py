"""What the engine counted while a cell ran, as figures of its drafts.

The window of one trial goes from the first reading at or after the first counted request to the last reading. A window in which
any count fell, the engine restarted or another model answered is void. Pooling adds counts, never averages rates.

Source: counters as defined in `outrider.core.acceptance`; tokens per step = (Δgeneration - Δfirst)/Δsteps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.bench.document import Acceptance, Counts
from outrider.core.acceptance import AcceptanceWindow, SpecCounters, difference
from outrider.engines.base import EngineCounters
from outrider.measure.counters import CounterTrace, Reading

RESTARTED = "the engine restarted"
COUNTER_RESET = "counter reset"
MODEL_CHANGED = "another model answered"
TOO_FEW_READINGS = "fewer than two readings of the counters"
UNTRUSTWORTHY = (RESTARTED, COUNTER_RESET, MODEL_CHANGED)

NOT_DRAFTED = "not drafted"
BROKEN = "broken"

LONG_WINDOW_DRAFTS = 200
_NOTHING = 0.001  # a position accepted less often than this has no use
_SELDOM = 0.01  # accepted less often than this, once the position before was accepted: broken
_ENOUGH = 100  # … and seen at least this often


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of one window; `void` says why they must not be used. None where the engine does not count it."""

    spec: SpecCounters = field(default_factory=SpecCounters)
    steps: float | None = None
    generation: float | None = None
    first: float | None = None
    void: str = ""


def counted(trace: CounterTrace, began_s: float, idle_before: bool = False) -> Counted:
    """The counts from the first reading at or after `began_s` (seconds, the trace's clock) to the last one.

    `idle_before`: nothing ran before, so they are taken from the last reading before it: no draft of the load is missed.
    """
    readings = [reading for reading in trace.readings if reading.at_s >= began_s]
    earlier = [reading for reading in trace.readings if reading.at_s < began_s]
    if idle_before and earlier:
        readings.insert(0, earlier[-1])
    if trace.restarted:
        return Counted(void=RESTARTED)
    if len(readings) < 2:
        return Counted(void=TOO_FEW_READINGS)
    if reason := next(filter(None, (_broken_by(a, b) for a, b in pairwise(readings))), ""):
        return Counted(void=reason)
    first, last = readings[0].counters, readings[-1].counters
    return Counted(
        spec=difference(first.spec, last.spec).delta,
        steps=_growth(first.steps, last.steps),
        generation=_growth(first.generation_tokens, last.generation_tokens),
        first=_growth(first.first_tokens, last.first_tokens),
    )


def _broken_by(before: Reading, after: Reading) -> str:
    a, b = before.counters, after.counters
    if a.models and b.models and a.models != b.models:
        return MODEL_CHANGED
    if difference(a.spec, b.spec).void:
        return COUNTER_RESET
    fell = any(value is not None and value < 0 for value in (_growth(x, y) for x, y in _counts(a, b)))
    return COUNTER_RESET if fell else ""


def _counts(a: EngineCounters, b: EngineCounters) -> tuple[tuple[float | None, float | None], ...]:
    return (
        (a.steps, b.steps),
        (a.generation_tokens, b.generation_tokens),
        (a.first_tokens, b.first_tokens),
        (a.prompt_tokens, b.prompt_tokens),
    )


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def acceptance(windows: Sequence[Counted]) -> Acceptance:
    """Figures over one or more windows. Void ones are left out and flagged; void as a whole if none is left."""
    standing = [window for window in windows if not window.void]
    void = [window.void for window in windows if window.void]
    if not standing:
        return Acceptance(void=void[0] if void else TOO_FEW_READINGS)
    spec = sum((window.spec for window in standing), SpecCounters())
    steps, generation, first = (
        _total([getattr(window, name) for window in standing]) for name in ("steps", "generation", "first")
    )
    seen = AcceptanceWindow(spec)
    positions = seen.position_rates
    flags = [f"{len(void)} of {len(windows)} windows void: {void[0]}"] if void else []
    found = Acceptance(
        rate=seen.acceptance_rate,
        length=seen.acceptance_length,
        positions=None if positions is None else list(positions),
        position_notes=position_notes(spec),
        effective_k=seen.effective_k,
        tokens_per_step=_ratio(None if generation is None or first is None else generation - first, steps),
        draft_coverage=_ratio(spec.drafts, steps) if spec.drafts else None,
        counts=Counts(
            drafts=spec.drafts,
            proposed=spec.proposed,
            accepted=spec.accepted,
            per_position=list(spec.per_position),
            steps=steps,
            generation_tokens=generation,
            first_tokens=first,
        ),
    )
    return found.model_copy(update={"flags": flags + rate_flags(found)})


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def position_notes(spec: SpecCounters) -> list[str]:
    """Per position: ``not drafted`` (accepted ≈ 0, and no draft was that long), ``broken`` (drafted, never right), or empty.

    effective K ≤ p - 1 means that no draft need have reached position p. Broken is said only after 100 drafts that reached it.
    Source: vllm-ascend#15174 (a third position at 0.0003 that was never drafted).
    """
    if spec.drafts <= 0:
        return []
    effective_k = spec.proposed / spec.drafts
    notes = []
    for index, accepted in enumerate(spec.per_position):
        reached = spec.per_position[index - 1] if index else spec.drafts
        if accepted / spec.drafts < _NOTHING and effective_k <= index + 0.05:
            notes.append(NOT_DRAFTED)
        elif reached >= _ENOUGH and accepted / reached < _SELDOM:
            notes.append(BROKEN)
        else:
            notes.append("")
    return notes


def rate_flags(found: Acceptance) -> list[str]:
    """Rates that cannot be, or that are too good or too bad to be true over a long window (200 drafts)."""
    rates = {} if found.rate is None else {"acceptance rate": found.rate}
    rates |= {f"position {place}": rate for place, rate in enumerate(found.positions or (), 1)}
    long = found.counts.drafts >= LONG_WINDOW_DRAFTS
    flags = []
    for name, rate in rates.items():
        note = "" if name == "acceptance rate" else found.position_notes[int(name.split()[1]) - 1]
        if not 0 <= rate <= 1:
            flags.append(f"{name} is {rate:.4g}, outside 0 to 1")
        elif long and rate in (0.0, 1.0) and note != NOT_DRAFTED:
            flags.append(f"{name} is exactly {rate:g} over {found.counts.drafts:.0f} drafts")
    if found.draft_coverage is not None and found.draft_coverage > 1.05:
        flags.append(f"{found.draft_coverage:.2f} drafts a step: the counters do not fit each other")
    return flags

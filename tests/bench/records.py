"""Records, traces and cells with known truth, for the bench's unit tests."""

from outrider.bench.figures import CellData
from outrider.core.acceptance import SpecCounters
from outrider.engines.base import EngineCounters
from outrider.measure.counters import CounterTrace, Reading
from outrider.measure.load import LoadResult
from outrider.measure.records import RequestRecord, TokenEvent


def record(
    number: int = 0,
    *,
    started_s: float = 0.0,
    ttft_s: float = 0.05,
    gap_s: float = 0.01,
    chunks: int = 10,
    tokens: int = 1,
    outcome: str = "ok",
    first_tokens: int = 1,
    prompt: str | None = None,
) -> RequestRecord:
    """A request whose first chunk holds `first_tokens`, the others `tokens`, one each `gap_s`."""
    events = tuple(
        TokenEvent(started_s + ttft_s + place * gap_s, tokens if place else first_tokens)
        for place in range(chunks)
    )
    return RequestRecord(
        id=f"r{number}",
        prompt_id=prompt or f"p{number}",
        turn=0,
        started_s=started_s,
        ended_s=events[-1].at_s if events else started_s + ttft_s,
        events=events,
        prompt_tokens=20,
        output_tokens=sum(event.tokens for event in events),
        finish="length" if outcome == "ok" else "",
        outcome=outcome,
    )


def closed_loop(
    concurrency: int, waves: int, length_s: float = 1.0, tokens: int = 100
) -> tuple[RequestRecord, ...]:
    """`waves` × C requests of `length_s`, each started when the one before it in its place ended; places are staggered."""
    gap = length_s / (tokens + 4)
    made = [
        record(
            wave * concurrency + place,
            started_s=wave * length_s + place * length_s / concurrency,
            ttft_s=length_s - gap * (tokens - 1),
            gap_s=gap,
            chunks=tokens,
        )
        for wave in range(waves)
        for place in range(concurrency)
    ]
    return tuple(sorted(made, key=lambda one: one.started_s))


def counters(
    *,
    drafts: float = 0,
    proposed: float = 0,
    accepted: float = 0,
    per_position: tuple[float, ...] = (),
    steps: float | None = None,
    generation: float | None = None,
    first: float | None = None,
    models: tuple[str, ...] = ("m",),
) -> EngineCounters:
    """One scrape's counts."""
    return EngineCounters(
        spec=SpecCounters(drafts, proposed, accepted, per_position),
        by_draft={},
        models=models,
        generation_tokens=generation,
        first_tokens=first,
        steps=steps,
    )


def trace(*scrapes: EngineCounters, began_s: float = 0.0, restarted: bool = False) -> CounterTrace:
    """Readings a second apart from `began_s`."""
    return CounterTrace(
        readings=tuple(Reading(began_s + place, scrape) for place, scrape in enumerate(scrapes)),
        restarted=restarted,
    )


def cell_data(
    records: tuple[RequestRecord, ...],
    concurrency: int = 1,
    *,
    counted: CounterTrace | None = None,
    draft_length: int = 0,
) -> CellData:
    """A trial of these records."""
    began = min((one.started_s for one in records), default=0.0)
    ended = max((one.ended_s for one in records), default=0.0)
    return CellData(
        LoadResult(records, began, ended, "test"), counted or CounterTrace(), concurrency, draft_length
    )

"""USD per 1M output tokens: ours at each concurrency, a commercial model's for the same mix of input and output.

Source: accelerators × USD/hour ÷ (output tok/s × 3600) × 10⁶, `outrider.cost.price`; list prices from `outrider.cost.prices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from outrider.bench.document import Cell, Cost
from outrider.cost.prices import ListPrice
from outrider.measure.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Served:
    """What the requests of one cell were: tokens in and out of the finished ones, and the share of all within the objective."""

    input_tokens: int = 0
    output_tokens: int = 0
    within_slo_ratio: float | None = None


def served(records: Sequence[RequestRecord], slo: Mapping[str, JsonValue]) -> Served:
    """Counts over all trials' records. A failed request is outside the objective. Input is 0 where the server told none."""
    finished = [record for record in records if record.ok]
    limits = {
        name: float(value)
        for name in ("ttft_p99_ms", "tpot_p99_ms")
        if isinstance(value := slo.get(name), int | float) and not isinstance(value, bool)
    }
    kept = sum(_within(record, limits) for record in finished)
    return Served(
        input_tokens=sum(record.prompt_tokens or 0 for record in finished),
        output_tokens=sum(record.output_tokens or 0 for record in finished),
        within_slo_ratio=kept / len(records) if limits and records else None,
    )


def _within(record: RequestRecord, limits: Mapping[str, float]) -> bool:
    timing = record.timing
    seen = {"ttft_p99_ms": timing.ttft_s, "tpot_p99_ms": timing.tpot_s}
    if timing.ttft_s is None:
        return False
    return all(
        value * 1e3 <= limits[name] for name, value in seen.items() if name in limits and value is not None
    )


def own_costs(
    cells: Sequence[Cell], served_by: Mapping[tuple[str, str, int], Served], source: str
) -> list[Cost]:
    """One row a cell that stands and has a price."""
    return [
        Cost(
            name=cell.arm,
            prompt_set=cell.prompt_set,
            concurrency=cell.concurrency,
            usd_per_million_output_tokens=cell.pooled.usd_per_million_output_tokens,
            within_slo_ratio=served_by.get(
                (cell.arm, cell.prompt_set, cell.concurrency), Served()
            ).within_slo_ratio,
            source=source,
        )
        for cell in cells
        if cell.state == "ok" and cell.pooled and cell.pooled.usd_per_million_output_tokens is not None
    ]


def commercial_costs(
    served_by: Mapping[tuple[str, str, int], Served], prices: Sequence[ListPrice]
) -> list[Cost]:
    """One row a commercial model and prompt set, for the mix measured over the set's cells; none where the input is unknown."""
    rows = []
    for prompt_set in dict.fromkeys(key[1] for key in served_by):
        parts = [one for key, one in served_by.items() if key[1] == prompt_set]
        told, made = sum(one.input_tokens for one in parts), sum(one.output_tokens for one in parts)
        if not told or not made:
            continue
        rows += [
            Cost(
                name=price.name,
                prompt_set=prompt_set,
                usd_per_million_output_tokens=price.usd_per_million_output(told, made),
                source=(
                    f"{price.usd_per_million_input_tokens:.2f}/{price.usd_per_million_output_tokens:.2f} USD per 1M "
                    f"in/out, {price.source}, {price.dated}; at {told / made:.2f} input tokens per output token"
                ),
                commercial=True,
            )
            for price in prices
        ]
    return rows

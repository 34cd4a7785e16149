"""What a million tokens cost: own arms at each load, commercial models at list price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from outrider.bench.document import Cost, RunDocument
from outrider.bench.report import pictures
from outrider.bench.report.content import Block, Column, Item, Row, Section, Table
from outrider.bench.report.look import Look
from outrider.bench.report.tables import chosen, sets_with
from outrider.bench.report.text import NONE, clean, percent, usd

Looks = Mapping[str, Look]


def cost_section(document: RunDocument, looks: Looks) -> Section:
    """USD per 1M output tokens, own arms and commercial models."""
    if not document.costs:
        line = "No cost: the stack names no price. Give the accelerator's USD per hour under `price` in the stack, then repeat."
        if document.price is not None:
            line = "No cost: a price is set, but no cell has a throughput to divide it by."
        return Section("cost", "Cost", (line,))
    panels, tables = [], []
    for place, name in enumerate(sets_with(document, document.costs)):
        mine = [one for one in document.costs if one.prompt_set == name]
        bars = _bars(mine, looks)
        if bars:
            told = f"USD per one million output tokens on {name}; the figures are in the table."
            height = 46.0 + 15 * len(bars)
            paint = partial(pictures.cost, bars=bars, looks=looks)
            panels.append(pictures.panel(f"cost-{place}", name, told, paint, (pictures.SIZE[0], height)))
        tables.append(_cost_table(mine, name, place, looks))
    lines = (
        "Accelerators × USD per hour ÷ output tokens per hour, at the stated concurrency, busy all hour; hatched: "
        "list price of a commercial model for the same mix of input and output. A price says nothing about quality.",
    )
    return Section(
        "cost", "Cost", lines, (Block(tuple(panels), tuple(tables)),), legend=tuple(looks) if panels else ()
    )


def _bars(costs: Sequence[Cost], looks: Looks) -> list[pictures.Bar]:
    own = [one for one in costs if not one.commercial and one.concurrency is not None]
    bars = []
    for step in chosen([one.concurrency for one in own if one.concurrency is not None]):
        at = {one.name: one.usd_per_million_output_tokens for one in own if one.concurrency == step}
        bars += [pictures.Bar(f"{arm}, C {step}", at[arm], arm) for arm in looks if arm in at]
    bars += [pictures.Bar(one.name, one.usd_per_million_output_tokens) for one in costs if one.commercial]
    return bars


def _cost_table(costs: Sequence[Cost], prompt_set: str, place: int, looks: Looks) -> Table:
    steps = sorted({one.concurrency for one in costs if one.concurrency is not None})
    columns = (
        Column("arm or model", words=True),
        *(Column(str(step), "concurrency") for step in steps),
        Column("source", words=True),
    )
    rows = []
    for name in dict.fromkeys(one.name for one in costs):
        mine = [one for one in costs if one.name == name]
        at = {one.concurrency: one for one in mine}
        source = clean("; ".join(dict.fromkeys(one.source for one in mine if one.source)))
        items: list[Item] = [Item(clean(name))]
        if mine[0].commercial and mine[0].concurrency is None:
            flat = mine[0].usd_per_million_output_tokens
            items += [Item(usd(flat), "", "", "usd_per_million_output_tokens", flat, step) for step in steps]
            source = source if steps else f"{usd(flat)}: {source}"
        else:
            items += [_cost_item(at.get(step), step) for step in steps]
        rows.append(Row((*items, Item(source)), arm=name if name in looks else "", prompt_set=prompt_set))
    caption = f"{clean(prompt_set)}: USD per 1M output tokens, share of requests within the objective; list prices for any load"
    return Table(f"costs-{place}", caption, columns, tuple(rows))


def _cost_item(one: Cost | None, step: int) -> Item:
    if one is None:
        return Item(NONE, concurrency=step)
    within = f"{percent(one.within_slo_ratio)} in SLO" if one.within_slo_ratio is not None else ""
    value = one.usd_per_million_output_tokens
    return Item(usd(value), within, "", "usd_per_million_output_tokens", value, step)

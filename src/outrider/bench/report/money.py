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
    if all(one.commercial for one in document.costs):
        line = 'No cost: the stack names no price. Give the accelerator\'s USD per hour under "price" in the stack, then repeat.'
        if document.price is not None:
            line = "No cost: a price is set, but no cell has a throughput to divide it by."
        return Section("cost", "Cost", (line,))
    panels = []
    for place, name in enumerate(sets_with(document, document.costs)):
        mine = [one for one in document.costs if one.prompt_set == name]
        bars = _bars(mine, looks)
        if bars:
            told = f"USD per one million output tokens on {name}; the figures are in the table."
            height = 46.0 + 15 * len(bars)
            paint = partial(pictures.cost, bars=bars, looks=looks)
            panels.append(pictures.panel(f"cost-{place}", name, told, paint, (pictures.SIZE[0], height)))
    lines = (
        "Accelerators × USD per hour ÷ output tokens per hour, at the stated concurrency, busy all hour; hatched: "
        "list price of a commercial model for the same mix of input and output. A price says nothing about quality.",
    )
    return Section(
        "cost",
        "Cost",
        lines,
        (Block(tuple(panels), (_cost_table(document, looks),)),),
        legend=tuple(looks) if panels else (),
    )


def _bars(costs: Sequence[Cost], looks: Looks) -> list[pictures.Bar]:
    own = [one for one in costs if not one.commercial and one.concurrency is not None]
    bars = []
    for step in chosen([one.concurrency for one in own if one.concurrency is not None]):
        at = {one.name: one.usd_per_million_output_tokens for one in own if one.concurrency == step}
        bars += [pictures.Bar(f"{arm}, C {step}", at[arm], str(step), arm) for arm in looks if arm in at]
    bars += [
        pictures.Bar(one.name, one.usd_per_million_output_tokens, "commercial")
        for one in costs
        if one.commercial
    ]
    return bars


def _cost_table(document: RunDocument, looks: Looks) -> Table:
    steps = sorted({one.concurrency for one in document.costs if one.concurrency is not None})
    rows = []
    for prompt_set in sets_with(document, document.costs):
        here = [one for one in document.costs if one.prompt_set == prompt_set]
        first = True
        for name in dict.fromkeys(one.name for one in here):
            mine = [one for one in here if one.name == name]
            rows.append(_cost_row(mine, steps, arm=name if name in looks else "", first=first))
            first = False
    columns = (
        Column("prompt set", words=True),
        Column("arm or model", words=True),
        *(Column(step, "concurrency") for step in [str(step) for step in steps] or ["any"]),
    )
    caption = "USD per 1M output tokens; beneath it the share of requests within the objective. List prices hold at any load"
    return Table("costs", caption, columns, tuple(rows), heads=2, notes=_sources(document.costs))


def _cost_row(mine: Sequence[Cost], steps: Sequence[int], *, arm: str, first: bool) -> Row:
    """One arm or model on one set."""
    name, prompt_set = clean(mine[0].name), mine[0].prompt_set
    at = {one.concurrency: one for one in mine}
    flat = at.get(None)
    items = [_cost_item(at.get(step, flat), step) for step in steps]
    if flat and not steps:
        items = [_cost_item(flat, None)]
    return Row(
        (Item(clean(prompt_set)), Item(name), *items),
        arm=arm,
        prompt_set=prompt_set,
        first=first,
    )


def _sources(costs: Sequence[Cost]) -> tuple[str, ...]:
    """Where the prices are from; one line a source."""
    names: dict[str, dict[str, None]] = {}
    for one in costs:
        names.setdefault(clean(one.source) or "source not stated", {})[clean(one.name)] = None
    return tuple(f"{', '.join(known)}: {source}" for source, known in names.items())


def _cost_item(one: Cost | None, step: int | None) -> Item:
    if one is None:
        return Item(NONE, concurrency=step)
    within = f"{percent(one.within_slo_ratio)} in SLO" if one.within_slo_ratio is not None else ""
    value = one.usd_per_million_output_tokens
    return Item(usd(value), within, "", "usd_per_million_output_tokens", value, step)

"""What the draft does to latencies: percentile curves, tails, paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from outrider.bench.document import BASELINE, Quantiles, RunDocument
from outrider.bench.evidence import sure_difference
from outrider.bench.report import pictures
from outrider.bench.report.content import Block, Column, Item, Mark, Panel, Row, Section, Table
from outrider.bench.report.look import Look
from outrider.bench.report.tables import LATENCIES, chosen, quantile_item
from outrider.bench.report.text import NONE, clean, number, percentile, ratio, signed

Looks = Mapping[str, Look]
PICTURED = ("ttft_ms", "tpot_ms", "step_gap_ms", "e2e_ms")
NAMES = dict(LATENCIES)
MOST_ROWS_OF_PICTURES = 24


def latency_section(document: RunDocument, looks: Looks) -> Section:
    """Percentile curves of four latencies, per set and concurrency, baseline against arms, and the paired differences."""
    relative = not document.labels.absolute_times
    everywhere = sorted({cell.concurrency for cell in document.cells})
    picked = chosen(everywhere)
    sets = [info.name for info in document.prompt_sets]
    pictured = everywhere if len(sets) * len(everywhere) <= MOST_ROWS_OF_PICTURES else picked
    blocks: list[Block] = []
    for place, name in enumerate(sets):
        opened = True
        for step in everywhere:
            if step not in pictured or len(blocks) >= MOST_ROWS_OF_PICTURES:
                continue
            block = _latency_block(
                document, looks, (name, step, f"{place}-{step}"), step in picked and place == 0
            )
            if block is not None:
                blocks.append(
                    Block(block.panels, block.tables, name if opened else "", block.fold, block.open)
                )
                opened = False
    unit = "as multiples of the baseline's p50 in the same cell" if relative else "in milliseconds"
    lines = [
        f"Percentiles 1 to 99 {unit}; markers at p50 and, where n allows, p95 and p99. "
        "A curve ends where n ends it. Finished requests only. "
        "A p99 needs 368 values, a p95 72: below that no number is printed."
    ]
    left = len(sets) * len(everywhere) - len(blocks)
    if left > 0 and blocks:
        lines.append(
            f"{left} cells have no pictures here (no figures, or too many cells for one page): see Figures per cell."
        )
    if document.latency_differences:
        blocks.append(
            Block(
                tables=(_difference_table(document, relative),),
                title="Arm against baseline" if relative else "Arm minus baseline",
            )
        )
    return Section(
        "latency", "Latency distributions", tuple(lines), tuple(blocks), legend=tuple(looks) if blocks else ()
    )


def _latency_block(
    document: RunDocument, looks: Looks, where: tuple[str, int, str], opened: bool
) -> Block | None:
    name, step, id_ = where
    cells = [document.cell(arm, name, step) for arm in looks]
    shown = {cell.arm: cell.pooled for cell in cells if cell and cell.state == "ok" and cell.pooled}
    if not shown:
        return None
    base = shown.get(BASELINE)
    relative = not document.labels.absolute_times
    if relative and base is None:
        return None
    panels: list[Panel] = []
    rows: list[Row] = []
    scales: dict[str, float | None] = {}
    for field in PICTURED:
        curves: dict[str, Quantiles] = {arm: getattr(figures, field) for arm, figures in shown.items()}
        curves = {arm: quantiles for arm, quantiles in curves.items() if quantiles.p50 is not None}
        scales[field] = getattr(base, field).p50 if relative and base else None
        if not curves or (relative and not scales[field]):
            continue
        told = f"Percentiles of {NAMES[field]} on {name} at concurrency {step}, one curve an arm; p50, p95, p99 in the table."
        paint = partial(pictures.latency, curves=curves, looks=looks, scale=scales[field])
        panels.append(
            pictures.panel(f"{field[0]}{field[1]}-{id_}", NAMES[field], told, paint, pictures.SMALL)
        )
    for arm, figures in shown.items():
        items = [Item(clean(arm))]
        for field in PICTURED:
            for which in ("p50", "p95", "p99"):
                if not relative:
                    items.append(quantile_item(figures, field, which))
                    continue
                items.append(_relative_item(getattr(figures, field), which, scales.get(field)))
        rows.append(Row(tuple(items), arm=arm, prompt_set=name, concurrency=step))
    columns = [Column("arm", words=True)]
    columns += [Column(which, NAMES[field]) for field in PICTURED for which in ("p50", "p95", "p99")]
    unit = "× the baseline's p50" if relative else "ms"
    table = Table(f"tails-{id_}", f"{clean(name)}, concurrency {step}: {unit}", tuple(columns), tuple(rows))
    return Block(tuple(panels), (table,), fold=f"{clean(name)}, concurrency {step}", open=opened)


def _relative_item(quantiles: Quantiles, which: str, scale: float | None) -> Item:
    value: float | None = getattr(quantiles, which)
    if value is None or not scale:
        return Item(percentile(quantiles, which) if value is None else NONE, mark="weak")
    return Item(ratio(value / scale))


def _difference_table(document: RunDocument, relative: bool) -> Table:
    rows: list[Row] = []
    before = ""
    for one in document.latency_differences:
        d = one.difference_ms
        mark: Mark = "" if not sure_difference(document, one) else "bad" if d.value > 0 else "good"
        field, _, which = one.figure.partition(".")
        over = one.arm_ms / one.baseline_ms if one.baseline_ms else None
        span = f"{signed(d.low)} to {signed(d.high)}" if d.low is not None and d.high is not None else ""
        items = [Item(clean(one.prompt_set)), Item(str(one.concurrency)), Item(clean(one.arm))]
        items += [Item(f"{NAMES.get(field, clean(field))} {clean(which)}"), Item(ratio(over))]
        if not relative:
            items += [Item(number(one.baseline_ms)), Item(number(one.arm_ms))]
            items += [Item(signed(d.value), "", mark, one.figure, d.value), Item(span)]
        else:
            items[-1] = Item(ratio(over), "", mark, one.figure, over)
        where = (one.arm, one.prompt_set, one.concurrency)
        rows.append(Row(tuple(items), "", *where, first=one.prompt_set != before))
        before = one.prompt_set
    columns = [
        Column("prompt set", words=True),
        Column("C"),
        Column("arm", words=True),
        Column("figure", words=True),
    ]
    columns += [Column("arm ÷ baseline")]
    if not relative:
        columns += [
            Column("baseline", "ms"),
            Column("arm", "ms"),
            Column("difference", "ms"),
            Column("95 % interval", "ms"),
        ]
    caption = "Latency of the arm against the baseline's, paired by prompt and trial; a mark where three trials exclude 0"
    return Table("differences", caption, tuple(columns), tuple(rows), heads=4)

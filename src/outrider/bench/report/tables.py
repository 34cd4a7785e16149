"""Tables of figures per cell and of acceptance; which cells and sets are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from outrider.bench.document import (
    Acceptance,
    Cell,
    Cost,
    Figures,
    NaturalEnd,
    Quantiles,
    RunDocument,
    Speedup,
)
from outrider.bench.report.content import Column, Item, Mark, Row, Table
from outrider.bench.report.text import (
    NONE,
    clean,
    count,
    counts,
    gibibytes,
    number,
    percent,
    percentile,
    ratio,
    usd,
)
from outrider.bench.standing import trials_of
from outrider.bench.words import place

LATENCIES = (
    ("ttft_ms", "TTFT"),
    ("tpot_ms", "TPOT"),
    ("token_itl_ms", "token ITL"),
    ("step_gap_ms", "step gap"),
    ("e2e_ms", "E2E"),
    ("queue_wait_ms", "queue wait"),
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
CELL_HEADS = (Column("C"), Column("arm", words=True))


def item(
    show: Callable[[float | None], str],
    value: float | None,
    figure: str = "",
    note: str = "",
    mark: Mark = "",
) -> Item:
    """A number as `show` prints it, with its value for programs."""
    return Item(show(value), note, mark, figure, value)


def quantile_item(figures: Figures, field: str, which: str) -> Item:
    """One percentile of one latency, or why there is none."""
    quantiles: Quantiles = getattr(figures, field)
    value: float | None = getattr(quantiles, which)
    weak: Mark = "weak" if value is None else ""
    return Item(percentile(quantiles, which), "", weak, f"{field}.{which}", value)


def notes(document: RunDocument, prompt_set: str) -> tuple[str, ...]:
    """Everything that must be known beside the numbers of a set's cells; one line a reason, with the cells it holds for."""
    told: dict[str, dict[int, list[str]]] = {}
    merged: dict[
        str, list[str]
    ] = {}  # a warning without its numbers → the warnings that are alike but for them
    for cell in document.cells:
        if cell.prompt_set != prompt_set or cell.state != "ok" or cell.pooled is None:
            continue
        f = cell.pooled
        said = [] if f.steady else [_not_steady(f.steady_reason)]
        said += [f"acceptance void: {f.acceptance.void}"] if f.acceptance.void else []
        said += f.acceptance.flags
        for one in f.warnings:
            shape = _NUMBER.sub("#", clean(one))
            merged.setdefault(shape, []).append(clean(one))
            said.append(shape)
        for one in dict.fromkeys(said):
            told.setdefault(clean(one), {}).setdefault(cell.concurrency, []).append(clean(cell.arm))
    return tuple(
        f"{_ranges(merged[one]) if one in merged else one} ({_cells(cells)})" for one, cells in told.items()
    )


def _not_steady(reason: str) -> str:
    """Trials' reasons, each said once and the words of the label not again; why less was asked of another trial is left out."""
    parts = [part.strip().removeprefix("not steady: ") for part in reason.split(";")]
    parts = [part for part in dict.fromkeys(parts) if part and not part.startswith("CPU run:")]
    return f"not steady: {'; '.join(parts)}" if parts else "not steady"


def _ranges(alike: Sequence[str]) -> str:
    """Sentences that differ in numbers alone as one: ``6 % of …`` and ``29 % of …`` are ``6 to 29 % of …``."""
    columns = zip(*(_NUMBER.findall(one) for one in alike), strict=True)
    spans = []
    for column in columns:
        low, high = min(column, key=float), max(column, key=float)
        spans.append(low if low == high else f"{low} to {high}")
    found = iter(spans)
    return _NUMBER.sub(lambda _: next(found), alike[0])


def _cells(cells: Mapping[int, Sequence[str]]) -> str:
    return "; ".join(f"C {step}: {', '.join(arms)}" for step, arms in sorted(cells.items()))


def cell_rows(
    document: RunDocument, prompt_set: str, items: Callable[[Cell, Figures], Sequence[Item]]
) -> tuple[Row, ...]:
    """A row for each cell of a set, by concurrency, arms in the run's order; a reason where there are no figures."""
    found = []
    for running in sorted({cell.concurrency for cell in document.cells if cell.prompt_set == prompt_set}):
        first = True
        for arm in document.arms:
            cell = document.cell(arm.name, prompt_set, running)
            if cell is None:
                continue
            heads = (Item(str(running)), Item(clean(arm.name)))
            shown = cell.pooled if cell.state == "ok" else None
            message = "" if shown else clean(f"{cell.state}: {cell.reason or 'no reason given'}")
            if cell.state == "missing":
                message = clean(f"missing: {cell.reason or 'not run yet'}")
            found.append(
                Row(
                    (*heads, *(items(cell, shown) if shown else ())),
                    message=message,
                    arm=arm.name,
                    prompt_set=prompt_set,
                    concurrency=running,
                    first=first,
                )
            )
            first = False
    return tuple(found)


def work_table(document: RunDocument, prompt_set: str, place: int) -> Table:
    """Throughput, tokens per step, failures and cost of every cell of a set."""
    priced = any(
        cell.pooled and cell.pooled.usd_per_million_output_tokens is not None for cell in document.cells
    )
    columns = (
        *CELL_HEADS,
        Column("running"),
        Column("all", "output tok/s"),
        Column("peak s", "output tok/s"),
        Column("a user", "output tok/s"),
        Column("rate", "acceptance"),
        Column("AL", "acceptance"),
        Column("per step", "tokens"),
        Column("per chunk", "tokens"),
        Column("effective K"),
        Column("coverage"),
        Column("requests"),
        Column("failed", words=True),
        *((Column("USD per 1M"),) if priced else ()),
    )

    def items(_: Cell, figures: Figures) -> Sequence[Item]:
        a = figures.acceptance
        cost = item(usd, figures.usd_per_million_output_tokens, "usd_per_million_output_tokens")
        return (
            item(number, figures.running_mean, "running_mean"),
            item(number, figures.output_tok_s, "output_tok_s", "" if figures.steady else "not steady"),
            item(number, figures.peak_tok_s, "peak_tok_s"),
            item(number, figures.user_tok_s, "user_tok_s"),
            item(ratio, a.rate, "acceptance.rate"),
            item(ratio, a.length, "acceptance.length"),
            item(ratio, a.tokens_per_step, "acceptance.tokens_per_step"),
            item(ratio, figures.tokens_per_chunk, "tokens_per_chunk"),
            item(ratio, a.effective_k, "acceptance.effective_k"),
            item(ratio, a.draft_coverage, "acceptance.draft_coverage"),
            Item(f"{figures.ok} of {figures.requests}", figure="ok", value=figures.ok),
            Item(counts(figures.failures), mark="bad" if any(figures.failures.values()) else ""),
            *((cost,) if priced else ()),
        )

    rows = cell_rows(document, prompt_set, items)
    return Table(
        f"work-{place}",
        f"{clean(prompt_set)}: work done and tokens per step",
        columns,
        rows,
        heads=2,
        notes=notes(document, prompt_set),
    )


def latency_table(document: RunDocument, prompt_set: str, place: int) -> Table:
    """p50 and p99 of every latency of every cell of a set, with the n they rest on."""
    columns = [*CELL_HEADS, Column("requests", "n"), Column("gaps", "n")]
    for _, name in LATENCIES:
        columns += [Column("p50", name), Column("p99", name)]
    columns += [Column("p50", "engine step")]

    def items(_: Cell, figures: Figures) -> Sequence[Item]:
        found = [
            item(lambda n: count(n or 0), figures.e2e_ms.n, "e2e_ms.n"),
            item(lambda n: count(n or 0), figures.step_gap_ms.n, "step_gap_ms.n"),
        ]
        for field, _name in LATENCIES:
            found += [quantile_item(figures, field, "p50"), quantile_item(figures, field, "p99")]
        return [*found, item(number, figures.step_ms, "step_ms")]

    rows = cell_rows(document, prompt_set, items)
    caption = f"{clean(prompt_set)}: latencies in milliseconds, finished requests only"
    return Table(f"latency-{place}", caption, tuple(columns), rows, heads=2)


def machine_table(document: RunDocument, prompt_set: str, place: int) -> Table:
    """Positions, accelerator use and KV cache of every cell of a set; `none` without an accelerator."""
    columns = (
        *CELL_HEADS,
        Column("accepted by position", words=True),
        Column("accelerator", words=True),
        Column("utilisation"),
        Column("peak memory"),
        Column("mean power"),
        Column("KV cache peak"),
        Column("window"),
        Column("output tokens"),
        Column("trials"),
    )

    def items(cell: Cell, figures: Figures) -> Sequence[Item]:
        gpu = figures.gpu
        used = (
            (
                Item(clean(gpu.name)),
                item(percent, gpu.utilisation_mean, "gpu.utilisation_mean"),
                item(gibibytes, gpu.memory_peak_bytes, "gpu.memory_peak_bytes"),
                item(lambda w: NONE if w is None else f"{w:.0f} W", gpu.power_mean_w, "gpu.power_mean_w"),
            )
            if gpu
            else (Item("none"), Item("none"), Item("none"), Item("none"))
        )
        standing = len(trials_of(cell))
        rates = " ".join(ratio(rate) for rate in figures.acceptance.positions or [])
        return (
            Item(rates or NONE),
            *used,
            item(percent, figures.kv_cache_peak_ratio, "kv_cache_peak_ratio"),
            Item(f"{figures.window_s:.0f} s"),
            item(lambda n: count(n or 0), figures.output_tokens, "output_tokens"),
            Item(f"{standing} of {len(cell.trials)}"),
        )

    rows = cell_rows(document, prompt_set, items)
    return Table(
        f"machine-{place}",
        f"{clean(prompt_set)}: drafts by position, and the machine",
        columns,
        rows,
        heads=2,
    )


def position_rates(document: RunDocument, arm: str, prompt_set: str) -> tuple[Acceptance | None, str]:
    """The acceptance to show for an arm on a set, and where it is from: natural end, else all its cells together."""
    for end in document.natural_end:
        if (end.arm, end.prompt_set, end.state) == (arm, prompt_set, "ok") and end.acceptance.positions:
            return end.acceptance, "natural end"
    shown = [
        cell.pooled.acceptance
        for cell in document.cells
        if (cell.arm, cell.prompt_set, cell.state) == (arm, prompt_set, "ok") and cell.pooled
    ]
    shown = [one for one in shown if one.positions and one.counts.drafts and not one.void]
    drafts = sum(one.counts.drafts for one in shown)
    if not drafts:
        return None, ""
    width = max(len(one.counts.per_position) for one in shown)
    totals = [sum(p[i] for one in shown if len(p := one.counts.per_position) > i) for i in range(width)]
    accepted, proposed = sum(one.counts.accepted for one in shown), sum(one.counts.proposed for one in shown)
    return (
        Acceptance(
            rate=accepted / proposed if proposed else None,
            length=1 + accepted / drafts,
            positions=[total / drafts for total in totals],
        ),
        "all cells",
    )


def natural_end_table(ends: Iterable[NaturalEnd]) -> Table:
    """Acceptance at the natural end of the text, and whether greedy text was the baseline's."""
    rows = []
    before = ""
    for end in ends:
        a = end.acceptance
        heads = (Item(clean(end.prompt_set)), Item(clean(end.arm)))
        items: tuple[Item, ...] = (
            Item(count(end.requests), figure="requests", value=end.requests),
            Item(counts(end.failures), mark="bad" if any(end.failures.values()) else ""),
            Item(count(end.output_tokens), figure="output_tokens", value=end.output_tokens),
            item(ratio, a.rate, "acceptance.rate"),
            item(ratio, a.length, "acceptance.length"),
            item(ratio, a.tokens_per_step, "acceptance.tokens_per_step"),
            item(ratio, a.draft_coverage, "acceptance.draft_coverage"),
            _texts(end),
            Item(clean("; ".join([*([f"void: {a.void}"] if a.void else []), *a.flags])), mark="weak"),
        )
        message = "" if end.state == "ok" else clean(f"{end.state}: {end.reason or 'no reason given'}")
        rows.append(
            Row(
                heads if message else (*heads, *items),
                message=message,
                arm=end.arm,
                prompt_set=end.prompt_set,
                first=end.prompt_set != before,
            )
        )
        before = end.prompt_set
    columns = (
        Column("prompt set", words=True),
        Column("arm", words=True),
        Column("answers"),
        Column("failed", words=True),
        Column("tokens"),
        Column("rate", "acceptance"),
        Column("AL", "acceptance"),
        Column("tokens per step"),
        Column("coverage"),
        Column("greedy text against the baseline's", words=True),
        Column("notes", words=True),
    )
    return Table("natural-end", "Greedy, each answer to its natural end", columns, tuple(rows), heads=2)


def _texts(end: NaturalEnd) -> Item:
    if not end.compared_texts:
        return Item("not compared", mark="weak", figure="different")
    if not end.different:
        return Item(f"all {end.compared_texts} the same", mark="good", figure="different", value=0)
    first = min(end.different, key=lambda one: one.at_character)
    text = f"{len(end.different)} of {end.compared_texts} differ"
    return Item(
        text, f"earliest: {clean(first.prompt_id)} at {place(first)}", "weak", "different", len(end.different)
    )


def chosen(concurrency: Sequence[int]) -> list[int]:
    """Those of 1, 8, 32 that were measured, else the smallest, the middle and the largest."""
    measured = sorted(set(concurrency))
    wanted: list[int] = [one for one in (1, 8, 32) if one in measured]
    if len(wanted) >= 2 or not measured:
        return wanted or measured
    return sorted({measured[0], measured[len(measured) // 2], measured[-1]})


def sets_with(document: RunDocument, entries: Sequence[Speedup | Cost]) -> list[str]:
    """Prompt sets, in the run's order, for which there is an entry."""
    named = [info.name for info in document.prompt_sets]
    found = {entry.prompt_set for entry in entries}
    return [name for name in named if name in found] + sorted(found - set(named))

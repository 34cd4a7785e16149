"""What the draft does to the throughput: speed-up, the map of step times, acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from outrider.bench.document import BASELINE, Crossover, RunDocument, Speedup, StepCost
from outrider.bench.evidence import ENOUGH_TRIALS, decides, surely
from outrider.bench.noise import UNEXPLAINED
from outrider.bench.report import pictures
from outrider.bench.report.content import Block, Column, Item, Mark, Panel, Row, Section, Table
from outrider.bench.report.look import Look
from outrider.bench.report.tables import position_rates, sets_with
from outrider.bench.report.text import NONE, clean, number, percent, ratio
from outrider.bench.steps import earned, steps_of_set
from outrider.bench.words import speedups, trials

Looks = Mapping[str, Look]
COVERED = 0.9  # share of steps with a draft, below which AL and tokens per step part


def speedup_section(document: RunDocument, looks: Looks) -> Section:
    """Speed-up over measured running requests, one panel a set, and where each arm crosses 1."""
    blocks = []
    panels = []
    known = [one for one in document.speedups if one.running > 0 and one.arm in looks]
    drafts = tuple(arm for arm in looks if any(one.arm == arm for one in known))
    for place, name in enumerate(sets_with(document, known)):
        points = [one for one in known if one.prompt_set == name]
        told = f"Speed-up over the baseline on {name} against measured running requests; the figures are in the table."
        paint = partial(pictures.speedup, points=points, looks=looks, all_points=known)
        panels.append(pictures.panel(f"speedup-{place}", name, told, paint))
    if document.speedups:
        blocks.append(Block(tuple(panels), (_speedup_table(document),)))
    if crossings := [one for one in document.crossovers if one.up_to is not None]:
        table = _crossover_table(document, crossings)
        blocks.append(Block(tables=(table,), title="Where an arm stops paying"))
    modelled = document.labels.modelled
    lines = [
        "Reckoned, not measured: stated AL(K) × T(b, 0) ÷ T(b, K). Above 1.0 the draft would pay."
        if modelled
        else "Output tokens per second of the arm over the baseline's in the same cell. Above 1.0 the draft pays.",
    ]
    if not document.speedups:
        lines = [
            "No speed-up could be computed: a cell of an arm and the same cell of the baseline must both stand."
        ]
    elif not modelled and all(one.ratio.low is None for one in document.speedups):
        lines.append("No intervals: they need at least two trials of both the arm and the baseline.")
    seen = (
        ("Whiskers: 95 % interval over trials, cut where it leaves the panel. Hollow marker: not steady.",)
        if panels
        else ()
    )
    legend = drafts if panels else ()
    title = "Speed-up, reckoned" if modelled else "Speed-up"
    return Section("speedup", title, tuple(lines), tuple(blocks), legend=legend, seen=seen)


def _speedup_table(document: RunDocument) -> Table:
    steps = sorted({one.concurrency for one in document.speedups})
    at = {(one.prompt_set, one.arm, one.concurrency): one for one in document.speedups}
    rows = []
    for prompt_set in sets_with(document, document.speedups):
        first = True
        for arm in dict.fromkeys(one.arm for one in document.speedups if one.prompt_set == prompt_set):
            items = [_speedup_item(at.get((prompt_set, arm, step)), step) for step in steps]
            heads = (Item(clean(prompt_set)), Item(clean(arm)))
            rows.append(Row((*heads, *items), arm=arm, prompt_set=prompt_set, first=first))
            first = False
    columns = (
        Column("prompt set", words=True),
        Column("arm", words=True),
        *(Column(str(step), "concurrency") for step in steps),
    )
    caption = "Speed-up; beneath it the 95 % interval and b, the measured running requests"
    return Table("speedups", caption, columns, tuple(rows), heads=2)


def _speedup_item(found: Speedup | None, step: int) -> Item:
    if found is None:
        return Item(NONE, concurrency=step)
    r = found.ratio
    span = f"{_bound(r.low)}–{_bound(r.high)}, " if r.low is not None and r.high is not None else ""
    span += f"{trials(r.n)}, " if r.n < ENOUGH_TRIALS else ""
    steady = "" if found.steady else "\nnot steady"
    mark: Mark = "" if not decides(r, found.steady) else "good" if r.value > 1 else "bad"
    return Item(ratio(r.value), f"{span}b {number(found.running)}{steady}", mark, "speedup", r.value, step)


def _bound(value: float) -> str:
    return ratio(value) if value < 100 else number(value)


def crossover_words(one: Crossover) -> str:
    """``meets 1 at 84 running requests (80–88)``."""
    limit = number(one.up_to)
    if one.kind == "at" and one.running is not None:
        r = one.running
        if r.n > 1 and r.low is None and r.high is None:
            return f"undecided: near {number(r.value)}, but the trials disagree"
        span = f" ({number(r.low)}–{number(r.high)})" if r.low is not None and r.high is not None else ""
        return f"at {number(r.value)} running requests{span}"
    if one.kind == "none":
        return f"none up to {limit}: ahead everywhere measured"
    return (
        "behind everywhere measured"
        if one.kind == "below"
        else "undecided: too few loads, or trials that disagree"
    )


def _crossover_mark(document: RunDocument, one: Crossover) -> Mark:
    """▲ and ▼ only where every ratio's interval says so; against another draft there is none."""
    if one.kind == "undecided":
        return "weak"
    found = speedups(document, one.arm, one.prompt_set) if one.against == BASELINE else []
    marks: dict[bool | None, Mark] = {True: "good", False: "bad", None: ""}
    return marks[surely(found)] if one.kind in ("none", "below") else ""


def _crossover_table(document: RunDocument, crossings: Sequence[Crossover]) -> Table:
    rows = tuple(
        Row(
            (
                Item(clean(one.arm)),
                Item(clean(one.against)),
                Item(clean(one.prompt_set)),
                Item(
                    crossover_words(one),
                    "",
                    _crossover_mark(document, one),
                    "crossover",
                    one.running.value if one.running else None,
                ),
            ),
            arm=one.arm,
            prompt_set=one.prompt_set,
        )
        for one in crossings
    )
    heads = [Column(head, words=True) for head in ("arm", "against", "prompt set", "stops being faster")]
    return Table("crossovers", "Crossover over measured running requests", tuple(heads), rows, heads=3)


def map_section(document: RunDocument, looks: Looks) -> Section:
    """T(b, K) against T(b, 0): the AL that is needed beside the AL that was had."""
    steps = [one for one in document.steps if one.arm in looks and one.running > 0]
    if not steps:
        return Section(
            "map",
            "Step time and break-even",
            ("No step times: neither arm nor baseline has a measured step.",),
        )
    order = [name for name in looks if any(one.arm == name for one in steps)]
    by_set = _steps_by_set(document, steps)
    every = [one for found in by_set.values() for one in found]
    odd = {
        (name, one.arm, one.concurrency): ratio_
        for name, found in by_set.items()
        for one in found
        if (ratio_ := _otherwise(document, one, name)) is not None
    }
    panels: list[Panel] = []
    for name, found in by_set.items():
        for arm in order:
            mine = [one for one in found if one.arm == arm]
            if not mine:
                continue
            title = f"{arm} (K = {mine[0].draft_length}){f' on {name}' if name else ''}"
            told = f"{title}: tokens a step needs to break even and tokens it made; the figures are in the table."
            ringed = {load for set_, name_, load in odd if (set_, name_) == (name, arm)}
            paint = partial(pictures.step_map, points=mine, looks=looks, all_points=every, ringed=ringed)
            panels.append(pictures.panel(f"map-{len(panels)}", title, told, paint))
    lines = (
        "A step with a draft takes T(b, K), without one T(b, 0). The ratio is the tokens a step must make to break even: "
        "speed-up = tokens per step × T(b, 0) ÷ T(b, K). With a draft in every step, tokens per step is the acceptance "
        "length (AL).",
    )
    made = "stated" if document.labels.modelled else "made"
    seen = (
        f"Solid line: needed. Dashed: {made}. Green between them, the dashed line above: the draft pays; red: it costs."
        + (" Ringed: the measured speed-up says otherwise, ≠ in the table." if odd else ""),
    )
    notes = _silent(document, order)
    if odd:
        notes = (
            f"≠: the Speed-up above differs from made ÷ needed by more than {UNEXPLAINED:.0%}, or lies on the other side of 1. "
            "It holds first tokens, start and end of a short cell, and noise; believe neither before they agree.",
            *notes,
        )
    blocks = (Block(tuple(panels), (_map_table(by_set, order, notes, odd),)),)
    return Section("map", "Step time and break-even", lines, blocks, seen=seen)


def _otherwise(document: RunDocument, one: StepCost, prompt_set: str) -> float | None:
    """The measured speed-up where it is not what the steps say; None where they agree, or one of them is not known."""
    said = one.predicted_speedup
    here = [
        found.ratio.value
        for found in speedups(document, one.arm, prompt_set)
        if found.concurrency == one.concurrency
    ]
    if not said or not here:
        return None
    apart = max(here[0] / said, said / here[0]) > 1 + UNEXPLAINED
    return here[0] if apart or (here[0] > 1) != (said > 1) else None


def _steps_by_set(document: RunDocument, pooled: Sequence[StepCost]) -> Mapping[str, Sequence[StepCost]]:
    """Step costs of each prompt set; those of all sets together, under no name, where cells cannot tell them apart."""
    if document.forecast is not None and not document.forecast.synthetic:
        return {"": pooled}
    arms = {one.arm for one in pooled}
    found = {
        info.name: [one for one in steps_of_set(document, info.name) if one.arm in arms and one.running > 0]
        for info in document.prompt_sets
    }
    kept = {name: steps for name, steps in found.items() if steps}
    return kept or {"": pooled}


def _silent(document: RunDocument, order: Sequence[str]) -> tuple[str, ...]:
    """A note on each arm that has nothing to propose on many steps: its AL holds for the others alone."""
    notes = []
    for arm in order:
        seen = [
            cell.pooled.acceptance
            for cell in document.cells
            if cell.arm == arm and cell.state == "ok" and cell.pooled
        ]
        known = [one.draft_coverage for one in seen if one.draft_coverage is not None]
        if known and sum(known) / len(known) < COVERED:
            share = percent(sum(known) / len(known))
            notes.append(
                f"{clean(arm)} drafts on {share} of the steps: its AL holds for those alone, tokens per step for all of them."
            )
    return tuple(notes)


def _map_table(
    by_set: Mapping[str, Sequence[StepCost]],
    order: Sequence[str],
    notes: tuple[str, ...],
    odd: Mapping[tuple[str, str, int], float],
) -> Table:
    grid = sorted({one.concurrency for steps in by_set.values() for one in steps})
    rows = []
    for name, steps in by_set.items():
        first = True
        for arm in order:
            at = {one.concurrency: one for one in steps if one.arm == arm}
            if not at:
                continue
            k = next(iter(at.values())).draft_length
            heads = (*([Item(clean(name))] if name else []), Item(clean(arm)), Item(str(k)))
            items = [_map_item(at.get(step), step, odd.get((name, arm, step))) for step in grid]
            rows.append(Row((*heads, *items), arm=arm, prompt_set=name, first=first))
            first = False
    named = "" not in by_set
    columns = (
        *((Column("prompt set", words=True),) if named else ()),
        Column("arm", words=True),
        Column("K"),
        *(Column(str(step), "concurrency") for step in grid),
    )
    caption = "T(b, K) ÷ T(b, 0) = tokens per step needed; beneath it those made and b, the running requests"
    return Table("steps", caption, columns, tuple(rows), heads=3 if named else 2, notes=notes)


def _map_item(one: StepCost | None, step: int, otherwise: float | None) -> Item:
    """What is needed and what was made, and a measured speed-up that says otherwise; no mark, for neither has an interval."""
    if one is None:
        return Item(NONE, concurrency=step)
    note = f"made {ratio(earned(one))}, b {number(one.running)}"
    note += f"\n≠ Speed-up {ratio(otherwise)}" if otherwise is not None else ""
    return Item(ratio(one.break_even_length), note, "", "break_even_length", one.break_even_length, step)


def acceptance_section(document: RunDocument, looks: Looks) -> Section:
    """Acceptance of each draft position on each set."""
    panels, rows, widest = [], [], 0
    for place, info in enumerate(document.prompt_sets):
        rates: dict[str, Sequence[float]] = {}
        first = True
        for arm in document.arms:
            found, origin = position_rates(document, arm.name, info.name)
            if found is None or not found.positions:
                continue
            rates[arm.name] = found.positions
            widest = max(widest, len(found.positions))
            items = [
                Item(clean(info.name)),
                Item(clean(arm.name)),
                Item(ratio(found.length), figure="length", value=found.length),
            ]
            items += [Item(ratio(found.rate), figure="rate", value=found.rate), Item(origin)]
            odd = {at: note for at, note in enumerate(found.position_notes) if note}
            for at, rate in enumerate(found.positions):
                mark: Mark = "weak" if at in odd else ""
                items.append(Item(ratio(rate), clean(odd.get(at, "")), mark, f"position.{at + 1}", rate))
            rows.append(Row(tuple(items), arm=arm.name, prompt_set=info.name, first=first))
            first = False
        if rates:
            told = f"Acceptance rate of each draft position on {info.name}; the figures are in the table."
            paint = partial(pictures.positions, rates=rates, looks=looks)
            panels.append(pictures.panel(f"positions-{place}", info.name, told, paint))
    if not rows:
        return Section("acceptance", "Acceptance by position", ("No acceptance by position was measured.",))
    columns = (
        *(
            Column("prompt set", words=True),
            Column("arm", words=True),
            Column("AL"),
            Column("rate"),
            Column("from", words=True),
        ),
        *(Column(str(at), "accepted at position") for at in range(1, widest + 1)),
    )
    filled = tuple(_filled(row, len(columns)) for row in rows)
    table = Table(
        "positions", "Acceptance rate of each draft position, of all drafts", columns, filled, heads=2
    )
    lines = (
        "Share of drafts in which the token at this position was accepted (so every earlier one was, too).",
    )
    shown = tuple(arm for arm in looks if any(row.arm == arm for row in rows))
    return Section(
        "acceptance", "Acceptance by position", lines, (Block(tuple(panels), (table,)),), legend=shown
    )


def _filled(row: Row, width: int) -> Row:
    return Row(
        (*row.items, *([Item("")] * (width - len(row.items)))),
        arm=row.arm,
        prompt_set=row.prompt_set,
        first=row.first,
    )

"""From a RunDocument to the report's content: the one place that knows the order of sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outrider.bench.answers import TARGET
from outrider.bench.document import Answer, RunDocument
from outrider.bench.report import background, findings, money, tails
from outrider.bench.report.content import VERDICTS, Answers, Report, Said, Section, Table, Verdict
from outrider.bench.report.look import Look, looks
from outrider.bench.report.text import clean

# What the first word of an answer's id asks; the order of the report. Other words stand under the last one.
_QUESTIONS = {
    "recommendation": "When to switch the draft on",
    "no-baseline": "When to switch the draft on",
    "forecast": "What the stated acceptance would be worth",
    "caveat": "What to keep in mind",
    "speedup": "Speed-up at each load",
    "stops-paying": "Where it stops paying",
    "rival": "Draft against draft",
    "tail": "Tail latency under rejection",
    "degrades": "Traffic on which a draft is worth less",
    "target": f"Where it passes {TARGET}×",
    "cost": "What a million tokens cost",
    "": "More",
}
SET = "prompt set"  # the head of a column that names it
_NEVER_FOLDED = {_QUESTIONS["recommendation"], _QUESTIONS["caveat"]}
_FOLD_ABOVE = 6


def looks_of(document: RunDocument) -> dict[str, Look]:
    """Colours of the run's arms, and of arms that only a figure names."""
    named = [arm.name for arm in document.arms]
    return looks([*named, *(cell.arm for cell in document.cells if cell.arm not in named)])


def printable(document: RunDocument) -> RunDocument:
    """The document with every text and key cleaned, once and for all: what both files, names and attributes are made of."""
    return RunDocument.model_validate(_cleaned(document.model_dump(by_alias=True)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(inner) for key, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value


def _verdict(answer: Answer) -> Verdict:
    kind = answer.id.partition("/")[0]
    if kind in ("caveat", "no-baseline"):
        return "caveat"
    # A forecast rests on what was stated: no interval bears it out, it points somewhere.
    sure, leans = (None, answer.good) if kind == "forecast" else (answer.good, answer.leans)
    if sure is not None:
        return "good" if sure else "bad"
    return "open" if leans is None else "on" if leans else "off"


def verdicts(groups: Sequence[Answers]) -> tuple[Verdict, ...]:
    """Those that stand before an answer of the report: its legend."""
    used = {said.mark for group in groups for said in group.items}
    return tuple(one for one in VERDICTS if one in used)


def grouped(answers: Sequence[Answer]) -> tuple[Answers, ...]:
    """Answers by question; many answers to one question are folded, advice and caveats never."""
    found: dict[str, list[Said]] = {title: [] for title in _QUESTIONS.values()}
    for one in answers:
        title = _QUESTIONS.get(one.id.partition("/")[0], _QUESTIONS[""])
        found[title].append(Said(one.id, one.text, _verdict(one), dict(one.values)))
    groups: list[Answers] = []
    for title, items in found.items():
        marks = [one.mark for one in items]
        tally = ", ".join(
            f"{marks.count(mark)} {word.lower()}" for mark, (_, word, _) in VERDICTS.items() if mark in marks
        )
        folded = len(items) > _FOLD_ABOVE and title not in _NEVER_FOLDED
        if items:
            groups.append(Answers(title, tuple(items), folded, f"{len(items)} answers: {tally}"))
    return tuple(groups)


def compose(document: RunDocument) -> Report:
    """All sections of a printable document, in the order in which they are read."""
    colours = looks_of(document)
    sections: tuple[Section, ...] = (
        findings.speedup_section(document, colours),
        findings.map_section(document, colours),
        findings.acceptance_section(document, colours),
        tails.latency_section(document, colours),
        money.cost_section(document, colours),
        background.cells_section(document),
        background.natural_end_section(document),
        background.prompts_section(document),
        background.fallen_section(document),
        background.provenance_section(document),
        background.settings_section(document),
        background.glossary_section(),
        background.again_section(document),
    )
    if len(document.prompt_sets) == 1:
        sections = tuple(_of_one_set(section, clean(document.prompt_sets[0].name)) for section in sections)
    return Report(
        title=clean(document.name),
        subtitle=background.subtitle(document),
        banners=background.banners(document),
        run=background.what_was_run(document),
        arms=background.arms_table(document),
        answers=grouped(document.answers),
        sections=sections,
    )


def _of_one_set(section: Section, name: str) -> Section:
    """Where there is one prompt set, it stands in a table's caption: its column would push the numbers off a phone's screen."""
    blocks = tuple(
        replace(block, tables=tuple(_without_sets(table, name) for table in block.tables))
        for block in section.blocks
    )
    return replace(section, blocks=blocks)


def _without_sets(table: Table, name: str) -> Table:
    at = next((place for place, one in enumerate(table.columns[: table.heads]) if one.head == SET), None)
    if at is None or table.heads < 2:
        return table
    rows = tuple(replace(row, items=row.items[:at] + row.items[at + 1 :]) for row in table.rows)
    columns = table.columns[:at] + table.columns[at + 1 :]
    return replace(
        table, caption=f"{name}: {table.caption}", columns=columns, rows=rows, heads=table.heads - 1
    )

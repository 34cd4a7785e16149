"""From a RunDocument to the report's content: the one place that knows the order of sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from outrider.bench.answers import TARGET
from outrider.bench.document import Answer, RunDocument
from outrider.bench.report import background, findings, money, tails
from outrider.bench.report.content import Answers, Report, Said
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


def _mark(answer: Answer) -> Literal["good", "bad", "caveat"]:
    # A forecast is reckoned from what was stated: no interval bears it out.
    if answer.good is None or answer.id.startswith(("caveat", "forecast")):
        return "caveat"
    return "good" if answer.good else "bad"


def grouped(answers: Sequence[Answer]) -> tuple[Answers, ...]:
    """Answers by question; many answers to one question are folded, advice and caveats never."""
    found: dict[str, list[Said]] = {title: [] for title in _QUESTIONS.values()}
    for one in answers:
        title = _QUESTIONS.get(one.id.partition("/")[0], _QUESTIONS[""])
        found[title].append(Said(one.id, one.text, _mark(one), dict(one.values)))
    groups: list[Answers] = []
    for title, items in found.items():
        marks = [one.mark for one in items]
        tally = ", ".join(
            f"{marks.count(mark)} {mark}" for mark in ("good", "bad", "caveat") if mark in marks
        )
        folded = len(items) > _FOLD_ABOVE and title not in _NEVER_FOLDED
        if items:
            groups.append(Answers(title, tuple(items), folded, f"{len(items)} answers: {tally}"))
    return tuple(groups)


def compose(document: RunDocument) -> Report:
    """All sections of a printable document, in the order in which they are read."""
    colours = looks_of(document)
    return Report(
        title=clean(document.name),
        subtitle=background.subtitle(document),
        banners=background.banners(document),
        run=background.what_was_run(document),
        arms=background.arms_table(document),
        answers=grouped(document.answers),
        sections=(
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
        ),
    )

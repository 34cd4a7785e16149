"""From a RunDocument to the report's content: the one place that knows the order of sections."""

from __future__ import annotations

from typing import Any

from outrider.bench.document import RunDocument
from outrider.bench.report import background, findings, money, tails
from outrider.bench.report.content import Report, Said
from outrider.bench.report.look import Look, looks
from outrider.bench.report.text import clean

_MARKS = {True: "good", False: "bad", None: "caveat"}


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


def compose(document: RunDocument) -> Report:
    """All sections of a printable document, in the order in which they are read."""
    colours = looks_of(document)
    answers = tuple(
        Said(clean(one.id), clean(one.text), _MARKS[one.good], dict(one.values))  # type: ignore[arg-type]
        for one in document.answers
    )
    return Report(
        title=clean(document.name),
        subtitle=background.subtitle(document),
        banners=background.banners(document),
        run=background.what_was_run(document),
        arms=background.arms_table(document),
        answers=answers,
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

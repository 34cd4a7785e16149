"""The report as one HTML file that opens offline: no script, no outside resource, its own Content-Security-Policy.

Every word of the document is escaped by Jinja2; only our own SVG and style sheet are put in as they are.
"""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from outrider.bench.document import RunDocument
from outrider.bench.report import look, pictures
from outrider.bench.report.compose import compose, looks_of, printable, verdicts
from outrider.bench.report.content import VERDICTS, Column, Item, Table
from outrider.bench.report.svg import classes

TEMPLATES = Path(__file__).parent / "templates"


def render_html(document: RunDocument) -> str:
    """The whole file. The same document gives the same text."""
    document = printable(document)
    report = compose(document)
    arms = looks_of(document)
    symbols = "".join(pictures.swatch(one, f"swatch-{place}") for place, one in enumerate(arms.values()))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(heads=head_groups, exact=exact, values=json.dumps, width=width)
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    every = [one for section in report.sections for block in section.blocks for one in block.panels]
    short, rules = classes({one.name: one.svg for one in every})
    style += rules
    for scheme in ("light", "dark"):
        style = style.replace(f"/*{scheme}*/", look.css_variables(scheme))
    return environment.get_template("report.html.j2").render(
        report=report,
        verdicts=VERDICTS,
        legend=verdicts(report.answers),
        swatches={arm: f"#swatch-{place}" for place, arm in enumerate(arms)},
        symbols=Markup(symbols),  # noqa: S704  (made here, holds nothing of the document)
        style=Markup(style),  # noqa: S704  (our own file)
        svg={name: Markup(one) for name, one in short.items()},  # noqa: S704  (made here, its texts escaped)
    )


def head_groups(table: Table) -> list[tuple[str, list[Column]]]:
    """Columns by their upper head: neighbours with the same one together, "" for a column alone."""
    found: list[tuple[str, list[Column]]] = []
    for column in table.columns:
        if column.group and found and found[-1][0] == column.group:
            found[-1][1].append(column)
        else:
            found.append((column.group, [column]))
    return found


def exact(item: Item) -> str:
    """The value as a program reads it back: every digit."""
    return "" if item.value is None else repr(float(item.value))


def width(table: Table) -> int:
    """Columns after the heads, for a message across them."""
    return max(len(table.columns) - table.heads, 1)

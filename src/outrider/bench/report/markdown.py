"""The report as Markdown that reads well as plain text: aligned columns, no HTML, pictures left to report.html."""

from __future__ import annotations

import re

from outrider.bench.document import RunDocument
from outrider.bench.report.compose import compose
from outrider.bench.report.content import Block, Item, Row, Section, Table

_SPECIAL = re.compile(r"([\\`*<>|\[\]]|(?<!\w)_|_(?!\w)|~(?=~))")
_SIGNS = {"good": "▲ ", "bad": "▼ "}
_ANSWERS = {"good": "✓ Good:", "bad": "✗ Bad:", "caveat": "△ Caveat:"}
MOST_COLUMNS = 12


def render_markdown(document: RunDocument) -> str:
    """The whole file. The same document gives the same text."""
    report = compose(document)
    parts = [f"# {escape(report.title)}", escape(report.subtitle)]
    for kind, text in report.banners:
        parts.append(f"> **{'Incomplete' if kind == 'bad' else 'Caveat'}:** {escape(text)}")
    parts.append("## What was run")
    parts.append("\n".join(f"- {escape(name)}: {escape(text)}" for name, text in report.run))
    parts.append(_table(report.arms))
    parts.append("## Answers")
    answers = [f"- {_ANSWERS[said.mark]} {escape(said.text)}" for said in report.answers]
    parts.append("\n".join(answers) or "No answers: no arm could be compared with the baseline.")
    for section in report.sections:
        parts += _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text of the document as text: no markup, link or table edge comes out of it."""
    return _SPECIAL.sub(r"\\\1", text)


def _section(section: Section) -> list[str]:
    parts = [f"## {escape(section.title)}", *(escape(line) for line in section.lines)]
    for block in section.blocks:
        parts += _block(block)
    parts.append("\n".join(f"- **{escape(term)}**: {escape(meaning)}" for term, meaning in section.terms))
    if section.code:
        fence = "`" * (max((len(run) for run in re.findall("`+", section.code)), default=0) + 3)
        parts.append(f"{fence}text\n{section.code}\n{fence}")
    return parts


def _block(block: Block) -> list[str]:
    parts = [f"### {escape(block.title)}" if block.title else "", *(escape(line) for line in block.lines)]
    return parts + [_table(table) for table in block.tables]


def _table(table: Table) -> str:
    """One table, or several with the same heads where it is too wide to be read as text."""
    heads, rest = table.heads, list(range(table.heads, len(table.columns)))
    step = MOST_COLUMNS - heads
    parts = [rest[at : at + step] for at in range(0, len(rest), step)] or [[]]
    shown = []
    for place, part in enumerate(parts):
        title = f"**{escape(table.caption)}**" + (f" ({place + 1} of {len(parts)})" if len(parts) > 1 else "")
        shown.append(title + "\n\n" + _aligned(table, [*range(heads), *part], with_messages=place == 0))
    shown += ["\n".join(f"- {escape(note)}" for note in table.notes)] if table.notes else []
    return "\n\n".join(shown)


def _aligned(table: Table, columns: list[int], *, with_messages: bool) -> str:
    names = [table.columns[at] for at in columns]
    lines = [[escape(f"{one.group} {one.head}".strip()) for one in names]]
    for row in table.rows:
        if row.message and not with_messages:
            continue
        lines.append([_text(row, at, table.heads) for at in columns])
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    words = [one.words for one in names]
    rule = [
        "-" * max(width, 3) if left else "-" * (max(width, 3) - 1) + ":"
        for width, left in zip(widths, words, strict=True)
    ]
    widths = [max(width, 3) for width in widths]
    out = []
    for place, line in enumerate(lines):
        padded = [
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, words, strict=True)
        ]
        out.append("| " + " | ".join(padded) + " |")
        if place == 0:
            out.append("| " + " | ".join(rule) + " |")
    return "\n".join(out)


def _text(row: Row, at: int, heads: int) -> str:
    if row.message and at >= heads:
        return escape(row.message) if at == heads else ""
    return _item(row.items[at]) if at < len(row.items) else ""


def _item(item: Item) -> str:
    note = f" ({item.note.replace(chr(10), ', ')})" if item.note else ""
    return _SIGNS.get(item.mark, "") + escape(item.text + note)

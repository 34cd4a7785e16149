"""The report as Markdown that reads well as plain text: aligned columns, no HTML, pictures left to report.html."""

from __future__ import annotations

import re

from outrider.bench.document import RunDocument
from outrider.bench.report.compose import compose, printable, verdicts
from outrider.bench.report.content import VERDICTS, Block, Column, Item, Row, Said, Section, Table

_SPECIAL = re.compile(r"([\\`*<>|\[\]]|(?<!\w)_|_(?!\w)|~(?=~))")
_SIGNS = {"good": "▲ ", "bad": "▼ "}
WIDEST = 118


def render_markdown(document: RunDocument, html: str = "report.html") -> str:
    """The whole file; `html` is the name of the one with pictures. The same document gives the same text."""
    report = compose(printable(document))
    parts = [f"# {escape(report.title)}", escape(report.subtitle)]
    for kind, text in report.banners:
        parts.append(f"> **{'Incomplete' if kind == 'bad' else 'Caveat'}:** {escape(text)}")
    parts.append(f"The same numbers with pictures: `{html}`, beside this file.")
    parts.append("## Answers")
    legend = [" ".join(VERDICTS[one][:2]) + ": " + VERDICTS[one][2] for one in verdicts(report.answers)]
    parts.append("\n".join(f"- {escape(one)}" for one in legend))
    for group in report.answers:
        parts.append(f"### {escape(group.title)}")
        parts.append("\n".join(f"- {_said(said)}" for said in group.items))
    parts += [] if report.answers else ["No answers: no arm could be compared with the baseline."]
    parts.append("## What was run")
    parts.append("\n".join(f"- {escape(name)}: {escape(text)}" for name, text in report.run))
    parts.append(_table(report.arms))
    for section in report.sections:
        parts += _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text of the document as text: no markup, link or table edge comes out of it."""
    return _SPECIAL.sub(r"\\\1", text)


def _said(said: Said) -> str:
    sign, word, _ = VERDICTS[said.mark]
    return f"{sign} {word}: {escape(said.text)}"


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
    parts = _parts(table)
    shown = []
    for place, part in enumerate(parts):
        title = f"**{escape(table.caption)}**" + (f" ({place + 1} of {len(parts)})" if len(parts) > 1 else "")
        shown.append(title + "\n\n" + _aligned(table, [*range(table.heads), *part]))
    shown += ["\n".join(f"- {escape(note)}" for note in table.notes)] if table.notes else []
    return "\n\n".join(shown)


def _parts(table: Table) -> list[list[int]]:
    """Columns after the heads, cut where a column, or a group that fits a line of its own, would pass the widest line."""
    widths = [
        max([len(_head(column)), *(len(_text(row, at, table.heads)) for row in table.rows)]) + 3
        for at, column in enumerate(table.columns)
    ]
    room = WIDEST - sum(widths[: table.heads])
    parts: list[list[int]] = [[]]
    for group in _groups(table):
        left = room - sum(widths[at] for at in parts[-1])
        needed = sum(widths[at] for at in group)
        if parts[-1] and left < needed <= room:
            parts.append([])
        for at in group:
            if parts[-1] and sum(widths[i] for i in parts[-1]) + widths[at] > room:
                parts.append([])
            parts[-1].append(at)
    return parts


def _groups(table: Table) -> list[list[int]]:
    """Columns after the heads, neighbours of one group together."""
    found: list[list[int]] = []
    for at in range(table.heads, len(table.columns)):
        group = table.columns[at].group
        if group and found and table.columns[found[-1][-1]].group == group:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def _head(column: Column) -> str:
    return escape(f"{column.group} {column.head}".strip())


def _aligned(table: Table, columns: list[int]) -> str:
    names = [table.columns[at] for at in columns]
    lines = [[_head(one) for one in names]]
    lines += [[_text(row, at, table.heads) for at in columns] for row in table.rows]
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
        return (
            escape(row.message.partition(":")[0]) if at == heads else ""
        )  # the reason: Cells that do not stand
    return _item(row.items[at]) if at < len(row.items) else ""


def _item(item: Item) -> str:
    note = f" ({item.note.replace(chr(10), ', ')})" if item.note else ""
    return _SIGNS.get(item.mark, "") + escape(item.text + note)

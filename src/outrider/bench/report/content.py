"""What a report consists of, before it is HTML or Markdown: sections with panels, tables and sentences.

Both renderings walk the same sections, so the two files cannot tell different stories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Mark = Literal["", "good", "bad", "weak"]
Verdict = Literal["good", "bad", "on", "off", "open", "caveat"]
# How a verdict is shown (a sign of its own, not a colour alone), and what it means.
VERDICTS: dict[Verdict, tuple[str, str, str]] = {
    "good": (
        "✓",
        "Good",
        "surely for the draft named first: three trials or more, steady, the interval leaves no draft out",
    ),
    "bad": ("✗", "Bad", "surely against it, by the same rule"),
    "on": (
        "↗",
        "Leans on",
        "the figures point to the draft; too few trials, or not steady, so nothing is sure",
    ),
    "off": ("↘", "Leans off", "the figures point away from it; nothing is sure"),
    "open": ("◇", "Undecided", "the figures point nowhere, or both ways"),
    "caveat": ("△", "Caveat", "to be known before the numbers are believed"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One table cell: `text`, a smaller `note` beside it, a `mark` shown as a sign as well as a colour.

    `figure` and `value` make it readable by a program (``data-figure``, ``data-value``); `concurrency` where a column
    has its own.
    """

    text: str
    note: str = ""
    mark: Mark = ""
    figure: str = ""
    value: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head; neighbours with the same `group` share a head above."""

    head: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in column order. A `message` replaces all cells after the heads (a failed cell's reason).

    `arm` adds the arm's swatch to the last head; `first` starts a block with a line above.
    """

    items: tuple[Item, ...]
    message: str = ""
    arm: str = ""
    prompt_set: str = ""
    concurrency: int | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first `heads` columns are row headers, `notes` stand below."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    heads: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: `svg` is ready to be put into the page, `title` stands above it, `name` is unique in the page."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Block:
    """Pictures with their table. A `fold` is the title of a block that can be opened and shut."""

    panels: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()
    title: str = ""
    fold: str = ""
    open: bool = True
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report with a heading.

    `seen` explains its pictures, `legend` names the arms whose swatches stand above them.
    """

    id: str
    title: str
    lines: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    legend: tuple[str, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    code: str = ""
    seen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """One answer with its mark."""

    id: str
    text: str
    mark: Verdict
    values: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to one question. Many of them are folded under `summary`."""

    title: str
    items: tuple[Said, ...]
    folded: bool = False
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. `banners` are (kind, sentence): what must be read before any number."""

    title: str
    subtitle: str
    banners: tuple[tuple[str, str], ...]
    run: tuple[tuple[str, str], ...]
    arms: Table
    answers: tuple[Answers, ...]
    sections: tuple[Section, ...]

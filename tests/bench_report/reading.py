"""Read a report back: tags of the HTML, tables of the Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "use", "path", "rect", "img", "hr", "input"}


@dataclass
class Tag:
    """An element with its attributes and the text inside it."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Tag] = field(default_factory=list)

    def every(self, name: str) -> list[Tag]:
        """Descendants of this name, in order."""
        found = []
        for one in self.inside:
            found += [one] if one.name == name else []
            found += one.every(name)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Tag("", {})
        self.open = [self.root]
        self.unbalanced: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = Tag(tag, {key: value or "" for key, value in attrs})
        self.open[-1].inside.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Tag(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self.open[-1].name != tag:
            self.unbalanced.append(f"{self.open[-1].name} closed by {tag}")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data


def read(html: str) -> Tag:
    """The document's root; fails where tags do not balance."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.unbalanced, reader.unbalanced[:5]
    assert len(reader.open) == 1, [one.name for one in reader.open]
    return reader.root


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Every table's rows of cells."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            tables.append([])
        inside = True
        tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return tables

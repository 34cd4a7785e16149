"""YAML text -> plain values, with the place of every key and value.

Not `yaml.safe_load`: that keeps the last of two equal keys, forgets positions, expands aliases without end and reads
``on`` as true without a word. Here every such surprise is a Problem with its line and column.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import yaml

from outrider.core.errors import Problem

MAX_BYTES = 256 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 32

Path = tuple[str | int, ...]
_SCALARS = {
    "tag:yaml.org,2002:str",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:null",
}
_BLOCKS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(frozen=True, slots=True)
class Place:
    """1-based line and column."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string value as it stands in the file: `value` read, `raw` written (quotes included), from `place` on."""

    path: Path
    value: str
    raw: str
    place: Place

    def place_of(self, index: int) -> Place:
        """Where character `index` of `value` stands; the start of the value where escapes or folding hide it."""
        if "\n" in self.raw or self.raw[:1] in "|>":
            return self.place
        if self.raw.startswith("'"):
            return Place(self.place.line, self.place.column + 1 + index + self.value[:index].count("'"))
        if self.raw.startswith('"'):
            return self.place if "\\" in self.raw else Place(self.place.line, self.place.column + 1 + index)
        return Place(self.place.line, self.place.column + index)


@dataclass
class Document:
    """What a YAML text says: `value`, where each path's key and value stand, and its strings."""

    file: str
    value: object = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    texts: list[Text] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """The place of `path`'s key, else its value, else of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            found = self.keys.get(path[:end]) or self.values.get(path[:end])
            if found:
                return found
        return Place(1, 1)

    def problem(
        self, path: Path, message: str, rule: str, hint: str = "", place: Place | None = None
    ) -> Problem:
        """A Problem at `path`, or at `place` where given."""
        at = place or self.place(path)
        return Problem(message, dotted(path), rule, hint, file=self.file, line=at.line, column=at.column)


def dotted(path: Path) -> str:
    """``('serve', 'keys', 0, 'name')`` -> ``serve.keys[0].name``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_document(text: str, file: str) -> Document:
    """Read one YAML document; everything that cannot be read is in `problems`."""
    document = Document(file)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        document.problems.append(
            Problem(f"larger than {MAX_BYTES // 1024} KiB: not a stack", rule="syntax", file=file)
        )
        return document
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax_problem(error, file))
    except yaml.YAMLError as error:  # a character that YAML forbids carries its own position form
        document.problems.append(
            Problem(" ".join(str(error).split()), rule="syntax", file=file, line=1, column=1)
        )
    except RecursionError:
        document.problems.append(Problem("nested too deeply", rule="syntax", file=file, line=1, column=1))
    else:
        if root is None:
            document.problems.append(Problem("the file is empty", rule="syntax", file=file, line=1, column=1))
        else:
            document.value = _Reader(document).read(root, (), ())
    return document


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    message = error.problem or error.context or "cannot be read"
    if error.context and error.problem:
        began = error.context_mark
        elsewhere = (
            f" that begins in line {began.line + 1}" if began and mark and began.line != mark.line else ""
        )
        message = f"{error.problem} ({error.context}{elsewhere})"
    hint = "Indent with spaces." if "\\t" in message else ""
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(f"not YAML: {message}", rule="syntax", hint=hint, file=file, line=line, column=column)


class _Reader:
    """Walks the node graph once per occurrence, counting, so that aliases cannot blow up."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.constructor = yaml.constructor.SafeConstructor()
        self.count = 0

    def read(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> object:
        self.count += 1
        self.document.values.setdefault(path, Place(node.start_mark.line + 1, node.start_mark.column + 1))
        if id(node) in above:
            return self._refuse(node, path, "an alias that contains itself")
        if len(above) >= MAX_DEPTH:
            return self._refuse(node, path, f"nested more than {MAX_DEPTH} deep")
        if self.count > MAX_VALUES:
            if self.count == MAX_VALUES + 1:
                self._refuse(node, path, f"more than {MAX_VALUES} values (aliases are counted each time)")
            return None
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _BLOCKS:
            return self._refuse(
                node, path, f"the tag {node.tag.removeprefix('tag:yaml.org,2002:')} is not read here"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i), (*above, id(node))) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str):
                self._refuse(key_node, path, "a key must be plain text")
                continue
            if key == "<<":
                self._refuse(key_node, path, "merge keys (<<) are not read: write the keys out")
                continue
            here = (*path, key)
            place = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if key in result:
                first = self.document.keys[here].line
                self.document.problems.append(
                    self.document.problem(
                        here, f"given twice, first in line {first}", "duplicate-key", place=place
                    )
                )
                continue
            self.document.keys.setdefault(here, place)
            result[key] = self.read(value_node, here, above)
        return result

    def _scalar(self, node: yaml.Node, path: Path) -> object:
        if node.tag not in _SCALARS:
            if node.tag == "tag:yaml.org,2002:timestamp":
                return str(node.value)
            return self._refuse(
                node, path, f"the tag {node.tag.removeprefix('tag:yaml.org,2002:')} is not read here"
            )
        try:
            value: Hashable = self.constructor.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            return self._refuse(node, path, f"cannot be read: {error}")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(node, path, "must be a finite number")
        if isinstance(value, str):
            start, end = node.start_mark, node.end_mark
            raw = start.buffer[start.pointer : end.pointer] if start.buffer and end.buffer else value
            self.document.texts.append(Text(path, value, raw, self.document.values[path]))
        return value

    def _refuse(self, node: yaml.Node, path: Path, message: str) -> object:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self.document.problems.append(self.document.problem(path, message, "syntax", place=place))
        return None


def walk_keys(value: object, path: Path = ()) -> Iterator[Path]:
    """The path of every key in `value`, outer before inner, in file order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from walk_keys(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from walk_keys(inner, (*path, i))

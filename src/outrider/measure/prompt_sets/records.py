"""A file's records, one at a time and within limits: JSONL by lines, a JSON array by elements, either one packed with gzip.

What one line does wrong is counted and the next line read; what makes the rest of the file unreadable, or passes a limit of the
whole file, is refused.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.measure.prompt_sets.shape import Unusable
from outrider.stack.digests import file_digest

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 2**20
_SPACE = " \t\r\n"


def file_sha256(path: Path, shown: str, options: PromptOptions) -> str:
    """SHA-256 of the file as it lies there. Raises MeasurementError: no plain file, too large, unreadable."""
    try:
        if not path.is_file():
            raise MeasurementError(f"{shown} is not a file", hint="Give a .jsonl, .json or .jsonl.gz file.")
        if path.stat().st_size > options.max_file_bytes:
            raise _too_large(shown, "", options.max_file_bytes)
        return file_digest(path)
    except OSError as error:
        raise MeasurementError(
            f"{shown} cannot be read: {error.strerror}", hint="Check the path and its permissions."
        ) from error


def read_records(path: Path, shown: str, options: PromptOptions) -> Iterator[tuple[int, object]]:
    """Number (1 for the first) and value of each record; an `Unusable` stands for a line that is none.

    Blank lines are no records.

    Raises:
        MeasurementError: broken gzip, broken array, or more bytes or records than `options` allow.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == _GZIP_MAGIC
            with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                bounded = _Bounded(stream, shown, options)
                is_array = path.name.removesuffix(".gz").endswith(".json") and bounded.begins_with(b"[")
                found = _elements(bounded) if is_array else _lines(bounded)
                for number, value in enumerate(found, start=1):
                    if number > options.max_records:
                        raise MeasurementError(
                            f"{shown} has more than {options.max_records:,} records",
                            hint="Split the file, or give a part of it.",
                        )
                    yield number, value
    except (OSError, EOFError, zlib.error) as error:
        hint = "Is it cut short, or not gzip? Fetch or pack it again."
        raise MeasurementError(f"{shown} cannot be read: {error}", hint=hint) from error


class _Bounded:
    """Reads a stream and refuses once it gave more than it may: a small gzip file unpacks to anything."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, shown: str, options: PromptOptions) -> None:
        self.stream, self.shown, self.options = stream, shown, options
        self.left = options.max_unpacked_bytes
        self.ahead = b""

    def begins_with(self, start: bytes) -> bool:
        """Whether `start` is the first thing after a byte order mark and white space, looking 4 KiB far."""
        self.ahead = self._counted(self.stream.read(4096))
        return self.ahead.removeprefix(codecs.BOM_UTF8).lstrip().startswith(start)

    def read(self, size: int) -> bytes:
        """What was looked at, or at most `size` bytes; empty at the end."""
        ahead, self.ahead = self.ahead, b""
        return ahead or self._counted(self.stream.read(size))

    def readline(self, size: int) -> bytes:
        """One line with its end, or its first `size` bytes."""
        if not self.ahead:
            return self._counted(self.stream.readline(size))
        head, newline, rest = self.ahead.partition(b"\n")
        if newline:
            self.ahead = rest
            return head + newline
        self.ahead = b""
        return head + self._counted(self.stream.readline(size))

    def _counted(self, content: bytes) -> bytes:
        self.left -= len(content)
        if self.left < 0:
            raise _too_large(self.shown, " unpacked", self.options.max_unpacked_bytes)
        return content


def _lines(stream: _Bounded) -> Iterator[object]:
    limit = stream.options.max_record_bytes
    first = True
    while line := stream.readline(limit + 1):
        if first and line.startswith(codecs.BOM_UTF8):
            line = line.removeprefix(codecs.BOM_UTF8)
            line += b"" if line.endswith(b"\n") else stream.readline(limit + 1 - len(line))
        first = False
        if len(line) > limit + line.endswith(b"\n"):
            blank = not line.strip()
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(_CHUNK)
                blank = blank and not rest.strip()
            if not blank:
                yield Unusable(f"line longer than {limit:,} bytes")
        elif line.strip():
            yield _parse(line)


def _parse(line: bytes) -> object:
    """The line's JSON value, or why it has none."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Unusable("not UTF-8")
    except RecursionError:
        return Unusable("nested too deep")
    except ValueError:  # a number of thousands of digits too, which is no JSONDecodeError
        return Unusable("bad JSON")


def _elements(stream: _Bounded) -> Iterator[object]:
    """The elements of one JSON array, holding one of them at a time."""
    text = _Text(stream)
    text.take("[")
    if text.peek() != "]":
        yield text.value()
        while text.peek() == ",":
            text.take(",")
            yield text.value()
    text.take("]")
    if text.peek():
        raise text.broken("something follows the array's end")


class _Text:
    """A window on the decoded text of an array file; it grows until the next value is whole."""

    def __init__(self, stream: _Bounded) -> None:
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.json = json.JSONDecoder()
        self.text, self.at, self.ended, self.taken = "", 0, False, 0

    def broken(self, what: str) -> MeasurementError:
        """The refusal, with how far the file could be read."""
        return MeasurementError(
            f"{self.stream.shown} is not a JSON array: {what} (after {self.taken} elements)",
            hint="One JSON object a line (.jsonl) is read even where some lines are broken.",
        )

    def peek(self) -> str:
        """The next character that is no white space, or empty at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self._grow()

    def take(self, character: str) -> None:
        """Step over `character`, which must come next."""
        if self.peek() != character:
            raise self.broken(f"{character!r} is missing")
        self.at += 1

    def value(self) -> object:
        """The next value."""
        self.peek()
        while True:
            try:
                value, end = self.json.raw_decode(self.text, self.at)
                if end < len(self.text) or self.ended:  # at the window's end a number may go on
                    self.at = end
                    self.taken += 1
                    return value
            except RecursionError:
                raise self.broken("nested too deep") from None
            except ValueError:
                if self.ended:
                    raise self.broken("bad JSON") from None
            if len(self.text) - self.at > self.stream.options.max_record_bytes:
                raise self.broken("bad JSON, or an element that is too large")
            self._grow()

    def _grow(self) -> None:
        waiting = self.text[self.at :]
        chunk = self.stream.read(max(_CHUNK, len(waiting)))
        self.ended = not chunk
        try:
            self.text, self.at = waiting + self.decoder.decode(chunk, final=self.ended), 0
        except UnicodeDecodeError:
            raise self.broken("not UTF-8") from None


def _too_large(shown: str, how: str, limit: int) -> MeasurementError:
    return MeasurementError(
        f"{shown} is larger than {limit:,} bytes{how}",
        hint="Give a part of it: a bench needs some hundred prompts.",
    )

"""What data steps leave on disk: rows to train on, one JSON object a line, and the counts of what was left out.

A file grows by whole lines, a batch in one write. Whatever ends a run, at most its last line is torn; opening the file to go on
cuts that line off, and its prompt is done again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from outrider.core.errors import TrainingError
from outrider.core.files import put_whole

UNMASKED_SHARE = 0.01
Made = TypeVar("Made")
AGAIN = "Repeat the command: it goes on where it stopped."


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation as the target saw and wrote it.

    `input_ids` are the whole conversation's tokens, `loss_mask` (as long) is 1 on each token of an answer, its end-of-turn
    token included where the target wrote one. `finish_reason` is the last answer's: ``stop`` or ``length``. `kind`: ``selfplay``
    or ``data``. `index` is the prompt's line (from 0) among the prompts. `cut` says why the conversation ends early, if it does.
    """

    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    messages: tuple[Mapping[str, str], ...]
    finish_reason: str
    kind: str
    index: int = -1
    cut: str = ""

    @property
    def answer_tokens(self) -> int:
        """Tokens with a loss."""
        return sum(self.loss_mask)

    def record(self) -> dict[str, object]:
        """As it is written."""
        return {
            "index": self.index,
            "input_ids": self.input_ids,
            "loss_mask": self.loss_mask,
            "messages": self.messages,
            "finish_reason": self.finish_reason,
            "kind": self.kind,
            **({"cut": self.cut} if self.cut else {}),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Row:
        """Out of a line's object. Raises ValueError with what is wrong."""
        ids, mask = record.get("input_ids"), record.get("loss_mask")
        if (
            not isinstance(ids, list)
            or not ids
            or not all(type(one) is int and 0 <= one < 2**31 for one in ids)
        ):
            raise ValueError("`input_ids` is no list of token ids")
        if not isinstance(mask, list) or len(mask) != len(ids) or not all(one in (0, 1) for one in mask):
            raise ValueError("`loss_mask` is not one 0 or 1 for each token")
        return cls(
            tuple(ids),
            tuple(mask),
            tuple(record.get("messages") or ()),
            str(record.get("finish_reason", "")),
            str(record.get("kind", "")),
            int(record.get("index", -1)),
            str(record.get("cut", "")),
        )


@dataclass(frozen=True, slots=True)
class DropCounts:
    """What a data step kept and what it left out, by reason.

    `cut` counts conversations that were kept but end early, by reason. `tokens` are those of the kept rows, `answer_tokens` the
    ones with a loss among them (both 0 for prompts). `sources` name the files that were read, each with its SHA-256.
    """

    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    tokens: int = 0
    answer_tokens: int = 0
    sources: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """One sentence a reason, the commonest first: ``23 dropped: answer shorter than 8 tokens``."""
        parts = ((self.dropped, "dropped"), (self.cut, "ended early"))
        return tuple(
            f"{count:,} {word}: {reason}"
            for counts, word in parts
            for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )

    def write(self, path: Path) -> None:
        """Beside its place, then moved there: it is whole or not there. Raises TrainingError."""
        text = json.dumps({name: getattr(self, name) for name in self.__slots__}, indent=1) + "\n"
        put_whole(path, text, lambda error: unwritable(path, error))

    @classmethod
    def read(cls, path: Path, rows: Path) -> DropCounts | None:
        """The counts of a step that was completed, or None: also where not all of its `rows` are there, so that the step goes on.

        Raises TrainingError: one of the two cannot be read.
        """
        try:
            lines = count_lines(rows)
        except FileNotFoundError:
            return None
        except OSError as error:
            hint = "Train into another folder."
            raise TrainingError(f"{rows.name} cannot be read: {error.strerror}", hint=hint) from error
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            counts = cls(**{**document, "sources": tuple(document["sources"])})
            told = (counts.kept, counts.tokens, counts.answer_tokens)
            if not all(type(one) is int for one in (*told, *counts.dropped.values(), *counts.cut.values())):
                raise ValueError("a count is no whole number")
            return counts if lines == counts.kept else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            hint = "Remove it: what it counts is counted again."
            raise TrainingError(f"{path.name} cannot be read: {error}", hint=hint) from error


class RowWriter:
    """A file of lines that only grows, and has one writer at a time."""

    def __init__(self, path: Path) -> None:
        """Open it to go on after its last whole line. Raises TrainingError: not writable, or another run writes it."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = _end_of_last_line(self._file)
            os.ftruncate(self._file, self._size)
        except OSError as error:
            os.close(self._file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                hint = "Wait for it, or train into another folder."
                raise TrainingError(f"another run is writing {path.name}", hint=hint) from error
            raise unwritable(path, error) from error

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, records: Iterable[Mapping[str, object]]) -> None:
        """Append them, all or (when the disk is full) none. Raises TrainingError."""
        lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode()
        try:
            done = 0
            while done < len(lines):
                done += os.write(self._file, memoryview(lines)[done:])
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise unwritable(self.path, error) from error
        self._size += len(lines)

    def clear(self) -> None:
        """Begin anew."""
        os.ftruncate(self._file, 0)
        self._size = 0

    def close(self) -> None:
        """Let another run write it."""
        os.close(self._file)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 0) and object of each whole line; nothing where there is no file.

    Raises:
        TrainingError: a line that is no JSON object, with its number.
    """
    number = 0
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream):
                if not line.endswith(b"\n"):
                    return
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("not an object")
                yield number, record
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(path, number + 1, error) from error


def read_each(path: Path, made_of: Callable[[dict[str, Any]], Made]) -> Iterator[Made]:
    """What `made_of` makes of each whole line's object. Raises TrainingError: a line of which it makes none."""
    for number, record in read_lines(path):
        try:
            yield made_of(record)
        except KeyError as error:
            raise _broken(path, number + 1, ValueError(f"{error} is missing")) from error
        except (ValueError, TypeError, OverflowError) as error:
            raise _broken(path, number + 1, error) from error


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, one at a time. Raises TrainingError: a line that is no row."""
    return read_each(path, Row.of)


def count_lines(path: Path) -> int:
    """Whole lines of a file. Raises OSError."""
    with path.open("rb") as stream:
        return sum(part.count(b"\n") for part in iter(lambda: stream.read(2**20), b""))


def refuse_unmasked(rows: Iterable[Row], template: str) -> None:
    """Refuse rows of which more than 1 % have no token to learn from; `template` is named as the likely cause.

    Raises:
        TrainingError: also where there is no row at all.
    """
    counts = Counter(row.answer_tokens > 0 for row in rows)
    if not counts:
        raise TrainingError("there is no row to train on", hint="Look at what was dropped, and why.")
    if counts[False] > UNMASKED_SHARE * counts.total():
        raise TrainingError(
            f"{counts[False]:,} of {counts.total():,} rows have no token with a loss: the chat template ({template}) and what "
            "was taken for its answers do not fit",
            hint="Write the rows again with `outrider train`, which keeps the target's own tokens, or set "
            "`target.chat_template` to the one they were made with.",
        )


def unwritable(path: Path, error: OSError) -> TrainingError:
    """A file that cannot be written, and what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = f"Free some space. {AGAIN}" if full else "Check the folder and its permissions."
    return TrainingError(f"{path.name} cannot be written: {error.strerror or error}", hint=hint)


def _broken(path: Path, line: int, error: Exception) -> TrainingError:
    hint = "Remove that line, or train into another folder."
    return TrainingError(f"{path.name}:{line}: {error}", hint=hint)


def _end_of_last_line(file: int) -> int:
    """Bytes up to and with the file's last line end."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - 2**16)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0

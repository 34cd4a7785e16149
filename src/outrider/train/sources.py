"""The user's own data: a file, a folder of files, or a data set of the hub, read as conversations one at a time.

Forms of a source: ``PATH.jsonl``, ``PATH.json`` (either packed with gzip), ``FOLDER``, ``ORG/NAME[@REVISION][:FILE]``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import MeasurementError, TrainingError
from outrider.measure.prompt_sets.find import find
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.measure.prompt_sets.records import read_records
from outrider.measure.prompt_sets.shape import Unusable
from outrider.stack.digests import file_digest
from outrider.train.conversations import Conversation, conversation

# A bench reads some hundred prompts, training some hundred thousand conversations.
LIMITS = PromptOptions(max_unpacked_bytes=64 * 2**30, max_records=20_000_000, max_record_bytes=4 * 2**20)
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source: where it lies, as messages name it, and as a report may (no folder of this machine)."""

    path: Path
    shown: str
    source: str

    def sha256(self) -> str:
        """Of the file as it lies there. Raises TrainingError."""
        try:
            return file_digest(self.path)
        except OSError as error:
            raise _unreadable(self.shown, error) from error


def find_source(spec: str) -> tuple[SourceFile, ...]:
    """The files `spec` means, in the order of their names; a hub's is fetched first.

    Raises:
        TrainingError: no such path or data set, a folder without data, or something that is no plain file.
    """
    path = Path(spec).expanduser()
    try:
        if path.is_dir():
            return _in_folder(path, spec)
        if path.exists() and not path.is_file():
            raise TrainingError(f"{spec} is not a file", hint="Give a .jsonl, .json or .jsonl.gz file.")
        found = find(f"jsonl={spec}", LIMITS)
    except MeasurementError as error:
        raise TrainingError(str(error).removeprefix("jsonl: "), hint=error.hint) from error
    except OSError as error:
        raise _unreadable(spec, error) from error
    return (SourceFile(found.path, found.shown, found.source),)


def refuse_useless(spec: str) -> None:
    """Read a source as far as its first conversation.

    Raises:
        TrainingError: as `find_source` and `read_source`, or no record makes a conversation; the reasons are counted.
    """
    lost: Counter[str] = Counter()
    for found in read_source(find_source(spec)):
        if not isinstance(found, Unusable):
            return
        lost[str(found)] += 1
    reasons = "; ".join(f"{count:,} × {reason}" for reason, count in lost.most_common()) or "no record"
    raise TrainingError(
        f"nothing in {spec} is a conversation: {reasons}",
        hint="docs/train.md says which forms of records are read.",
    )


def read_source(
    files: Sequence[SourceFile], max_turns: int = 0, limits: PromptOptions = LIMITS
) -> Iterator[Conversation | Unusable]:
    """A conversation for each record that makes one, the reason for each that does not; nothing is held.

    Raises:
        TrainingError: a file that cannot be read to its end, or passes a limit.
    """
    for file in files:
        try:
            for _, record in read_records(file.path, file.shown, limits):
                try:
                    yield conversation(record, max_turns)
                except Unusable as reason:
                    yield reason
        except MeasurementError as error:
            raise TrainingError(str(error), hint=error.hint) from error


def _in_folder(folder: Path, spec: str) -> tuple[SourceFile, ...]:
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(_SUFFIXES) and path.is_file() and path.name[0] != "."
    )
    if not paths:
        raise TrainingError(
            f"{spec} holds no data", hint=f"It is read for files ending in {', '.join(_SUFFIXES)}."
        )
    return tuple(SourceFile(path, f"{spec.rstrip('/')}/{path.name}", path.name) for path in paths)


def _unreadable(shown: str, error: OSError) -> TrainingError:
    return TrainingError(
        f"{shown} cannot be read: {error.strerror}", hint="Check the path and its permissions."
    )

"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.core.errors import OutriderError


@contextmanager
def placed(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; at the end it is moved into its place, or, if anything was raised, removed.

    A reader sees the old file or the new one, never half of one. The file keeps its permissions, and a link stays a link: what
    it points to is replaced. The folder is made where it is missing. Raises OSError.
    """
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield beside
        with suppress(FileNotFoundError):
            shutil.copymode(place, beside)
        beside.replace(place)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def put_whole(path: Path, text: str, error: Callable[[OSError], OutriderError]) -> None:
    """Put a text (UTF-8, its line ends as they are) in the file's place, whole or not at all, on the disk when it returns.

    Raises what `error` makes of an OSError: the caller knows what was lost and what to do about it.
    """
    try:
        with placed(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as failed:
        raise error(failed) from failed

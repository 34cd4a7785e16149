"""The user's cache of weights: one folder per content, complete or absent, made by one process at a time.

A folder is made under a temporary name beside its place and renamed into it, so a reader never sees half of
one; a `flock` on ``NAME.lock`` keeps two makers apart and ends with its holder, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TextIO

from outrider.core.errors import WeightsError

PROVENANCE = "outrider-weights.json"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Progress(Protocol):
    """Told what a long step does, in one line; the command line prints it."""

    def __call__(self, message: str) -> None:
        """Say `message` to whoever waits."""
        ...


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """``OUTRIDER_CACHE``, else ``XDG_CACHE_HOME/outrider``, else ``~/.cache/outrider``; not created."""
    env = os.environ if environ is None else environ
    if own := env.get("OUTRIDER_CACHE"):
        return Path(own).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "outrider"


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds every file its provenance lists, at its size."""
    try:
        sizes = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


Make = Callable[[Path, Path], Mapping[str, object]]


def gguf_source(folder: Path) -> str:
    """The stored type of the GGUF file a folder of ours was made from (``Q4_1``), by its name; '' for any other folder."""
    try:
        name = str(json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["gguf"])
    except (OSError, ValueError, KeyError):
        return ""
    return name.removesuffix(".gguf").rsplit(".", 1)[-1]


def obtain(place: Path, make: Make, progress: Progress) -> Path:
    """`place`, made first if it is not complete.

    `make(folder, scratch)` fills `folder`, may use `scratch`, and returns the provenance to write there too.

    Raises:
        WeightsError: the disk is full, or the cache cannot be written. Nothing half-written stays.
    """
    if is_complete(place):
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place.with_name(f"{place.name}.lock"), progress):
            if not is_complete(place):  # else another process made it while this one waited
                _make(place, make)
    except OSError as error:
        raise _explain(error, place.parent) from error
    return place


def _make(place: Path, make: Make) -> None:
    for left in place.parent.glob(
        f".{place.name}.*"
    ):  # of a maker that was killed: the lock says that none is alive
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        folder, scratch = work / "folder", work / "scratch"
        folder.mkdir()
        scratch.mkdir()
        provenance = dict(make(folder, scratch))
        provenance["files"] = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        (folder / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
        for file in folder.iterdir():
            file.chmod(0o644)
            _sync(file)
        if place.exists():  # incomplete: damaged after it was made
            place.rename(work / "damaged")
        folder.rename(place)
        _sync(place.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("a+", encoding="utf-8") as file:
        _wait_for(file, progress)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} since {time.strftime('%H:%M:%S')}")
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a full disk must not hide the error that it caused
                file.truncate(0)


def _wait_for(file: TextIO, progress: Progress) -> None:
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                file.seek(0)
                progress(f"waiting: {file.read() or 'another process'} is preparing the same weights")
                told = True
            time.sleep(0.2)


def _explain(error: OSError, where: Path) -> WeightsError:
    if error.errno in _NO_SPACE:
        return WeightsError(
            f"no space left for weights in {where}; nothing half-written was kept",
            hint="Free some space, or give a folder on another disk: OUTRIDER_CACHE=/path outrider …",
        )
    return WeightsError(
        f"cannot write the weights cache {where}: {error.strerror or error}",
        hint="Give a writable folder: OUTRIDER_CACHE=/path outrider …",
    )

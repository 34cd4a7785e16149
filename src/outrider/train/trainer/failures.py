"""Whatever ends a training, as one event: what happened and what to do next. Torch is not imported: it may be what is missing."""

from __future__ import annotations

import errno

from outrider.core.errors import TrainingError
from outrider.train.events import Failed
from outrider.train.requirements import AGAIN, INSTALL, SMALLER

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "std::bad_alloc")


def failure(error: Exception) -> Failed:
    """The event that an exception becomes."""
    kind = type(error).__name__.lower()
    if isinstance(error, TrainingError):
        return Failed(kind if kind in ("interrupted", "diverged") else "refused", str(error), error.hint)
    if isinstance(error, ImportError):
        return Failed("not-installed", f"training needs {error.name or error}, which is not there", INSTALL)
    if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY):
        where = "the GPU" if "cuda" in str(error).lower() else "memory"
        return Failed("out-of-memory", f"{where} is full: {_first_line(error)}", SMALLER)
    if isinstance(error, OSError) and error.errno in _FULL:
        return Failed(
            "disk-full",
            f"the disk is full: {error.filename or 'a file'} was not written",
            f"Free some. {AGAIN}",
        )
    if isinstance(error, OSError):
        return Failed(
            "error", f"{error.filename or 'a file'}: {error.strerror or error}", "Check the folders."
        )
    return Failed(
        "error", f"{type(error).__name__}: {_first_line(error)}", f"trainer.log has the whole story. {AGAIN}"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__

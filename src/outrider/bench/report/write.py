"""Write `report.html` and `report.md` into a run's folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from outrider.bench.document import RunDocument
from outrider.bench.report.html import render_html
from outrider.bench.report.markdown import render_markdown
from outrider.core.errors import MeasurementError


def write_report(document: RunDocument, folder: Path) -> None:
    """Both files, each put in place whole.

    Raises MeasurementError where the folder cannot be written.
    """
    for name, text in (("report.html", render_html(document)), ("report.md", render_markdown(document))):
        put(folder / name, text)


def put(path: Path, text: str) -> None:
    """Write beside the place, then move: a reader never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise MeasurementError(
            f"cannot write {path.name}: {error.strerror or error}",
            hint="check the output folder's owner and free space, or name another one",
        ) from error

"""Write `report.html` and `report.md` into a run's folder."""

from __future__ import annotations

from pathlib import Path

from outrider.bench.document import RunDocument
from outrider.bench.report.html import render_html
from outrider.bench.report.markdown import render_markdown
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole


def write_report(document: RunDocument, folder: Path) -> None:
    """Both files, each put in place whole.

    Raises MeasurementError where the folder cannot be written.
    """
    for name, text in (("report.html", render_html(document)), ("report.md", render_markdown(document))):
        put(folder / name, text)


def put(path: Path, text: str) -> None:
    """One file, whole or not at all. Raises MeasurementError."""
    put_whole(
        path,
        text,
        lambda error: MeasurementError(
            f"cannot write {path.name}: {error.strerror or error}",
            hint="check the output folder's owner and free space, or name another one",
        ),
    )

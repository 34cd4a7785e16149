"""Write a report's two files into a folder."""

from __future__ import annotations

from pathlib import Path

from outrider.bench.document import RunDocument
from outrider.bench.report.html import render_html
from outrider.bench.report.markdown import render_markdown
from outrider.core.errors import MeasurementError
from outrider.core.files import put_whole


def write_report(document: RunDocument, folder: Path, name: str = "report") -> None:
    """`name`.html and `name`.md, each put in place whole.

    Raises MeasurementError where the folder cannot be written.
    """
    put(folder / f"{name}.html", render_html(document))
    put(folder / f"{name}.md", render_markdown(document, f"{name}.html"))


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

"""The modelled documents and their reports, made once a session: a large one takes seconds to draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from outrider.bench.report import write_report
from tests.bench_report import documents


@pytest.fixture(scope="session")
def large() -> RunDocument:
    """5 arms × 3 sets × 7 concurrencies."""
    return documents.large()


@pytest.fixture(scope="session")
def demo() -> RunDocument:
    """The CPU run."""
    return documents.demo()


@pytest.fixture(scope="session")
def large_folder(large: RunDocument, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The large document's report."""
    folder = tmp_path_factory.mktemp("large")
    write_report(large, folder)
    return folder


@pytest.fixture(scope="session")
def demo_folder(demo: RunDocument, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CPU run's report."""
    folder = tmp_path_factory.mktemp("demo")
    write_report(demo, folder)
    return folder

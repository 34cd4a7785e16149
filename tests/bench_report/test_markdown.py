"""report.md: plain text that a terminal shows well, with the numbers of report.html."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from outrider.bench.document import Quantiles, RunDocument
from outrider.bench.report.markdown import WIDEST, escape
from outrider.bench.report.text import clean, number, percentile
from tests.bench_report.reading import markdown_tables


def test_tables_are_rectangular_and_aligned(large_folder: Path) -> None:
    """Each table's lines have the same length and number of cells, so a terminal shows columns."""
    text = (large_folder / "report.md").read_text(encoding="utf-8")
    tables = markdown_tables(text)
    assert len(tables) > 40
    assert all(len({len(row) for row in table}) == 1 for table in tables)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(line) for line in block.splitlines()}) == 1


def test_number_tables_fit_a_terminal(large_folder: Path) -> None:
    """No table of numbers is wider than the limit; only sentences (sources, reasons) may pass it."""
    text = (large_folder / "report.md").read_text(encoding="utf-8")
    wide = [
        line
        for line in text.splitlines()
        if line.startswith("|") and len(line) > WIDEST + 2 and "---:" in line
    ]
    assert not wide


def test_a_split_table_says_in_each_part_what_its_rows_are(large_folder: Path) -> None:
    """Latency against the baseline: prompt set, load, arm and figure stand before every part's numbers."""
    text = (large_folder / "report.md").read_text(encoding="utf-8")
    part = text[text.index("### Arm ") :]
    tables = [table for table in markdown_tables(part) if table[0][:3] == ["prompt set", "C", "arm"]]
    assert tables
    assert all(table[0][3] == "figure" for table in tables)
    assert all(len({tuple(row[:4]) for row in table}) == len(table) for table in tables)


def test_answers_and_speedups_are_the_documents(large: RunDocument, large_folder: Path) -> None:
    """The words at the top and every speed-up of the document stand in the text."""
    text = (large_folder / "report.md").read_text(encoding="utf-8")
    for one in large.answers:
        assert escape(one.text) in text
    part = text[text.index("## Speed-up") : text.index("## Step time")]
    found = {
        (row[0], row[1], int(head.removeprefix("concurrency "))): cell
        for head_row, _, *rows in markdown_tables(part)
        for row in rows
        for head, cell in zip(head_row[2:], row[2:], strict=True)
        if head.startswith("concurrency ")
    }
    for one in large.speedups:
        assert f"{one.ratio.value:.2f} (" in found[(one.prompt_set, one.arm, one.concurrency)]


@given(st.text())
def test_no_text_leaves_its_line_or_its_cell(text: str) -> None:
    """Whatever a name holds: one line, printable, and no unescaped edge of a table, tag or link."""
    shown = escape(clean(text))
    assert "\n" not in shown
    assert shown.isprintable()
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<>\[\]`*]", shown)


@given(st.floats(min_value=0.001, max_value=1e7))
def test_a_number_keeps_two_figures(value: float) -> None:
    """Rounding for print never changes a figure by more than a twentieth, nor its sign."""
    assert abs(float(number(value).replace(",", "")) - value) <= 0.05 * value + 0.0005


def test_percentiles_of_few_values_are_words() -> None:
    """p99 of 100 values: too small; of none: a dash; of 400: a number."""
    assert percentile(Quantiles(n=100, p50=1.0), "p99") == "n too small"
    assert percentile(Quantiles(n=0), "p99") == "–"
    assert percentile(Quantiles(n=400, p99=12.34), "p99") == "12.3"

"""Rows on disk: whole lines whatever stopped the run, counted, and never without a token to learn from."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.errors import TrainingError
from outrider.train.prompts import read_prompts
from outrider.train.rows import DropCounts, Row, RowWriter, read_lines, read_rows, refuse_unmasked, unwritable

ROW = Row((1, 5, 9, 2), (0, 0, 1, 1), ({"role": "user", "content": "é"},), "stop", "selfplay", 7)


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    """Written and read, tokens, mask, messages and all."""
    rows = [ROW, replace(ROW, index=8, cut="no room", kind="data", finish_reason="length")]
    with RowWriter(tmp_path / "work" / "rows.jsonl") as out:
        out.write(row.record() for row in rows)
    assert list(read_rows(tmp_path / "work" / "rows.jsonl")) == rows


@pytest.mark.parametrize("torn", ['{"index": 3, "inp', "\x00\x00\x00", "x" * 200_000, '{"index": 3}'])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: str) -> None:
    """What a killed run left of a line is no line; the file goes on after the last whole one."""
    file = tmp_path / "rows.jsonl"
    whole = json.dumps(ROW.record()) + "\n"
    file.write_text(whole * 3 + torn)
    assert len(list(read_rows(file))) == 3
    with RowWriter(file) as out:
        out.write([ROW.record()])
    assert len(list(read_rows(file))) == 4
    assert torn not in file.read_text()


def test_a_file_of_one_torn_line_is_begun_anew(tmp_path: Path) -> None:
    """Also where nothing is whole."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"ind')
    RowWriter(file).close()
    assert file.read_bytes() == b""


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second run into the same folder is told so, and may go on when the first has ended."""
    with RowWriter(tmp_path / "rows.jsonl"), pytest.raises(TrainingError, match="another run is writing"):
        RowWriter(tmp_path / "rows.jsonl")
    RowWriter(tmp_path / "rows.jsonl").close()


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """A batch that does not fit is taken back as a whole, with a clear message; later batches follow the last whole line."""
    file = tmp_path / "rows.jsonl"
    with RowWriter(file) as out:
        out.write([ROW.record()])
        size = file.stat().st_size
        with file_limit(size + 10), pytest.raises(TrainingError, match=r"rows.jsonl cannot be written"):
            out.write([ROW.record()] * 9)
        assert file.stat().st_size == size
        out.write([ROW.record()])
    assert len(list(read_rows(file))) == 2


def test_no_space_says_to_free_some(tmp_path: Path) -> None:
    """The system's own error of a full disk comes with what to do, and that the command goes on."""
    with Path("/dev/full").open("w") as full, pytest.raises(OSError, match="No space left") as caught:
        os.write(full.fileno(), b"x")
    error = unwritable(tmp_path / "rows.jsonl", caught.value)
    assert "Free some space" in error.hint
    assert "goes on" in error.hint


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "no json",
        '{"input_ids": [], "loss_mask": []}',
        '{"input_ids": [1, 2], "loss_mask": [1]}',
        '{"input_ids": [1, 2], "loss_mask": [1, 2]}',
        '{"input_ids": [1, -2], "loss_mask": [1, 1]}',
        '{"input_ids": [1, true], "loss_mask": [1, 1]}',
        '{"input_ids": [1, "2"], "loss_mask": [1, 1]}',
        '{"loss_mask": [1]}',
        '{"input_ids": [1, 3000000000], "loss_mask": [1, 1]}',
        '{"input_ids": [1, 2], "loss_mask": [1, 1], "index": 1e999}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    """A damaged file is refused with the line's number, never read as a smaller one."""
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW.record()) + f"\n{line}\n" + json.dumps(ROW.record()) + "\n")
    with pytest.raises(TrainingError, match=r"rows\.jsonl:2: "):
        list(read_rows(file))


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    """A step that has not begun has none."""
    assert list(read_lines(tmp_path / "rows.jsonl")) == []


def test_data_zero_mask() -> None:
    """More than 1 % of rows without a token to learn from is refused, and the template named; 1 % is not."""
    empty = replace(ROW, loss_mask=(0, 0, 0, 0))
    refuse_unmasked([ROW] * 99 + [empty], "chatml.jinja")
    with pytest.raises(
        TrainingError, match=r"2 of 100 rows have no token with a loss.*chatml\.jinja"
    ) as caught:
        refuse_unmasked([ROW] * 98 + [empty] * 2, "chatml.jinja")
    assert "chat_template" in caught.value.hint
    with pytest.raises(TrainingError, match="100 of 100"):
        refuse_unmasked([empty] * 100, "chatml.jinja")
    with pytest.raises(TrainingError, match="no row"):
        refuse_unmasked([], "chatml.jinja")


def test_counts_are_told_in_sentences_and_come_back(tmp_path: Path) -> None:
    """One sentence a reason, the commonest first; the file says the same."""
    counts = DropCounts(5, {"a": 1, "b": 1200}, {"c": 2}, 900, 300, ("x.jsonl sha256:0",))
    assert counts.sentences() == ("1,200 dropped: b", "1 dropped: a", "2 ended early: c")
    counts.write(tmp_path / "done.json")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n" * 5)
    assert DropCounts.read(tmp_path / "done.json", rows) == counts
    assert DropCounts.read(tmp_path / "done.json", tmp_path / "gone.jsonl") is None
    assert DropCounts.read(tmp_path / "other.json", rows) is None


@pytest.mark.parametrize("left", ["{}\n" * 4, '{}\n{}\n{}\n{}\n{"a', ""])
def test_a_step_whose_rows_are_not_all_there_is_not_done(tmp_path: Path, left: str) -> None:
    """A file that was cut off after it was counted: the step goes on, and the counts are true again."""
    DropCounts(5).write(tmp_path / "done.json")
    (tmp_path / "rows.jsonl").write_text(left)
    assert DropCounts.read(tmp_path / "done.json", tmp_path / "rows.jsonl") is None


@pytest.mark.parametrize(
    "text",
    [
        '{"kept": 1, "unknown": 2}',
        '{"kept": "x", "sources": []}',
        '{"kept": 1, "sources": [], "dropped": null}',
        '{"kept": 1, "sources": [], "cut": {"a": "b"}}',
        "null",
        '{"kep',
        "[" * 100_000,
    ],
)
def test_damaged_counts_are_named(tmp_path: Path, text: str) -> None:
    """Whatever stands there, and what to do about it."""
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "done.json").write_text(text)
    with pytest.raises(TrainingError, match=r"done\.json") as caught:
        DropCounts.read(tmp_path / "done.json", tmp_path / "rows.jsonl")
    assert caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"messages": 5}',
        '{"messages": [5]}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": [{"role": "system", "content": "a"}]}',
        '{"messages": [{"role": "user", "content": "a"}], "turns": "x"}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    """Before anything is asked of the engine."""
    good = json.dumps({"messages": [{"role": "user", "content": "a"}], "kind": "data"})
    (tmp_path / "prompts.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(TrainingError, match=r"prompts\.jsonl:2: "):
        list(read_prompts(tmp_path / "prompts.jsonl"))

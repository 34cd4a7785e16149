"""Exit codes of the command line: what a machine reads, so no crash may look like a verdict."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from outrider.cli import main as program
from outrider.cli.tune import put_stack
from outrider.core.errors import EngineError, MeasurementError, StackError


def ended(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> object:
    """The exit code of a command that raises."""

    @click.command("broken")
    def broken() -> None:
        raise error

    monkeypatch.setattr(program, "cli", broken)
    monkeypatch.setattr(sys, "argv", ["outrider"])
    with pytest.raises(SystemExit) as caught:
        program.main()
    return caught.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("no"), 2),
        (StackError("no"), 10),
        (EngineError("no"), 11),
        (MeasurementError("no"), 12),
        (RuntimeError("no"), 70),
        (OSError(28, "No space left on device"), 70),
        (MemoryError(), 70),
        (KeyboardInterrupt(), 130),
        (SystemExit(11), 11),
    ],
)
def test_every_end_has_its_code(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    """Deliberate errors have theirs, an unexpected one 70: never 1, which says that a run regressed."""
    assert ended(monkeypatch, error) == code


def test_a_crash_shows_where_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The traceback, and one sentence after it."""
    ended(monkeypatch, ZeroDivisionError("by nought"))
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "report it" in text.splitlines()[-1]


def test_help_and_the_docs_list_the_same_codes() -> None:
    """`outrider --help` and docs/bench.md: one table each, of the same codes."""
    table = program.HELP.partition("Exit codes:")[2]
    said = set(re.findall(r"^  (\d+) ", table, re.MULTILINE))
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| (\d+) \|", page.partition("## Exit codes")[2], re.MULTILINE))
    assert said == documented
    codes = {"0", "1", "2", "10", "11", "12", "13", "14"}
    assert codes | {str(program.CRASH), str(program.INTERRUPTED)} == said


def test_a_reader_that_goes_away_is_no_regression() -> None:
    """`outrider compare … | head -0`: the closed pipe ends it with 141, as it ends other programs."""
    code = "import sys; from outrider.cli.main import main; sys.argv = ['outrider', '--help']; main()"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 141, done.stderr


def test_a_stack_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    """`outrider tune` on a full disk: exit 12 with what to do, the stack untouched, nothing left beside it."""
    stack = tmp_path / "mine.yaml"
    stack.write_text("name: mine\n")
    (tmp_path / f".mine.yaml.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(MeasurementError, match="No space left on device; it is as it was") as caught:
        put_stack(stack, "name: other\n")
    assert "repeat the command" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    assert stack.read_text() == "name: mine\n"
    put_stack(stack, "name: other\n")
    assert stack.read_text() == "name: other\n"

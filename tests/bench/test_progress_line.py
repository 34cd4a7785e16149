"""Progress as it reaches a terminal and a log file."""

from __future__ import annotations

import sys

import pytest

from outrider.cli.measuring import progress_line


def test_a_log_file_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a passing line is said only where nothing was for half a minute; lines that stay are all said."""
    clock = iter([0.0, 1.0, 2.0, 31.0, 32.0, 32.0, 60.0, 62.0, 62.0])
    say = progress_line(lambda: next(clock))
    for line in ("1 of 9\r", "kept", "2 of 9\r", "3 of 9\r", "4 of 9\r"):
        say(line)
    assert capsys.readouterr().err == "kept\n3 of 9\n"
    say("5 of 9\r")
    assert capsys.readouterr().err == "5 of 9\n"


def test_a_terminal_s_line_is_overwritten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal every passing line is shown, and nothing is left of it behind a shorter one."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    say = progress_line()
    for line in ("10 of 90\r", "kept", "2\r", "done"):
        say(line)
    assert capsys.readouterr().err == "10 of 90\rkept    \n2\rdone\n"

"""The rule of reruns: a missed time is measured again and the summary says so; everything else fails at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.timing import Between, Late, in_time

STORY = """
from tests.timing import Late, measures_time

tries = []

@measures_time
def test_late_once():
    tries.append("late")
    if len(tries) == 1:
        raise Late("110 ms")

@measures_time
def test_wrong_count():
    tries.append("wrong")
    assert tries.count("wrong") > 1
"""


def test_only_a_time_is_measured_again(tmp_path: Path) -> None:
    """Late once: passed, after a rerun that is listed. Wrong once: failed, and not tried again."""
    (tmp_path / "test_story.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-raR", "--import-mode=importlib", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", str(Path(__file__).parents[2] / "pyproject.toml"), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed, 1 rerun" in done.stdout
    assert "test_story.py::test_late_once" in done.stdout.partition("rerun test summary info")[2]


def test_what_is_missed_is_named() -> None:
    """All of what missed, and none of what did not."""
    in_time({"one": (1.0, pytest.approx(1.0)), "two": (2.0, Between(1, 2))})
    with pytest.raises(Late, match=r"^\{'two': 2.5\} of .*1 to 2"):
        in_time({"one": (1.0, pytest.approx(1.0)), "two": (2.5, Between(1, 2))})
    with pytest.raises(Late):
        in_time({"none": (None, Between(0, 9))})

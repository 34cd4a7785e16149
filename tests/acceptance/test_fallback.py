"""`examples/fallback/`: the head in the box is left for what it does not know, and comes back."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1500)]
EXAMPLE = Path(__file__).parents[2] / "examples/fallback"


def test_the_server_leaves_the_head_for_what_it_does_not_know_and_comes_back(tmp_path: Path) -> None:
    """Head, n-gram, head, in time; no request failed, no text changed."""
    command = [sys.executable, str(EXAMPLE / "run.py"), "--log", str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1400, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert re.search(r"\d+ requests, 0 failed, 0 changed", done.stdout)

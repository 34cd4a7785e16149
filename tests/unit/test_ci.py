"""`.ci/run` with a `make` that only notes what it was asked for: the order, the second chance, and the end of its time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKE = """#!/usr/bin/env bash
echo "$* ${PYTEST_ADDOPTS:-}" >>"$MADE"
if [[ "$*" == *"${SLOW:-none}"* ]]; then exec sleep 60; fi
if [[ "$*" == *"${BROKEN:-none}"* ]]; then exit 2; fi
if [[ "$*" == *"${SHAKY:-none}"* && -z ${PYTEST_ADDOPTS:-} ]]; then exit 2; fi
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project of two proofs and the two longest, with programs that need no install."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    proofs = tmp_path / "tests" / "acceptance"
    proofs.mkdir(parents=True)
    for name in ("bench_demo", "greedy_equality", "load", "switch"):
        (proofs / f"test_{name}.py").write_text("pytestmark = pytest.mark.acceptance\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"make": MAKE, "nginx": "", "chromium": ""}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def ci(clone: Path, seconds: int = 5000, **environ: str) -> tuple[int, str, list[str]]:
    """Exit status, what it printed, and what `make` was asked for."""
    made = clone / "made"
    made.unlink(missing_ok=True)
    path = f"{clone / 'bin'}:{os.environ['PATH']}"
    settings = {"PATH": path, "MADE": str(made), "OUTRIDER_CI_S": str(seconds), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        ["bash", str(clone / ".ci" / "run")],
        env=os.environ | settings | environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, [line.strip() for line in made.read_text().splitlines()]


def proof(name: str) -> str:
    """How one proof is asked for."""
    return f"acceptance PROOFS=tests/acceptance/test_{name}.py"


STEPS = ["lint", "deploy-test", "test", "bench-front"]
PROOFS = [proof(name) for name in ("load", "switch", "bench_demo", "greedy_equality")]


def test_everything_the_longest_proofs_last(clone: Path) -> None:
    """With time enough nothing is left out, and nothing said."""
    status, said, made = ci(clone)
    assert (status, made) == (0, [*STEPS, *PROOFS])
    assert "no time" not in said


def test_what_there_is_no_time_for_is_named(clone: Path) -> None:
    """No proof begins in the last minute."""
    status, said, made = ci(clone, seconds=30)
    assert (status, made) == (0, STEPS)
    assert all(one.removeprefix("acceptance PROOFS=") in said for one in PROOFS)


def test_a_proof_that_takes_too_long_is_cut_and_named(clone: Path) -> None:
    """It fails nothing: it was not seen to fail."""
    status, said, made = ci(clone, seconds=4, SLOW="switch", OUTRIDER_CI_LEAST_S="1")
    assert status == 0
    assert made == [*STEPS, *PROOFS[:2]]
    assert "no time left for: tests/acceptance/test_switch.py" in said


@pytest.mark.parametrize("broken", ["lint", "deploy-test", "test", "bench-front", "load", "bench_demo"])
def test_what_fails_fails(clone: Path, broken: str) -> None:
    """Tests have a second chance, and fail then."""
    assert ci(clone, BROKEN=broken)[0] != 0


@pytest.mark.parametrize("shaky", ["bench-front", "load"])
def test_what_failed_is_run_once_more(clone: Path, shaky: str) -> None:
    """Only what failed, and it is said."""
    status, said, made = ci(clone, SHAKY=shaky)
    assert status == 0
    assert [line for line in made if "--last-failed" in line and shaky in line]
    assert "are run once more" in said

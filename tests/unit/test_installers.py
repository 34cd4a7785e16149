"""What the installers share (`scripts/installing.sh`), with programs that only look like the real ones: nothing is fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    """A shell script of that name."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(command: str, *folders: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in bash, with the shared file sourced and `folders` in front of the system's on PATH."""
    path = ":".join([*map(str, folders), "/usr/bin", "/bin"])
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; tag=test; . {SCRIPTS}/installing.sh; {command}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": path, **env},
    )


def test_prometheus_on_the_path_is_linked_and_stays(tmp_path: Path) -> None:
    """Again too, and when PATH names the folder itself: no link to itself, nothing fetched."""
    system, into = tmp_path / "system", tmp_path / "into"
    for name in ("prometheus", "promtool"):
        program(system, name)
    program(system, "apt-get", "exit 1")
    for folders in ((system,), (system,), (into, system)):
        done = run(f"prometheus_into {into}", *folders)
        assert done.returncode == 0, done.stderr
    for name in ("prometheus", "promtool"):
        assert (into / name).resolve() == system / name


def test_without_prometheus_it_says_what_to_do(tmp_path: Path) -> None:
    """And the script that `make scale-demo` runs adds the way out that it has."""
    program(tmp_path / "system", "apt-get", "exit 1")
    program(tmp_path / "system", "dpkg-deb")
    path = f"{tmp_path / 'system'}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", str(SCRIPTS / "install_prometheus.sh"), str(tmp_path / "into")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    if (Path("/usr/bin/prometheus")).exists():
        pytest.skip("this machine has Prometheus: it is linked")
    assert done.returncode == 1
    assert "apt-get update" in done.stderr
    assert "OUTRIDER_PROMETHEUS=" in done.stderr


def test_another_python_is_refused_with_the_command(tmp_path: Path) -> None:
    """Found is named, and what to type."""
    program(tmp_path / "old", "python3.9", 'echo "Python 3.9.1"; exit 1')
    done = run("need_python deploy-env", PYTHON=str(tmp_path / "old" / "python3.9"))
    assert done.returncode == 1
    assert "found Python 3.9.1. Name another: make deploy-env PYTHON=python3.11" in done.stderr


def test_a_stamp_is_of_the_files_it_was_made_of(tmp_path: Path) -> None:
    """Another text in one of them, and it is done again."""
    one, stamp = tmp_path / "one", tmp_path / "stamp"
    one.write_text("1")
    check = f'done_before {stamp} "$(digest_of {one})"'
    assert run(check).returncode == 1
    assert run(f"digest_of {one} > {stamp}; {check}").returncode == 0
    one.write_text("2")
    assert run(check).returncode == 1


def test_free_room_is_known_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Of the disk that it will be on."""
    done = run(f"free_mib {tmp_path}/no/such/folder")
    assert int(done.stdout) > 0


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.name)
def test_every_script_is_read_by_bash(script: Path) -> None:
    """No syntax error in a branch that nobody took."""
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

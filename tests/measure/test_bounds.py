"""What a load may take: bounds by what is asked for, watched over all processes and files, also when the generator has ended."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.aiperf import LOG_BYTES, AiperfRunner
from outrider.measure.aiperf_program import VERSION
from outrider.measure.bounds import GIB, LEAST_MEMORY, MIB, Bounds, Watch, answer_bytes, bounds_of, members
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
from tests.front.harness import wait_until
from tests.measure.flooding import Flood
from tests.measure.test_aiperf import quiet, script

Plan = Callable[..., LoadPlan]


def test_bounds_follow_from_what_is_asked_for(plan: Plan) -> None:
    """Longer answers, prompts, more turns, more at once: more is allowed. What a real load takes is far below."""
    small = bounds_of(plan(9), 2, 64 * GIB)
    assert small.answer == answer_bytes(plan(9))
    assert answer_bytes(plan(9, output_tokens=1024)) == small.answer + (1024 - 11) * 8192
    assert answer_bytes(plan(9, prompts=(Prompt("a", ("x" * 10**6,)),))) > small.answer + 10**6
    assert answer_bytes(plan(9, prompts=(Prompt("a", ("x", "y")),))) > small.answer
    wide = bounds_of(plan(9, concurrency=128, requests=900, output_tokens=256), 10, 64 * GIB)
    assert bounds_of(plan(9, concurrency=130), 2, 64 * GIB).memory == small.memory + 4 * 128 * small.answer
    # Measured: 1.7 GiB with 8 workers at 32 at once, 0.8 GiB with one at 4; the raw export of 256 tokens is 0.1 MB a request.
    assert wide.memory > 2 * 1.7 * GIB
    assert small.memory > 2 * 0.8 * GIB
    assert wide.files > 5 * 900 * 10**5
    assert wide.answer > 10 * 10**5


def test_the_machine_has_the_last_word(plan: Plan) -> None:
    """No more than nine tenths of what is free, but never so little that the generator could not start."""
    asked = plan(9, concurrency=64)
    assert bounds_of(asked, 8, 2 * GIB).memory == 2 * GIB * 9 // 10
    assert bounds_of(asked, 8, MIB).memory == LEAST_MEMORY
    assert bounds_of(asked, 8).memory <= bounds_of(asked, 8, 2**60).memory


@contextmanager
def session(code: str) -> Iterator[int]:
    """A session of a Python process and its child, which runs this; both say that they are ready."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdout=subprocess.PIPE, stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


TAKES = "x = bytearray(200 * 2**20); print('ready', flush=True); input()"


@pytest.mark.parametrize(("allowed", "passed"), [(150, True), (600, False)])
def test_memory_of_all_processes_counts(tmp_path: Path, allowed: int, passed: bool) -> None:
    """A child's 200 MiB are the session's; the error says what was taken and what is ample."""
    with session(f"try:\n  {TAKES}\nexcept EOFError: pass") as leader:
        assert len(list(members(leader))) == 2
        watch = Watch(leader, tmp_path, Bounds(MIB, MIB, allowed * MIB))
        if passed:
            with pytest.raises(
                MeasurementError, match=rf"took 2\d\d MiB of memory, more than the {allowed} MiB"
            ) as error:
                watch.check()
            assert error.value.hint
        else:
            watch.check()


def test_files_count_wherever_they_lie(tmp_path: Path) -> None:
    """All files below the cell's folder, together; nobody is left in the session, which takes no memory."""
    (tmp_path / "aiperf" / "raw").mkdir(parents=True)
    watch = Watch(2**30, tmp_path, Bounds(MIB, 3 * MIB, MIB))
    for name in ("one", "aiperf/two", "aiperf/raw/three"):
        watch.check()
        (tmp_path / name).write_bytes(b"x" * (MIB + 1))
    with pytest.raises(MeasurementError, match="files took 3 MiB, more than the 3 MiB"):
        watch.check()


def generator(path: Path, text: str) -> AiperfRunner:
    """A program that stands where aiperf should, and does this instead of a load."""
    return AiperfRunner(
        program=script(path / "aiperf", f'[ "$1" = --version ] && echo {VERSION} && exit\n{text}')
    )


def test_a_generator_whose_files_grow_is_stopped(tmp_path: Path, plan: Plan, folder: Path) -> None:
    """Long before it ends by itself; what it wrote is gone, its last words are kept."""
    text = "mkdir -p aiperf; echo begun; head -c 400M /dev/zero > aiperf/profile_export_raw.jsonl; sleep 600"
    begin = time.monotonic()
    with pytest.raises(MeasurementError, match="the server floods: the load generator's files took"):
        generator(tmp_path, text).run(plan(9), folder, quiet)
    assert time.monotonic() - begin < 60
    assert {path.name for path in folder.iterdir()} == {"aiperf.yaml", "aiperf-console.log"}
    assert (folder / "aiperf-console.log").read_text() == "begun\n"


def test_a_line_longer_than_any_answer_is_not_read(tmp_path: Path, plan: Plan, folder: Path) -> None:
    """Also when the generator has come to its end between two looks: the export is read with the bound of one answer."""
    text = "mkdir aiperf; head -c 40M /dev/zero | tr '\\0' x > aiperf/profile_export_raw.jsonl; exit 0"
    with pytest.raises(
        MeasurementError, match="the server floods: one answer is longer than any can be, more than the 1 MiB"
    ):
        generator(tmp_path, text).run(plan(9), folder, quiet)


def test_a_log_is_kept_to_its_end(tmp_path: Path, plan: Plan, folder: Path) -> None:
    """The last 16 MiB in whole lines, and the key in none of them."""
    text = 'yes "the key is $OUTRIDER_LOAD_KEY" | head -c 40M; echo; echo last; exit 3'
    with pytest.raises(MeasurementError, match="status 3 after 0 of 6 requests") as died:
        generator(tmp_path, text).run(plan(9, api_key="sk-secret"), folder, quiet)
    kept = (folder / "aiperf-console.log").read_bytes()
    assert LOG_BYTES * 0.8 < len(kept) <= LOG_BYTES
    assert kept.startswith(b"the key is <key>\n")
    assert kept.endswith(b"\nlast\n")
    assert b"sk-sec" not in kept
    assert len(str(died.value)) < 2000


@pytest.mark.parametrize("way", ["big-chunks", "error-body"])
def test_a_server_that_floods_costs_its_cell_only(way: str, plan: Plan, folder: Path) -> None:
    """Against the real generator: it ends with the reason, no process and no file of the flood is left."""
    flood = Flood(way)
    runner = AiperfRunner(workers=1, most_memory=GIB * 4 // 3)
    before = set(Path("/proc").iterdir())
    with pytest.raises(MeasurementError, match="the server floods: ") as error:
        runner.run(plan(flood.port, warmup_requests=0, timeout_s=60.0), folder, quiet)
    flood.close()
    print(error.value)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 32 * MIB
    left = [path for path in set(Path("/proc").iterdir()) - before if path.name.isdigit()]
    wait_until(lambda: not [path for path in left if b"aiperf" in _command(path)])


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""

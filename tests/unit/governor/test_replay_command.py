"""`outrider replay`: what it prints at 80 and 120 columns, and what it refuses."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.main import cli
from outrider.cli.replay import replay_file
from outrider.core.errors import MeasurementError, StackError
from outrider.governor.ladder import Rung
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Snapshot
from outrider.governor.trace import header_line, look_lines
from tests.unit.governor.traffic import Load, Service, changing, head_ladder, quiet, steady

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five minutes in which a head breaks and is good again."""
    path = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    gain = changing((0, 2.0), (100, 0.05), (200, 2.0))
    service = Service(Policy(head_ladder(), quiet()), gain, Load(steady(4), undraftable=0.05))
    text = "".join(look_lines(one.snapshot, one.decision) for one in service.seconds(300.0))
    path.write_text(header_line(head_ladder()) + text)
    return path


def run(*words: object) -> Result:
    """The command."""
    return CliRunner().invoke(cli, ["replay", *map(str, words)])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_asked_for(trace: Path, width: int) -> None:
    """Every line, the timeline's included, and no word is lost on the way."""
    lines = run(trace, "--width", width).output.splitlines()
    assert max(map(len, lines)) <= width
    words = re.sub(r"\s+", " ", " ".join(lines))
    assert "under 2.00 (the pair manifest says 3.00)" in words
    assert "the recorded service made 2" in words


def test_the_timeline_at_eighty_columns(trace: Path) -> None:
    """Time, draft, how long, why; continued under the why."""
    lines = run(trace, "--width", 80, "--policy", "trials=false").output.splitlines()
    assert lines[0] == "policy: trials=False"
    assert lines[2] == "     time in force          for  why"
    assert lines[3] == "  0:00:00 eagle3        0:01:47  start: the stack's draft"
    assert lines[4].startswith("  0:01:47 ngram         0:01:")
    assert lines[4][33:].startswith("acceptance: AL 1.")
    assert lines[5].startswith(" " * 33 + "2.00 (the pair manifest")
    assert any(line.startswith("in force: eagle3 ") for line in lines)
    assert any(
        re.fullmatch(r"  off +\+[\d,]+ tokens +\+[\d.]+%   over \d+% of the busy time", line)
        for line in lines
    )
    assert any("modelled" in line for line in lines)


def test_many_switches_are_cut_to_the_last_unless_all_are_asked_for(tmp_path: Path) -> None:
    """An operator who pins another draft every ten seconds: forty lines, and how many came before; --all prints each."""
    path = tmp_path / "trace.jsonl"
    pins = [Snapshot(10.0 * n, pinned=("off", "ngram")[n % 2]) for n in range(60)]
    path.write_text(header_line(head_ladder()) + "".join(map(look_lines, pins)))
    few, every = run(path).output, run(path, "--all").output
    assert "… 21 before that: --all prints them" in few
    assert "switches: 60" in every
    assert len(re.findall(r"^ +\d:\d\d:\d\d \w", every, re.MULTILINE)) == 61
    assert len(re.findall(r"^ +\d:\d\d:\d\d \w", few, re.MULTILINE)) == 40


def test_json_holds_all_of_it(trace: Path) -> None:
    """Unrounded, for machines; the same answer twice."""
    first, second = (run(trace, "--json").output for _ in range(2))
    found = json.loads(first)
    assert first == second
    assert {event["draft"] for event in found["events"]} >= {"eagle3", "ngram"}
    assert found["recorded_switches"] == 2
    assert [one["draft"] for one in found["against"]] == ["eagle3", "ngram", "off"]


def test_settings_come_from_options_and_files(trace: Path, tmp_path: Path) -> None:
    """Alone or under `policy:`; of one key the last counts."""
    file = tmp_path / "policy.yaml"
    for text in ("dwell_s: 40\ntrials: false\n", "policy: {dwell_s: 40, trials: false}\n"):
        file.write_text(text)
        assert run(trace, "--policy", file).output.startswith("policy: dwell_s=40.0, trials=False\n")
    both = run(trace, "--policy", file, "--policy", "dwell_s=50")
    assert both.output.startswith("policy: dwell_s=50.0, trials=False\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dwel_s=3",), "dwel_s is no setting; did you mean dwell_s?"),
        (("dwell_s=soon",), "dwell_s is a number"),
        (("dwell_s=",), "dwell_s is a number"),
        (("dwell_s=-1",), "lies between 1 and 3600"),
        (("sustained_requests=2.5",), "is a whole number"),
        (("trials=maybe",), "trials is true or false"),
        (("min_requests=20",), "min_requests (20) is more than window_requests (16)"),
        (("nowhere.yaml",), "nowhere.yaml cannot be read: No such file"),
    ],
)
def test_mistakes_in_options_are_usage_errors(trace: Path, words: tuple[str, ...], said: str) -> None:
    """Exit 2, with what is wrong, and where settings are described or what was expected."""
    done = run(trace, *(part for word in words for part in ("--policy", word)))
    assert done.exit_code == 2
    assert said in done.output
    assert "→" in done.output


def test_mistakes_in_a_file_have_their_lines(trace: Path, tmp_path: Path) -> None:
    """Every one at once: file, line and column."""
    file = tmp_path / "policy.yaml"
    for text, expected in (
        ("dwell_s: 3\ndwel_s: 4\ntrials: 7\n", [("dwel_s", 2), ("trials", 3)]),
        ("policy:\n  dwell_s: soon\n", [("policy.dwell_s", 2)]),
        ("- a\n", [("", 1)]),
        ("dwell_s: [\n", [("", 2)]),
        ("dwell_s: 3\ndwell_s: 4\n", [("dwell_s", 2)]),
        ("", [("", 1)]),
    ):
        file.write_text(text)
        error = run(trace, "--policy", file).exception
        assert isinstance(error, StackError)
        assert error.exit_code == 10
        assert [(one.path, one.line) for one in error.problems] == expected


def test_what_is_no_trace_is_refused(tmp_path: Path, trace: Path) -> None:
    """Exit 12 with a hint: not a trace, no snapshot in it, packed and cut, a line without an end."""
    file = tmp_path / "a.jsonl"
    for content, said in (
        (b"hello\n", "a.jsonl:1: no JSON"),
        (b"\xff\xfe\n", "a.jsonl:1: no JSON"),
        (header_line(head_ladder()).encode(), "a.jsonl holds no snapshot"),
        (header_line(head_ladder()).encode() + b"x" * 1_000_000, "a line of more than 64 KiB"),
    ):
        file.write_bytes(content)
        error = run(file).exception
        assert isinstance(error, MeasurementError)
        assert said in str(error)
        assert error.hint
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes())[:-200])
    with pytest.raises(MeasurementError, match=r"b\.jsonl\.gz cannot be read"):
        replay_file(packed, PolicySettings())
    packed.write_bytes(b"not packed")
    with pytest.raises(MeasurementError, match=r"b\.jsonl\.gz cannot be read"):
        replay_file(packed, PolicySettings())


def test_packed_traces_and_cut_ones_are_read(tmp_path: Path, trace: Path) -> None:
    """gzip gives the same answer; of a file that is still being written the cut end is left out and told."""
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    assert replay_file(packed, PolicySettings()) == replay_file(trace, PolicySettings())
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(trace.read_bytes()[:-10])
    assert "left out: the last line, which is cut" in run(cut).output


def test_the_page_describes_every_member_of_a_ladder() -> None:
    """docs/replay.md has each field of a rung between the headings `ladder` and `request`."""
    page = (DOCS / "replay.md").read_text()
    table = page[page.index("| ladder |") : page.index("| request |")]
    assert [one for one in fields(Rung) if f"| `{one.name}` |" not in table] == []


def test_the_page_describes_every_setting() -> None:
    """docs/replay.md has a row for each, with its default, its bounds and what it does, and no other."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \| (.+?) \| (.+) \|$", (DOCS / "replay.md").read_text(), re.MULTILINE
    )
    told = {name: (default, bounds, about) for name, default, bounds, about in rows}
    expected = {}
    for one in fields(PolicySettings):
        low, high = one.metadata["low"], one.metadata["high"]
        bounds = "true, false" if isinstance(one.default, bool) else f"{low:g} to {high:g}"
        default = str(one.default).lower() if isinstance(one.default, bool) else f"{one.default:g}"
        expected[one.name] = (default, bounds, one.metadata["about"])
    assert told == expected


def test_the_pages_example_of_a_trace_can_be_read(tmp_path: Path) -> None:
    """The lines shown in docs/replay.md are a trace."""
    example = re.search(r"```jsonl\n(.+?)```", (DOCS / "replay.md").read_text(), re.DOTALL)
    assert example
    file = tmp_path / "example.jsonl"
    file.write_text(example[1])
    assert replay_file(file, PolicySettings()).requests == 2

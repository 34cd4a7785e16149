"""`outrider tune --from`: what it takes from a run, what it refuses, and that printing measures and writes nothing."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from outrider.bench.analysis import analyse
from outrider.bench.document import RunDocument
from outrider.cli.main import cli
from outrider.cli.measuring import wish_from
from outrider.cli.tune import like, requests_at, sets_of, tune_command
from tests.bench.simulated import Run, baseline, eagle, simulate

STACK = """\
apiVersion: outrider/v1alpha1
target: {model: org/target}
draft:
  method: eagle3 # the head we trained
  model: org/head
engine: {max_running_requests: 64}
"""


@pytest.fixture(scope="module")
def document() -> RunDocument:
    """A run of an EAGLE-3 head at 1, 4, 16, 64 at once that pays up to 16 on its one set."""
    made = simulate(Run((baseline(("code",)), eagle(("code",))), waves=4))
    return analyse(made.document, made.records_of)


def _tune(tmp_path: Path, document: RunDocument, *more: str) -> tuple[Result, str]:
    """The command on a stack file with the run beside it; and the file afterwards."""
    stack, run = tmp_path / "my.yaml", tmp_path / "run.json"
    stack.write_text(STACK)
    run.write_text(document.model_dump_json(by_alias=True))
    words = ["tune", str(stack), "--from", str(run), "--out", str(tmp_path / "tuned"), *more]
    return CliRunner().invoke(cli, words), stack.read_text()


def test_no_edges_prints_and_touches_nothing(tmp_path: Path, document: RunDocument) -> None:
    """The reasons and the change are shown; no folder is made, the file is what it was."""
    done, after = _tune(tmp_path, document, "--no-edges")
    assert done.exit_code == 0, done.output
    assert after == STACK
    assert not (tmp_path / "tuned").exists()
    assert "running: K = 3, measured" in done.output
    assert "+  draft_length: 3" in done.output
    assert "-  method" not in done.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "name them again with --set"),
        (("--set", "demo-humaneval"), "not the prompts of the run: it has code (40 prompts)"),
        (("--no-edges", "--arm", "ngram:k=3", "--grid"), "--arm, --grid would be ignored"),
        (("--no-edges", "--requests", "foo"), "'foo' is neither one number"),
    ],
)
def test_what_does_not_fit_the_run_is_refused(
    tmp_path: Path, document: RunDocument, more: tuple[str, ...], said: str
) -> None:
    """Edges on other traffic, or options that the run overrules: exit 2, nothing measured, nothing written."""
    done, after = _tune(tmp_path, document, *more)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert after == STACK
    assert not (tmp_path / "tuned").exists()


def test_a_bench_run_is_not_written_into(tmp_path: Path, document: RunDocument) -> None:
    """--out of a folder that holds a run is refused."""
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "plan.json").write_text("{}")
    done, _ = _tune(tmp_path, document, "--no-edges")
    assert done.exit_code == 2
    assert "holds a bench run" in done.output


def test_requests_of_an_edge(document: RunDocument) -> None:
    """What is asked for, else the run's at that load, else at the next larger; above all of them the default."""
    assert document.settings.requests == {1: 4, 4: 16, 16: 64, 64: 256}
    at = requests_at(None, document)
    assert [at(load) for load in (1, 2, 5, 64, 65)] == [4, 16, 64, 256, None]
    assert [requests_at("12", document)(load) for load in (1, 64, 65)] == [12, 12, 12]
    assert [requests_at("4=9,8=20", document)(load) for load in (4, 5, 9)] == [9, 20, None]


def test_the_sets_that_come_with_outrider_need_no_naming(document: RunDocument) -> None:
    """A run on the demo sets names them itself; a user's own files must be named."""
    demo = document.model_copy(
        update={"prompt_sets": [document.prompt_sets[0].model_copy(update={"name": "demo-humaneval"})]}
    )
    assert sets_of(demo, ()) == ("demo-humaneval",)
    assert sets_of(document, ("mine.jsonl",)) == ("mine.jsonl",)
    with pytest.raises(click.UsageError, match="code"):
        sets_of(document, ())


def test_settings_are_the_runs_unless_an_option_says_otherwise(document: RunDocument) -> None:
    """Edges are measured as the map was: trials, length, warm-up, temperature."""
    warm = document.model_copy(
        update={"settings": document.settings.model_copy(update={"temperature": 0.7, "output_tokens": 99})}
    )
    for words, wanted in (
        ([], (3, 99, 2, 0.7)),
        (["--trials", "5", "--output-tokens", "8", "--warmup", "4", "--temperature", "0"], (5, 8, 4, 0.0)),
    ):
        with tune_command.make_context("tune", ["my.yaml", *words]) as context:
            wish = like(wish_from(context.params), warm, context.params)
        assert (wish.trials, wish.output_tokens, wish.warmup, wish.temperature) == wanted

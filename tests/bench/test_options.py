"""Mistakes in options: exit 2 with words that help, before any prompt set is read or server started."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from outrider.cli.main import cli
from outrider.cli.measuring import requests_by_concurrency

NGRAM = "apiVersion: outrider/v1alpha1\ntarget: {model: org/target}\ndraft: {method: ngram}\n"
EAGLE = (
    "apiVersion: outrider/v1alpha1\ntarget: {model: org/target}\ndraft: {method: eagle3, model: org/head}\n"
)


def _run(tmp_path: Path, *words: str, text: str = NGRAM) -> Result:
    """The command with STACK in place of a file that holds `text`."""
    stack = tmp_path / "my.yaml"
    stack.write_text(text)
    return CliRunner().invoke(cli, [str(stack) if word == "STACK" else word for word in words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench STACK --arm nonsense", "the methods are ngram, suffix"),
        ("bench STACK --arm none", "the baseline has no draft"),
        ("bench STACK --arm ngram:q=3", "ngram has no key 'q'; its keys are k"),
        ("bench STACK --arm ngram:k=3,rates=0.5+0.4+0.3", "rates are for a forecast"),
        ("bench STACK --requests foo", "'foo' is neither one number"),
        ("bench STACK --requests 8=3 --concurrency 1", "8 at once is not measured; --concurrency says 1"),
        ("bench STACK --requests 77=3", "77 at once, which is not measured"),
        ("bench STACK --requests 12", "--concurrency 1,8,32"),
        ("bench STACK --concurrency 0", "whole numbers from 1 on"),
        ("bench STACK --grid --concurrency 1,2", "give one of them"),
        ("bench --report-only --arm ngram:k=3 --grid", "--arm, --grid would be ignored"),
        ("tune STACK --arm nonsense", "the methods are ngram"),
        ("tune STACK --natural-end 3", "No such option"),
    ],
)
def test_a_mistake_in_an_option_is_a_usage_error(tmp_path: Path, words: str, said: str) -> None:
    """Exit 2, the words, and not a line about a prompt set: `--set nowhere` beside it is not reached."""
    extra = () if "report-only" in words else ("--set", "nowhere")
    done = _run(tmp_path, *words.split(), *extra)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert "nowhere" not in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--acceptance foo", "no list of rates"),
        ("--acceptance ngram=0.5", "not of ngram"),
        ("--acceptance 0.8,0.7,0.6 --set humaneval", "No such option"),
        ("--acceptance 0.8,0.7,0.6 --arm ngram:q=3", "ngram has no key 'q'"),
    ],
)
def test_forecast_refuses_what_it_cannot_use(tmp_path: Path, words: str, said: str) -> None:
    """Its own options the same way; it does not offer those that are of text."""
    done = _run(tmp_path, "forecast", "STACK", *words.split(), text=EAGLE)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())


def test_a_folder_is_no_prompt_set(tmp_path: Path) -> None:
    """Said to be a folder, with what to write instead."""
    done = _run(tmp_path, "bench", "STACK", "--set", str(tmp_path))
    assert done.exit_code == 2
    assert "is a folder" in done.output


@pytest.mark.parametrize("command", ["bench", "forecast", "tune"])
def test_a_stack_that_is_not_there_is_one_mistake_everywhere(tmp_path: Path, command: str) -> None:
    """The same error, that of a stack, whichever command reads it."""
    more = ["--acceptance", "0.8,0.7,0.6"] if command == "forecast" else []
    done = CliRunner().invoke(cli, [command, str(tmp_path / "none.yaml"), *more])
    assert getattr(done.exception, "exit_code", None) == 10


@pytest.mark.parametrize("command", ["bench", "forecast", "tune"])
def test_help_fits_a_terminal(command: str) -> None:
    """No line is wider than 80 columns, and --out names the folder that this command takes."""
    shown = CliRunner().invoke(cli, [command, "--help"], terminal_width=80).output
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert f"{command}-NAME" in shown


def test_requests_of_each_load() -> None:
    """One number is of every load that is named; pairs are of theirs."""
    assert requests_by_concurrency("12", (1, 4)) == {1: 12, 4: 12}
    assert requests_by_concurrency("1=8,4=16", None) == {1: 8, 4: 16}
    with pytest.raises(click.BadParameter, match="at least one request"):
        requests_by_concurrency("1=0", None)

"""Provenance names what matters and nothing private."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from outrider.core import provenance as module
from outrider.core.provenance import command_line, program, provenance, redact


@pytest.mark.parametrize(
    ("given", "kept", "gone"),
    [
        ("--set humaneval=/home/ann/data/humaneval.jsonl", "humaneval.jsonl", "/home/ann"),
        ("/opt/models/llama/", "llama", "/opt"),
        ("--key hf_abcdefghijklmnop", "--key", "hf_abc"),
        ("Authorization: Bearer abc.def", "Authorization", "abc.def"),
        ("api_key=verysecret", "api_key=", "verysecret"),
        ("https://user:pass@proxy.example/x", "proxy.example", "user:pass"),
        ("../stacks/mine.yaml", "mine.yaml", "../stacks"),
    ],
)
def test_redaction(given: str, kept: str, gone: str) -> None:
    """A folder is reduced to its last part, a secret to nothing."""
    assert kept in redact(given)
    assert gone not in redact(given)


def test_words_stay() -> None:
    """Ratios, units and hub ids are not paths."""
    assert redact("12 tok/s on org/name, A/B") == "12 tok/s on org/name, A/B"


def test_provenance_is_json_and_names_the_machine() -> None:
    """It can be written as JSON, and says what ran where."""
    found = json.loads(json.dumps(provenance(["outrider", "bench"], "2026-11-29T00:00:00Z")))
    assert found["command"] == "outrider bench"
    assert found["hardware"]["cores"] >= 1
    assert found["outrider"]


@pytest.mark.parametrize(
    "typed",
    [
        ["outrider", "bench", "stacks/my.yaml", "--set", "jsonl=data/mine.jsonl", "--out", "../runs/a"],
        [
            "outrider",
            "forecast",
            "./my.yaml",
            "--acceptance",
            "3.06@3",
            "--source",
            "its model card, table 2",
        ],
        ["outrider", "bench", "my stack.yaml", "--arm", "eagle3:k=3,model=org/head"],
    ],
)
def test_the_command_can_be_pasted(typed: list[str]) -> None:
    """A shell reads the kept command as the words that were typed: relative paths whole, quotes where they are needed."""
    assert shlex.split(command_line(typed)) == typed


@pytest.mark.parametrize(
    "part", ["/home/ann/a.yaml", "jsonl=/home/ann/a.jsonl", "~/ann/a.yaml", "eagle3:model=/home/ann/y,k=3"]
)
def test_the_command_names_no_folder_of_the_machine(part: str) -> None:
    """Absolute paths and home folders stay redacted, wherever they stand in a word."""
    assert "ann/" not in command_line(["outrider", "bench", part])


def test_the_command_keeps_no_secret() -> None:
    """A token in a word is redacted though the word looks like a relative path."""
    assert "abcdefgh" not in command_line(["outrider", "bench", "token=abcdefgh", "hf_abcdefghijkl"])


def test_results_that_are_written_make_no_program_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may write into its own checkout: ``-dirty`` is said of changed code alone."""
    code, result = tmp_path / "src" / "outrider" / "core" / "provenance.py", tmp_path / "results" / "run.json"
    for file in (code, result):
        file.parent.mkdir(parents=True)
        file.write_text("before", encoding="utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(module, "__file__", str(code))
    result.write_text("after", encoding="utf-8")
    clean = program()["commit"]
    assert clean
    assert not clean.endswith("-dirty")
    code.write_text("after", encoding="utf-8")
    assert program()["commit"] == f"{clean}-dirty"

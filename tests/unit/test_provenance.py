"""Provenance names what matters and nothing private."""

import json

import pytest

from outrider.core.provenance import provenance, redact


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

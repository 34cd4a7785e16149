"""The pair manifest: one name for the same bytes, figures that agree with their counts, and nothing read that is not so."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.acceptance import SpecCounters
from outrider.core.errors import MeasurementError, StackError
from outrider.stack.manifest import (
    MAX_BYTES,
    MAX_TRAINING_BYTES,
    PairManifest,
    PairPart,
    PairShape,
    ServedAcceptance,
    as_text,
    pair_id,
    parse_manifest,
    read_manifest,
    write_manifest,
)
from outrider.stack.manifest_text import page, summary

contents = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)

SERVED = ServedAcceptance.counted(
    SpecCounters(1000, 3000, 1310, (700, 400, 210)),
    prompt_set="humaneval",
    draft_length=3,
    requests=164,
    output_tokens=2310,
)
MANIFEST = PairManifest(
    target=PairPart("org/name", {"commit": "a" * 40, "model.safetensors": "b" * 64}),
    draft=PairPart(
        "head", {"model.safetensors": "c" * 64, "config.json": "d" * 64}, {"model.safetensors": 19735896}
    ),
    method="eagle3",
    shape=PairShape(576, 49152, (2, 15, 27), 8192, "e" * 64),
    draft_length=3,
    served=(SERVED, replace(SERVED, prompt_set="mt-bench", temperature=0.7)),
    training={
        "date": "2026-11-30",
        "data": {"prompts": 20000, "dropped": {"too short": 12}},
        "layers": [2, 15, 27],
    },
)


@given(contents, contents)
def test_pair_id_depends_on_content_alone(target: dict[str, str], draft: dict[str, str]) -> None:
    """Order does not matter; swapping the sides, or one changed hash, makes another pair."""
    name = pair_id(target, draft)
    assert len(name) == 16
    assert pair_id(dict(reversed(target.items())), draft) == name
    assert pair_id({**target, "new file": "x"}, draft) != name
    if target != draft:
        assert pair_id(draft, target) != name


def test_written_and_read_again(tmp_path: Path) -> None:
    """What is written is what is read, with all that was measured, and nothing else is left in the folder."""
    write_manifest(MANIFEST, tmp_path / "pair.json")
    assert read_manifest(tmp_path / "pair.json") == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["pair.json"]
    assert parse_manifest(as_text(MANIFEST).encode(), Path("x")) == MANIFEST


def test_the_first_form_is_still_read(tmp_path: Path) -> None:
    """A file with sides and method alone, as the first version wrote it, and one with keys of a later version."""
    path = tmp_path / "pair.json"
    sides = {
        "target": {"model": "org/name", "content": {"commit": "a" * 40}},
        "draft": {"content": {"f": "b" * 64}},
    }
    name = pair_id(sides["target"]["content"], sides["draft"]["content"])  # type: ignore[arg-type]
    path.write_text(json.dumps({"format": "outrider-pair/v1", "id": name, "method": "eagle3", **sides}))
    manifest = read_manifest(path)
    assert (manifest.method, manifest.shape, manifest.served, manifest.training) == ("eagle3", None, (), {})
    assert manifest.draft.model == ""
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    assert read_manifest(path) == manifest


def test_acceptance_out_of_counts() -> None:
    """AL is 1 + accepted / drafts, positions are shares of all drafts, and no drafts is no baseline."""
    assert SERVED.acceptance_length == 2.31
    assert SERVED.per_position == (0.7, 0.4, 0.21)
    assert (SERVED.drafts, SERVED.accepted, SERVED.temperature) == (1000, 1310, 0.0)
    with pytest.raises(MeasurementError, match="drafted nothing") as caught:
        ServedAcceptance.counted(SpecCounters(), prompt_set="x", draft_length=3, requests=1, output_tokens=9)
    assert caught.value.hint


def changed(**members: object) -> Callable[[dict[str, Any]], None]:
    """Other members at the top."""
    return lambda value: value.update(members)


def served(**members: object) -> Callable[[dict[str, Any]], None]:
    """Other members of the first served acceptance."""
    return lambda value: value["served"][0].update(members)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(format="other/v1"), "format"),
        (changed(id="0" * 16), "its content is"),
        (changed(target=None), "target"),
        (changed(draft={"content": {"a": 1}}), "draft.content.a"),
        (changed(draft={"content": {str(i): "x" for i in range(5001)}}), "draft.content"),
        (changed(draft_length=0), "draft_length"),
        (changed(draft_length="3"), "draft_length"),
        (changed(shape={"hidden_size": 576}), "shape.vocab_size"),
        (changed(shape={"hidden_size": -1, "vocab_size": 1}), "shape.hidden_size"),
        (changed(training=[]), "training"),
        (changed(training={"x": "y" * MAX_TRAINING_BYTES}), "training"),
        (changed(served=[{}] * 257), "served"),
        (served(acceptance_length=2.4), "by its counts 2.3100"),
        (served(acceptance_length=0.5), "served.0.acceptance_length"),
        (served(accepted=3001, acceptance_length=4.001), "more was accepted"),
        (served(per_position=[0.7, 0.4, 0.21, 0.1]), "more was accepted"),
        (served(per_position=[1.2]), "per_position.0"),
        (served(per_position=[0.4, 0.7, 0.21]), "per_position rises"),
        (served(per_position=[0.7, 0.4, 0.1]), "per_position adds up to AL 2.2000"),
        (served(per_position=[0.9, 0.9]), "per_position adds up to AL 2.8000"),
        (served(drafts=0), "served.0.drafts"),
        (served(prompt_set="\x1b[2J"), "served.0.prompt_set"),
        (changed(method="a\nb"), "method"),
        (changed(id="\x1b[2J"), "id"),
        (changed(draft={"content": {"\x9b2J.safetensors": "a" * 64}}), "draft.content"),
        (served(requests=True), "served.0.requests"),
        (served(temperature=-1.0), "temperature"),
    ],
)
def test_a_manifest_that_is_not_so_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    """Another format, an id that is not the content's, wrong types, sizes beyond limits, impossible figures: by name."""
    path = tmp_path / "pair.json"
    value = json.loads(as_text(MANIFEST))
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(StackError) as caught:
        read_manifest(path)
    assert {problem.rule for problem in caught.value.problems} == {"pair-manifest"}
    assert any(said in problem.message for problem in caught.value.problems)
    assert caught.value.hint


def test_figures_may_be_rounded_and_positions_left_out() -> None:
    """Two decimals, or the first positions alone, say nothing against the counts."""
    for rates in ([0.7, 0.4, 0.21], [0.7, 0.4], [0.7, 0.4, 0.2], []):
        value = json.loads(as_text(MANIFEST))
        served(per_position=rates)(value)
        assert parse_manifest(json.dumps(value).encode(), Path("x")).served[0].per_position == tuple(rates)


def test_no_terminal_is_sent_what_a_manifest_hides() -> None:
    """Neither by its page nor by what is said against it."""
    hostile = "\x1b]0;owned\x07\x9b2J"
    lines = list(page(replace(MANIFEST, training={hostile: hostile, "list": [hostile]})))
    assert lines
    assert all(line.isprintable() for line in lines)
    value = json.loads(as_text(MANIFEST))
    changed(draft={"content": {hostile: 1}})(value)
    with pytest.raises(StackError) as caught:
        parse_manifest(json.dumps(value).encode(), Path("x"))
    assert all(one.message.isprintable() for one in caught.value.problems)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    """Two faults, two problems."""
    value = {**json.loads(as_text(MANIFEST)), "draft_length": 0, "method": 3}
    with pytest.raises(StackError) as caught:
        parse_manifest(json.dumps(value).encode(), tmp_path)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        as_text(MANIFEST).replace('"served": [', '"served": [],\n"served": [', 1),
        as_text(MANIFEST).replace("2.31", "NaN", 1),
        as_text(MANIFEST).replace('"2026-11-30"', "Infinity", 1),
        as_text(MANIFEST).replace('"2026-11-30"', "1e999", 1),
        "[" * 100_000,
        " " * (MAX_BYTES + 1),
    ],
)
def test_what_is_no_json_object(tmp_path: Path, text: str) -> None:
    """No JSON, no object, a key twice, no number, depths without end, a file beyond its limit: each in one sentence."""
    path = tmp_path / "pair.json"
    path.write_text(text)
    with pytest.raises(StackError, match=r"pair\.json is no pair manifest"):
        read_manifest(path)
    path.unlink()
    with pytest.raises(StackError, match=r"pair\.json"):
        read_manifest(path)


@pytest.mark.parametrize(
    "manifest",
    [
        replace(MANIFEST, training={"loss": float("nan")}),
        replace(MANIFEST, training={"when": object()}),  # type: ignore[dict-item]
        replace(MANIFEST, training={"log": "x" * MAX_TRAINING_BYTES}),
        replace(MANIFEST, served=(replace(SERVED, acceptance_length=3.0),)),
    ],
)
def test_nothing_is_written_that_could_not_be_read(tmp_path: Path, manifest: PairManifest) -> None:
    """A manifest that would be refused is refused before it is written: what stood there stays."""
    path = tmp_path / "pair.json"
    write_manifest(MANIFEST, path)
    with pytest.raises(StackError):
        write_manifest(manifest, path)
    assert read_manifest(path) == MANIFEST


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where the folder should be: one sentence, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError) as caught:
        write_manifest(MANIFEST, tmp_path / "file" / "pair.json")
    assert "cannot be written" in caught.value.problems[0].message


def test_in_words() -> None:
    """One line for the log; a page of at most 80 columns that has every figure."""
    assert summary(MANIFEST) == (
        f"{MANIFEST.id}: head for org/name; served AL 2.31 on humaneval at K = 3, 2.31 on mt-bench at K = 3"
    )
    assert "no served acceptance" in summary(replace(MANIFEST, served=()))
    lines = list(page(replace(MANIFEST, training={**MANIFEST.training, "note": "long words " * 40})))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for said in (
        MANIFEST.id,
        "eagle3, K = 3",
        "org/name (commit aaaaaaaaaaaa…",
        "2, 15, 27",
        "49,152 tokens; the draft's 8,192",
        "data.dropped.too short: 12",
        "layers: 2, 15, 27",
    ):
        assert said in text
    row = next(line for line in lines if "humaneval" in line)
    assert row.split() == ["humaneval", "3", "0", "164", "2,310", "2.31", ".70", ".40", ".21"]

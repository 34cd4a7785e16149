"""A pair put into one folder: whole, checked file by file, and never half."""

import json
import struct
from pathlib import Path

import pytest

from outrider.core.errors import WeightsError
from outrider.engines.sim.adapter import SimEngine
from outrider.launch.placed import Expected, place_pair, read_expected
from outrider.stack.content import Reference, part_of
from outrider.stack.digests import Digester
from outrider.stack.models import Draft, Stack, Target


def model(folder: Path, text: bytes) -> Path:
    """The smallest folder that counts as a model."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + text)
    return folder


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """A target and a draft model in folders."""
    target, draft = model(tmp_path / "t", b"target"), model(tmp_path / "d", b"draft")
    return Stack(
        apiVersion="outrider/v1alpha1",
        target=Target(model=str(target)),
        draft=Draft(method="draft-model", model=str(draft)),
    )


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache but the test's."""
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))


def content(stack: Stack) -> Expected:
    """What both halves are now."""
    halves = (stack.target.model, str(stack.draft.model))
    return Expected(*(part_of(Reference(half), Digester()).content for half in halves))


def test_both_halves_are_put_in_place_and_checked(stack: Stack, tmp_path: Path) -> None:
    """A second time nothing is copied, all is checked."""
    said: list[str] = []
    into, expected = tmp_path / "models", content(stack)
    into.mkdir()
    for _ in range(2):
        place_pair(stack, SimEngine(), into, expected, said.append)
    assert (into / "draft" / "model.safetensors").read_bytes().endswith(b"draft")
    assert sorted(path.name for path in into.iterdir()) == ["draft", "target"]
    assert sum("comparing digests" in line for line in said) == 4
    assert f"[weights] target: {stack.target.model}" in said


def test_a_half_that_is_not_the_pairs_is_refused_and_not_left_there(stack: Stack, tmp_path: Path) -> None:
    """Fetched wrong: nothing under the name that the engine loads. Wrong in place: refused at every start."""
    expected, into = content(stack), tmp_path / "models"
    into.mkdir()
    other = Expected(expected.target, {**expected.draft, "model.safetensors": "0" * 64})
    with pytest.raises(WeightsError, match=r"the draft in .* is not what the pair names"):
        place_pair(stack, SimEngine(), into, other, lambda line: None)
    assert [path.name for path in into.iterdir()] == ["target"]
    place_pair(stack, SimEngine(), into, expected, lambda line: None)
    weights = into / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"target", b"forged"))
    with pytest.raises(WeightsError, match=r"model\.safetensors is another"):
        place_pair(stack, SimEngine(), into, expected, lambda line: None)


def test_two_pods_at_once_leave_one_whole_pair(stack: Stack, tmp_path: Path) -> None:
    """On a shared volume the first to finish wins, and nothing of the other stays; what is in use is not touched."""
    into, expected = tmp_path / "models", content(stack)
    into.mkdir()
    met: list[str] = []

    def note(line: str) -> None:  # the other pod puts the same in place while this one compares
        if line == "[weights] target: comparing digests" and not met:
            met.append(line)
            place_pair(stack, SimEngine(), into, expected, lambda line: None)

    place_pair(stack, SimEngine(), into, expected, note)
    assert met
    assert sorted(path.name for path in into.iterdir()) == ["draft", "target"]


def test_without_digests_it_says_that_nothing_is_checked(stack: Stack, tmp_path: Path) -> None:
    """As for a hub that could not be asked when the stack was rendered."""
    said: list[str] = []
    (tmp_path / "models").mkdir()
    unpinned = Expected({"model": "a", "commit": "unpinned"}, {"model": "b", "commit": "unpinned"})
    place_pair(stack, SimEngine(), tmp_path / "models", unpinned, said.append)
    assert sum("not checked" in line for line in said) == 2


def test_what_is_expected_is_read_or_refused(tmp_path: Path) -> None:
    """Both sides' content ids; anything else is an error with a hint."""
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({"target": {"content": {"commit": "1"}}, "draft": {"content": {}}}))
    assert read_expected(path) == Expected({"commit": "1"}, {})
    for text in ("[]", "{}", "no", '{"target": 1}'):
        path.write_text(text)
        with pytest.raises(WeightsError) as refused:
            read_expected(path)
        assert "outrider render" in refused.value.hint

"""The pair manifest: one name for the same bytes, and verification that finds any other."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import StackError
from outrider.stack.manifest import (
    PairManifest,
    PairPart,
    file_digest,
    pair_id,
    read_manifest,
    verify_folder,
    write_manifest,
)

contents = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)


@given(contents, contents)
def test_pair_id_depends_on_content_alone(target: dict[str, str], draft: dict[str, str]) -> None:
    """Order does not matter; swapping the sides, or one changed hash, makes another pair."""
    name = pair_id(target, draft)
    assert len(name) == 16
    assert pair_id(dict(reversed(target.items())), draft) == name
    assert pair_id({**target, "new file": "x"}, draft) != name
    if target != draft:
        assert pair_id(draft, target) != name


def manifest_of(folder: Path) -> PairManifest:
    """A manifest of a draft folder with one file."""
    (folder / "model.safetensors").write_bytes(b"weights")
    draft = PairPart("./head", {"model.safetensors": file_digest(folder / "model.safetensors")})
    return PairManifest(PairPart("org/name", {"commit": "a" * 40}), draft, "eagle3")


def test_written_and_read_again(tmp_path: Path) -> None:
    """What is written is what is read, and nothing else is left in the folder."""
    manifest = manifest_of(tmp_path)
    write_manifest(manifest, tmp_path / "pair.json")
    assert read_manifest(tmp_path / "pair.json") == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "pair.json"]


def test_verification_finds_changed_and_missing_files(tmp_path: Path) -> None:
    """The files of the pair pass; one changed byte, a missing file or a path out of the folder does not."""
    manifest = manifest_of(tmp_path)
    assert verify_folder(manifest.draft, tmp_path) == []
    (tmp_path / "model.safetensors").write_bytes(b"weightz")
    assert "is not the file of this pair" in verify_folder(manifest.draft, tmp_path)[0].message
    (tmp_path / "model.safetensors").unlink()
    assert "missing" in verify_folder(manifest.draft, tmp_path)[0].message
    outside = PairPart("x", {"../secret": "a" * 64})
    (tmp_path.parent / "secret").write_text("x")
    assert "missing" in verify_folder(outside, tmp_path)[0].message


@pytest.mark.parametrize(
    "change", [{"format": "other/v1"}, {"id": "0" * 16}, {"target": None}, {"draft": {"content": {"a": 1}}}]
)
def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """Another format, an id that is not the content's, and missing sides are refused."""
    path = tmp_path / "pair.json"
    write_manifest(manifest_of(tmp_path), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StackError) as caught:
        read_manifest(path)
    assert caught.value.problems[0].rule == "pair-manifest"


def test_no_manifest(tmp_path: Path) -> None:
    """No file, and a file that is no JSON, are told by name."""
    for content in (None, "{"):
        if content:
            (tmp_path / "pair.json").write_text(content)
        with pytest.raises(StackError, match=r"pair\.json"):
            read_manifest(tmp_path / "pair.json")

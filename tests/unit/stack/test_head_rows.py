"""Heads in stored form: smaller by the rows that are the target's, whole again byte for byte, or refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pairs import (
    Sizes,
    drafted_ids,
    head_tensors,
    safetensors,
    small_numbers,
    tensor_bytes,
    write_head,
    write_target,
)

from outrider.core.errors import WeightsError
from outrider.stack import head_rows
from outrider.stack.digests import file_digest
from outrider.stack.facts import FactsError
from outrider.stack.head_rows import (
    ROWS,
    WEIGHTS,
    is_stored,
    place_of_head,
    read_rows,
    whole_digest,
    whole_head,
)
from outrider.stack.manifest import PairManifest, PairPart, read_manifest, write_manifest
from outrider.stack.read_facts import read_folder
from outrider.stack.store_head import store_head
from outrider.stack.weights import place_of, resolve

SIZES = Sizes()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target whose output rows are its embedding."""
    return write_target(tmp_path / "target")


@pytest.fixture
def head(tmp_path: Path, target: Path) -> Path:
    """A head of that target, whole."""
    return write_head(tmp_path / "head", target)


@pytest.fixture
def stored(tmp_path: Path, head: Path, target: Path) -> Path:
    """The same head in stored form."""
    store_head(head, target, tmp_path / "stored")
    return tmp_path / "stored"


def silent(message: str) -> None:
    """Say nothing."""


def made_whole(stored: Path, target: Path, cache: Path) -> Path:
    """The whole head, by `whole_head`."""
    return whole_head(stored, lambda names: target, silent, cache)


def test_stored_and_made_whole_again(head: Path, target: Path, stored: Path, tmp_path: Path) -> None:
    """Without the rows when stored, smaller by just those; made whole it is the trained file, byte for byte."""
    rows = SIZES.drafted * SIZES.hidden * 2
    whole, small = (head / WEIGHTS).stat().st_size, (stored / WEIGHTS).stat().st_size
    assert rows <= whole - small <= rows + 100  # and their line in the header
    with pytest.raises(KeyError):
        tensor_bytes(stored, "lm_head.weight")
    made = made_whole(stored, target, tmp_path / "cache")
    assert (made / WEIGHTS).read_bytes() == (head / WEIGHTS).read_bytes()
    assert (made / "config.json").read_bytes() == (head / "config.json").read_bytes()
    ids = drafted_ids(SIZES)
    embedding = tensor_bytes(target, "model.embed_tokens.weight")
    width = SIZES.hidden * 2
    made_rows = tensor_bytes(made, "lm_head.weight")
    assert [made_rows[i * width : (i + 1) * width] for i in range(len(ids))] == [
        embedding[one * width : (one + 1) * width] for one in ids
    ]


def test_output_rows_of_their_own_and_several_files(tmp_path: Path) -> None:
    """A target with an `lm_head` of its own, in three files: the head's rows are that tensor's, not the embedding's."""
    target = write_target(tmp_path / "target", tied=False, shards=3)
    head = write_head(tmp_path / "head", target, rows="lm_head.weight")
    rows = store_head(head, target, tmp_path / "stored")
    assert [(one.name, one.target_tensor, one.rows) for one in rows.copied] == [
        ("lm_head.weight", "lm_head.weight", "d2t")
    ]
    made = made_whole(tmp_path / "stored", target, tmp_path / "cache")
    assert (made / WEIGHTS).read_bytes() == (head / WEIGHTS).read_bytes()


def test_the_whole_vocabulary_and_the_embedding(tmp_path: Path, target: Path) -> None:
    """A head that drafts every token copies all rows, without a map; an embedding beside it is left out too."""
    head = write_head(tmp_path / "head", target)
    embedding = tensor_bytes(target, "model.embed_tokens.weight")
    shape = (SIZES.vocabulary, SIZES.hidden)
    tensors = {
        name: one
        for name, one in head_tensors(SIZES, embedding, drafted_ids(SIZES)).items()
        if name not in ("d2t", "t2d", "lm_head.weight")
    }
    tensors |= {
        "embed_tokens.weight": ("BF16", shape, embedding),
        "lm_head.weight": ("BF16", shape, embedding),
    }
    (head / WEIGHTS).write_bytes(safetensors(tensors))
    rows = store_head(head, target, tmp_path / "stored")
    assert {one.name: one.rows for one in rows.copied} == {
        "embed_tokens.weight": "all",
        "lm_head.weight": "all",
    }
    made = made_whole(tmp_path / "stored", target, tmp_path / "cache")
    assert (made / WEIGHTS).read_bytes() == (head / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one[:-2] + bytes(2), "other values"),
        (lambda one: one[2:] + one[:2], "other values"),
    ],
)
def test_a_trained_copy_is_not_left_out(
    tmp_path: Path, head: Path, target: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    """One value that training changed, and the tensor must stay: storing is refused, and nothing is written."""
    tensors = head_tensors(SIZES, tensor_bytes(target, "model.embed_tokens.weight"), drafted_ids(SIZES))
    dtype, shape, content = tensors["lm_head.weight"]
    (head / WEIGHTS).write_bytes(safetensors({**tensors, "lm_head.weight": (dtype, shape, change(content))}))
    with pytest.raises(WeightsError, match=said) as caught:
        store_head(head, target, tmp_path / "stored")
    assert caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "target"]


def test_what_cannot_be_stored(tmp_path: Path, head: Path, target: Path, stored: Path) -> None:
    """A head without copies, a place that is taken, a head cut short, and another target: refused, each in words."""
    with pytest.raises(WeightsError, match="there already"):
        store_head(head, target, stored)
    with pytest.raises(WeightsError, match="nothing to leave out"):
        store_head(stored, target, tmp_path / "again")
    with pytest.raises(WeightsError, match="other values"):
        store_head(head, write_target(tmp_path / "other", seed=9), tmp_path / "again")
    (head / WEIGHTS).write_bytes((head / WEIGHTS).read_bytes()[:-1])
    with pytest.raises(WeightsError, match="is the download complete"):
        store_head(head, target, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("values", "such rows with other values"),
        ("fewer rows", "it has 8 rows, the head's map goes"),
        ("width", r"its rows are \[64, 8\], the head's \[12, 16\]"),
        ("type", "its rows are F32, the head's BF16"),
        ("name", r"it has no model\.embed_tokens\.weight"),
    ],
)
def test_another_target_is_refused(tmp_path: Path, stored: Path, other: str, said: str) -> None:
    """A target of other rows, sizes or types does not make this head whole: the cache stays empty, and it says what differs."""
    target = write_target(tmp_path / "other", seed=9)
    name = "model.embeddings.weight" if other == "name" else "model.embed_tokens.weight"
    whole = (SIZES.vocabulary, SIZES.hidden)
    shape = {"fewer rows": (8, SIZES.hidden), "width": (SIZES.vocabulary, 8)}.get(other, whole)
    content = small_numbers(shape, 9)
    one = ("F32", shape, content * 2) if other == "type" else ("BF16", shape, content)
    (target / WEIGHTS).write_bytes(safetensors({name: one}))
    with pytest.raises(WeightsError, match=f"another target: .*{said}") as caught:
        made_whole(stored, target, tmp_path / "cache")
    assert "pair show" in caught.value.hint
    assert not list((tmp_path / "cache").rglob("model.safetensors"))


def test_a_manifest_of_another_head_is_not_stored(tmp_path: Path, head: Path, target: Path) -> None:
    """`pair.json` beside the head goes along, if it is this head's."""
    content = {WEIGHTS: file_digest(head / WEIGHTS)}
    manifest = PairManifest(PairPart("t", {"wheel": "a" * 64}), PairPart("h", content), "eagle3")
    write_manifest(manifest, head / "pair.json")
    store_head(head, target, tmp_path / "stored")
    assert read_manifest(tmp_path / "stored" / "pair.json") == manifest
    write_manifest(replace(manifest, draft=PairPart("h", {WEIGHTS: "b" * 64})), head / "pair.json")
    with pytest.raises(WeightsError, match="of another head"):
        store_head(head, target, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def damage_weights(folder: Path) -> None:
    """One bit of the stored weights."""
    raw = bytearray((folder / WEIGHTS).read_bytes())
    raw[-1] ^= 1
    (folder / WEIGHTS).write_bytes(raw)


def cut_weights(folder: Path) -> None:
    """A download that ended early."""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-10])


def change_rows(**changes: object) -> Callable[[Path], None]:
    """Other members in rows.json."""

    def change(folder: Path) -> None:
        value = json.loads((folder / ROWS).read_text())
        (folder / ROWS).write_text(json.dumps({**value, **changes}))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        damage_weights,
        cut_weights,
        change_rows(format="outrider-head-rows/v2"),
        change_rows(header="{}"),
        change_rows(header="not JSON"),
        change_rows(copied=[]),
        change_rows(copied=[{"name": "x", "target_tensor": "y", "rows": "all"}]),
        change_rows(sha256="0"),
        change_rows(more=1),
        lambda folder: (folder / ROWS).write_text("{"),
        lambda folder: (folder / WEIGHTS).unlink(),
    ],
)
def test_a_damaged_stored_head(
    tmp_path: Path, stored: Path, target: Path, damage: Callable[[Path], None]
) -> None:
    """Whatever of the stored form is not what it was: damaged is said, not another target, and nothing is made."""
    damage(stored)
    with pytest.raises(WeightsError, match="damaged"):
        made_whole(stored, target, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("model.safetensors"))


def test_a_map_out_of_the_target(tmp_path: Path, stored: Path, target: Path) -> None:
    """A map that points past the target's rows reads nothing there."""
    raw = (stored / WEIGHTS).read_bytes()
    at = raw.index(tensor_bytes(stored, "d2t"))
    (stored / WEIGHTS).write_bytes(raw[:at] + (10**9).to_bytes(8, "little") + raw[at + 8 :])
    with pytest.raises(WeightsError, match=r"64 rows, the head's map goes .* to 1,000,000,000"):
        made_whole(stored, target, tmp_path / "cache")


def test_made_once(tmp_path: Path, stored: Path, target: Path) -> None:
    """The second call makes nothing; another config or manifest beside it is another folder; a lost file is made again."""
    said: list[str] = []
    cache = tmp_path / "cache"
    made = whole_head(stored, lambda names: target, said.append, cache)
    assert (
        whole_head(stored, lambda names: target, said.append, cache) == made == place_of_head(stored, cache)
    )
    assert len(said) == 1
    (made / WEIGHTS).write_bytes(b"")
    assert (whole_head(stored, lambda names: target, said.append, cache) / WEIGHTS).stat().st_size > 0
    (stored / "config.json").write_text((stored / "config.json").read_text() + "\n")
    assert place_of_head(stored, cache) != made


def test_facts_of_a_stored_head_are_those_of_the_whole(stored: Path, head: Path) -> None:
    """`check` and the memory budget see every tensor, also those that are not stored."""
    whole, small = read_folder(head), read_folder(stored)
    assert dict(small.tensors) == dict(whole.tensors)
    assert small.head == whole.head
    (stored / ROWS).write_text("{")
    with pytest.raises(FactsError, match=ROWS):
        read_folder(stored)


def test_as_a_reference(tmp_path: Path, stored: Path, head: Path, target: Path) -> None:
    """A stored folder is made whole with the target's weights; without a target it is no model; its place is known before."""
    cache = tmp_path / "cache"
    place = place_of(str(stored), cache=cache)
    assert not cache.exists()
    assert resolve(str(stored), cache=cache, target=lambda names: target) == place
    with pytest.raises(WeightsError, match="stored form"):
        resolve(str(stored), cache=cache)
    assert resolve(str(head), cache=cache) == str(head)
    assert (is_stored(stored), is_stored(head), is_stored(Path(place))) == (True, False, False)


def test_built_in_heads(tmp_path: Path, stored: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``builtin:NAME`` is a folder that ships with Outrider; an unknown name lists those there are, and no path gets out."""
    heads = tmp_path / "heads"
    monkeypatch.setattr(head_rows, "BUILT_IN_HEADS", heads)
    with pytest.raises(WeightsError, match="no built-in head 'small'") as caught:
        resolve("builtin:small", cache=tmp_path / "cache", target=lambda names: target)
    assert "none is built in" in caught.value.hint
    shutil.copytree(stored, heads / "small")
    made = resolve("builtin:small", cache=tmp_path / "cache", target=lambda names: target)
    assert (Path(made) / WEIGHTS).stat().st_size > (stored / WEIGHTS).stat().st_size
    for name in ("other", "../stored", "", ".", "small/../small"):
        with pytest.raises(WeightsError, match="no built-in head") as caught:
            place_of(f"builtin:{name}")
        assert "small" in caught.value.hint


def test_the_hash_without_writing(stored: Path, target: Path, tmp_path: Path) -> None:
    """`whole_digest` is the whole file's, and another target's is another."""
    assert whole_digest(stored, lambda names: target) == read_rows(stored).sha256
    other = write_target(tmp_path / "other", seed=9)
    assert whole_digest(stored, lambda names: other) != read_rows(stored).sha256

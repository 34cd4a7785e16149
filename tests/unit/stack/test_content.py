"""Content ids of every kind of reference, what differs between two, and digests that are kept only while nothing changed."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pairs import write_head, write_target

from outrider.core.errors import WeightsError
from outrider.stack import digests, hub
from outrider.stack.content import COMMIT, GGUF, WHEEL, Reference, differences, identities, part_of
from outrider.stack.digests import Digester, blob_id
from outrider.stack.facts import HubError
from outrider.stack.hub import Listing
from outrider.stack.store_head import store_head

A, B, BLOB, OTHER_BLOB = "a" * 64, "b" * 64, "c" * 40, "d" * 40


def digester(tmp_path: Path, **more: object) -> Digester:
    """A digester with a cache of its own."""
    return Digester(cache=tmp_path / "cache", **more)  # type: ignore[arg-type]


def sha256(path: Path) -> str:
    """Of a file, by the standard library alone."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def settle(path: Path) -> None:
    """As if the file had been written an hour ago. Its inode's own time cannot be set: the tests' clock is moved instead."""
    os.utime(path, (time.time() - 3600, time.time() - 3600))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour has passed since anything was written."""
    now = time.time_ns
    monkeypatch.setattr(digests.time, "time_ns", lambda: now() + 3600 * 10**9)


# ---- kinds of reference ----------------------------------------------------------------------------------


def test_a_package_and_a_gguf_file(tmp_path: Path) -> None:
    """A package is the digest that the stack names, a GGUF file its own; no folder of this machine is in the name."""
    package = part_of(Reference("pypi:name==1", sha256=A), digester(tmp_path))
    assert (package.model, package.content) == ("pypi:name==1", {WHEEL: A})
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    part = part_of(Reference(str(file)), digester(tmp_path))
    assert (part.model, part.content, part.sizes) == ("model.gguf", {GGUF: sha256(file)}, {"model.gguf": 4})


def test_a_folder_is_its_deciding_files(tmp_path: Path) -> None:
    """Weights in all shards, config, tokenizer and chat template count; a README, optimizer state or subfolder does not."""
    folder = write_target(tmp_path / "target", shards=2)
    for name in (
        "chat_template.jinja",
        "tokenizer_config.json",
        "README.md",
        "training_args.bin",
        "pair.json",
    ):
        (folder / name).write_text(name)
    (folder / "old").mkdir()
    (folder / "old" / "model.safetensors").write_bytes(b"x")
    part = part_of(Reference(str(folder)), digester(tmp_path))
    counted = {
        "chat_template.jinja",
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert part.model == "target"
    assert part.content == {name: sha256(folder / name) for name in counted}
    assert part.sizes == {name: (folder / name).stat().st_size for name in counted}


def test_a_stored_head_is_the_whole_head(tmp_path: Path) -> None:
    """Stored or whole, a head has the same content ids, so one manifest serves both; a changed stored file is told."""
    target = write_target(tmp_path / "target")
    head = write_head(tmp_path / "head", target)
    store_head(head, target, tmp_path / "stored")
    whole = part_of(Reference(str(head)), digester(tmp_path))
    stored = part_of(Reference(str(tmp_path / "stored")), digester(tmp_path))
    assert (stored.content, stored.sizes) == (whole.content, whole.sizes)
    weights = tmp_path / "stored" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(WeightsError, match="not the file that was stored"):
        part_of(Reference(str(tmp_path / "stored")), digester(tmp_path))


def test_what_is_not_there(tmp_path: Path) -> None:
    """No file, no folder, no weights: one sentence each, with a hint."""
    (tmp_path / "empty").mkdir()
    for name in ("none.gguf", "none", "empty"):
        with pytest.raises(WeightsError) as caught:
            part_of(Reference(str(tmp_path / name)), digester(tmp_path))
        assert caught.value.hint


def test_a_hub_model_is_what_the_hub_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit and listed hashes; where the hub does not answer, the bytes of the local snapshot, in ids of the same kind."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    snapshot = write_target(tmp_path / "snapshots" / ("e" * 40))
    weights = snapshot / "model.safetensors"
    files = {
        "config.json": blob_id(snapshot / "config.json"),
        "model.safetensors": sha256(weights),
        "README.md": BLOB,
    }
    files["tokenizer.json"] = sha256(snapshot / "tokenizer.json")
    monkeypatch.setattr(hub, "list_files", lambda model, revision: Listing(model, "e" * 40, files))
    monkeypatch.setattr(hub, "snapshot_folder", lambda model, revision: snapshot)
    listed = part_of(Reference("org/name"), digester(tmp_path))
    assert (listed.model, listed.content) == ("org/name", {COMMIT: "e" * 40, **files})

    def fail(model: str, revision: str | None) -> Listing:
        raise HubError("no answer", "wait", unreachable=True)

    monkeypatch.setattr(hub, "list_files", fail)
    local = part_of(Reference("org/name"), digester(tmp_path), like=listed.content)
    assert differences(listed.content, local.content) == []
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    local = part_of(Reference("org/name"), digester(tmp_path), like=listed.content)
    assert len(differences(listed.content, local.content)) == 1
    monkeypatch.setattr(hub, "snapshot_folder", lambda model, revision: None)
    for offline in (False, True):
        if offline:
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(WeightsError):
            part_of(Reference("org/name"), digester(tmp_path))


def test_gits_own_id(tmp_path: Path) -> None:
    """The id of small files as git has it: that of a known content."""
    (tmp_path / "file").write_bytes(b"hello\n")
    assert blob_id(tmp_path / "file") == "ce013625030ba8dba906f756967f9e9ca394464a"


# ---- what differs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        ({WHEEL: A}, {WHEEL: A}, []),
        ({WHEEL: A}, {WHEEL: B}, ["wheel is another"]),
        ({WHEEL: A}, {GGUF: A}, ["cannot be compared"]),
        ({WHEEL: A}, {"config.json": A}, ["cannot be compared"]),
        ({WHEEL: A}, {}, ["cannot be compared"]),
        ({}, {WHEEL: A}, ["cannot be compared"]),
        ({COMMIT: BLOB, "m.safetensors": A}, {COMMIT: OTHER_BLOB, "m.safetensors": A}, []),
        (
            {COMMIT: BLOB, "m.safetensors": A},
            {COMMIT: BLOB, "m.safetensors": B},
            ["m.safetensors is another"],
        ),
        ({"m.safetensors": A, "config.json": BLOB}, {"m.safetensors": A, "config.json": A}, []),
        (
            {"m.safetensors": BLOB, "config.json": A},
            {"m.safetensors": A, "config.json": A},
            ["cannot be compared"],
        ),
        (
            {"m.safetensors": A, "README.md": A},
            {"m.safetensors": A, "README.md": B, "x/m.safetensors": A},
            [],
        ),
        ({"1.safetensors": A, "2.safetensors": A}, {"1.safetensors": A}, ["2.safetensors is missing"]),
        ({"m.safetensors": A}, {"m.safetensors": A, "tokenizer.json": A}, ["tokenizer.json was not there"]),
        (
            {"m.safetensors": A, "config.json": A},
            {"m.safetensors": B, "config.json": B},
            ["config.json is another", "m.safetensors is another"],
        ),
    ],
)
def test_differences(expected: dict[str, str], found: dict[str, str], said: list[str]) -> None:
    """Every deciding file that changed, is missing or was added; what is only named otherwise; hashes of no common kind."""
    reasons = differences(expected, found)
    assert len(reasons) == len(said)
    for reason, words in zip(reasons, said, strict=True):
        assert words in reason


def test_identities_for_people() -> None:
    """Short, the commit first, nothing that does not decide."""
    assert list(identities({"README.md": A, "m.safetensors": A, COMMIT: BLOB})) == [
        "commit cccccccccccc…",
        "m.safetensors aaaaaaaaaaaa…",
    ]


# ---- digests that are kept --------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are really read, as they are."""
    read: list[str] = []
    real = Digester._read

    def spy(self: Digester, file: Path) -> str:
        read.append(file.name)
        return real(self, file)

    monkeypatch.setattr(Digester, "_read", spy)
    return read


@pytest.mark.usefixtures("later")
def test_a_digest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read once, through whatever link it is named; `fresh` reads it again."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"weights")
    link.symlink_to(file)
    read = counted(monkeypatch)
    assert digester(tmp_path).of_files([file, link, file]) == [sha256(file)] * 3
    assert digester(tmp_path).of_files([link]) == [sha256(file)]
    assert read == ["file"]
    digester(tmp_path, fresh=True).of_files([file])
    assert read == ["file", "file"]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("how", ["in place", "replaced", "time set back"])
def test_a_changed_file_is_read_again(tmp_path: Path, how: str) -> None:
    """Other bytes of the same size are noticed, also where the modification time is set back to what it was."""
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    before = file.stat()
    digester(tmp_path).of_files([file])
    time.sleep(0.02)
    if how == "replaced":
        (tmp_path / "new").write_bytes(b"weightz")
        (tmp_path / "new").rename(file)
    else:
        file.write_bytes(b"weightz")
    if how == "time set back":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digester(tmp_path).of_files([file]) == [hashlib.sha256(b"weightz").hexdigest()]


def test_a_file_still_being_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file younger than two seconds may change within one tick of its clock: it is read again."""
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    settle(file)  # its inode's own time is still now
    read = counted(monkeypatch)
    digester(tmp_path).of_files([file])
    digester(tmp_path).of_files([file])
    assert read == ["file", "file"]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"file": 1, "sha256": 2}', "null"])
def test_a_damaged_cache_costs_time_only(tmp_path: Path, damage: str) -> None:
    """What was kept and cannot be read is as if it had not been kept."""
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    digester(tmp_path).of_files([file])
    (kept,) = (tmp_path / "cache" / "digests").iterdir()
    kept.write_text(damage)
    assert digester(tmp_path).of_files([file]) == [sha256(file)]


@pytest.mark.usefixtures("later")
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """Without a cache the digest is the same."""
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert digester(tmp_path).of_files([file]) == [sha256(file)]


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every two seconds: which file, how much of all, and how long it still takes."""
    file = tmp_path / "big.safetensors"
    file.write_bytes(bytes(10 * 2**20))
    monkeypatch.setattr(digests, "_CHUNK", 2**20)
    said: list[str] = []
    ticks = iter(range(100))
    clock: Callable[[], float] = lambda: float(next(ticks))  # noqa: E731
    digester(tmp_path, say=said.append, clock=clock).of_files([file])
    assert said[0] == "hashing big.safetensors: 0.0 of 0.0 GB (20%), 8 s left"
    assert len(said) == 5


def test_the_kept_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is one small JSON file for a path, with no other secrets than the path."""
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    monkeypatch.setattr(digests, "SETTLED_NS", -(10**12))
    digester(tmp_path).of_files([file])
    (kept,) = (tmp_path / "cache" / "digests").iterdir()
    value = json.loads(kept.read_text())
    assert value["sha256"] == sha256(file)
    assert value["file"][:2] == [str(file), 7]

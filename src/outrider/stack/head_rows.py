"""Heads that are stored without what they copy from their target, and made whole with the target's own rows.

A trained head's `lm_head` is often a frozen copy of some of the target's rows (which ones, its `d2t` map says): half of its
bytes, and all of them in the target already. A *stored* head is the same folder without those tensors, and with `rows.json`,
which says where they come from and keeps the whole file's header and SHA-256. Made whole, the file is the trained one byte for
byte, or it is refused: a target of other rows gives another hash.

Pure Python: rows are copied as bytes, whatever their type.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.core.errors import WeightsError
from outrider.stack.digests import file_digest
from outrider.stack.facts import FactsError, TensorFacts
from outrider.stack.safetensors_header import Layout, Place, parse_layout, read_layout
from outrider.stack.weights_cache import Progress, cache_folder, obtain

ROWS = "rows.json"
WEIGHTS = "model.safetensors"
MANIFEST = "pair.json"
RECIPE = 1  # raise it when the same stored head makes another folder
MAX_BYTES = 4 * 2**20
BUILT_IN_HEADS = Path(__file__).parents[1] / "data" / "heads"
_RUN_BYTES = 4 * 2**20

TargetWeights = Callable[[Collection[str]], Path]
"""A folder that holds the target's tensors of these names; may fetch one. Raises WeightsError."""

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, Field(min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Copied(_Strict):
    """A tensor of the head that is not stored: `rows` of the target's `target_tensor`, ``d2t`` those its map names."""

    name: _Name
    target_tensor: _Name
    rows: Literal["d2t", "all"]


class StoredRows(_Strict):
    """What `rows.json` holds: the whole file's header and SHA-256, the stored file's, and what is to be copied."""

    format: Literal["outrider-head-rows/v1"] = "outrider-head-rows/v1"
    header: str = Field(max_length=MAX_BYTES)
    sha256: _Sha256
    stored_sha256: _Sha256
    copied: tuple[Copied, ...] = Field(min_length=1, max_length=8)

    @property
    def layout(self) -> Layout:
        """Where the whole file's tensors lie. Raises FactsError."""
        return parse_layout(self.header.encode(), ROWS)


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a head in stored form."""
    return (folder / ROWS).is_file()


def built_in_head(name: str) -> Path:
    """The folder of a head that ships with Outrider. Raises WeightsError, which names those there are."""
    known = sorted(path.parent.name for path in BUILT_IN_HEADS.glob("*/config.json"))
    if name not in known:
        there = f"built in are: {', '.join(known)}" if known else "none is built in"
        raise WeightsError(f"no built-in head {name!r}", hint=f"Of heads, {there}.")
    return BUILT_IN_HEADS / name


def read_rows(folder: Path) -> StoredRows:
    """The stored form's `rows.json`, held against the stored file's header. Raises FactsError, OSError."""
    with (folder / ROWS).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    try:
        rows = StoredRows.model_validate_json(raw[: MAX_BYTES + 1])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise FactsError(f"{folder.name}/{ROWS}: {where}: {first['msg']}") from error
    whole, stored = rows.layout, read_layout(folder / WEIGHTS)
    copied = {one.name for one in rows.copied}
    kept = {name: place.tensor for name, place in whole.places.items() if name not in copied}
    if (
        kept != {name: place.tensor for name, place in stored.places.items()}
        or not copied <= whole.places.keys()
    ):
        raise FactsError(f"{folder.name}: {ROWS} and {WEIGHTS} are not of one head")
    return rows


def whole_tensors(folder: Path) -> dict[str, TensorFacts]:
    """The tensors a stored head has once it is whole. Raises FactsError, OSError."""
    return {name: place.tensor for name, place in read_rows(folder).layout.places.items()}


def place_of_head(folder: Path, cache: Path | None = None) -> Path:
    """The folder in the cache where `whole_head` makes a stored head whole. Raises WeightsError."""
    digest = hashlib.sha256()
    try:
        for name in (ROWS, "config.json", MANIFEST):
            path = folder / name
            raw = path.read_bytes() if path.is_file() else b""
            digest.update(b"%s %d " % (name.encode(), len(raw)) + raw)
    except OSError as error:
        raise _damaged(folder, error.strerror or str(error)) from error
    return (cache or cache_folder()) / "heads" / f"{folder.name}-{digest.hexdigest()[:16]}-r{RECIPE}"


def whole_head(folder: Path, target: TargetWeights, progress: Progress, cache: Path | None = None) -> Path:
    """A folder with the whole head of stored `folder`, made in the cache at first use.

    Raises:
        WeightsError: the stored head is damaged, the target has other rows, or the cache cannot be written.
    """

    def make(place: Path, scratch: Path) -> Mapping[str, object]:
        rows = _rows_of(folder)
        progress(f"making {folder.name} whole with the target's rows, once")
        digest = hashlib.sha256()
        with (place / WEIGHTS).open("wb") as out:
            for piece in _whole_file(folder, rows, target):
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != rows.sha256:
            raise _why_not(folder, rows)
        for name in ("config.json", MANIFEST):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, place / name)
        return {"source": folder.name, "sha256": rows.sha256, "recipe": RECIPE}

    return obtain(place_of_head(folder, cache), make, progress)


def whole_digest(folder: Path, target: TargetWeights) -> str:
    """SHA-256 that the whole head's weights have with this target, without writing them. Raises WeightsError."""
    digest = hashlib.sha256()
    for piece in _whole_file(folder, _rows_of(folder), target):
        digest.update(piece)
    return digest.hexdigest()


def _rows_of(folder: Path) -> StoredRows:
    try:
        return read_rows(folder)
    except (FactsError, OSError) as error:
        raise _damaged(folder, str(error)) from error


def _whole_file(folder: Path, rows: StoredRows, target: TargetWeights) -> Iterator[bytes]:
    """The whole file's bytes, in order. Raises WeightsError."""
    try:
        whole, stored = rows.layout, read_layout(folder / WEIGHTS)
        copied = {one.name: one for one in rows.copied}
        yield struct.pack("<Q", len(whole.header)) + whole.header
        with (folder / WEIGHTS).open("rb") as own:
            for name, place in whole.places.items():
                if one := copied.get(name):
                    ids = map_in(folder, stored) if one.rows == "d2t" else None
                    yield from _target_rows(folder, one, place.tensor, ids, target)
                else:
                    yield from span(own.fileno(), stored.places[name].begin, stored.places[name].end)
    except FactsError as error:
        raise _damaged(folder, str(error)) from error


def _target_rows(
    folder: Path, one: Copied, wanted: TensorFacts, ids: Sequence[int] | None, target: TargetWeights
) -> Iterator[bytes]:
    found = find_tensor(target((one.target_tensor,)), one.target_tensor)
    if found is None:
        raise _other_target(folder, f"it has no {one.target_tensor}")
    path, place = found
    try:
        yield from copy_rows(path, place, wanted, ids)
    except FactsError as error:
        raise _other_target(folder, str(error)) from error


def copy_rows(path: Path, place: Place, wanted: TensorFacts, ids: Sequence[int] | None) -> Iterator[bytes]:
    """The rows `ids` (None: all) of a tensor as `wanted`. Raises FactsError where they cannot be."""
    there = place.tensor
    rows = there.shape[0] if there.shape else 0
    ids = range(rows) if ids is None else ids
    if there.dtype != wanted.dtype:
        raise FactsError(f"its rows are {there.dtype}, the head's {wanted.dtype}")
    if len(wanted.shape) != 2 or there.shape[1:] != wanted.shape[1:] or len(ids) != wanted.shape[0]:
        raise FactsError(f"its rows are {list(there.shape)}, the head's {list(wanted.shape)}")
    if ids and not 0 <= min(ids) <= max(ids) < rows:
        raise FactsError(f"it has {rows:,} rows, the head's map goes from {min(ids):,} to {max(ids):,}")
    width = there.size_bytes // rows if rows else 0
    with path.open("rb") as file:
        for first, after in _runs(ids):
            yield from span(file.fileno(), place.begin + first * width, place.begin + after * width)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring ids as (first, one after the last), in their order."""
    if not ids:
        return
    first = ids[0]
    for one, following in pairwise(ids):
        if following != one + 1:
            yield first, one + 1
            first = following
    yield first, ids[-1] + 1


def span(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    """A file's bytes from `begin` to `end`, in pieces. Raises FactsError: it ends before."""
    while begin < end:
        piece = os.pread(descriptor, min(end - begin, _RUN_BYTES), begin)
        if not piece:
            raise FactsError("a file became shorter while it was read")
        yield piece
        begin += len(piece)


def map_in(folder: Path, layout: Layout) -> list[int]:
    """Target ids by draft id: `d2t` holds the differences. Source: vLLM 0.32 `llama_eagle3.py`, `draft_id_to_target_id`."""
    name = next((name for name in layout.places if name == "d2t" or name.endswith(".d2t")), None)
    if name is None or layout.places[name].tensor.dtype != "I64":
        raise FactsError("it has no d2t map of 64-bit numbers to take rows by")
    place = layout.places[name]
    with (folder / WEIGHTS).open("rb") as file:
        raw = b"".join(span(file.fileno(), place.begin, place.end))
    return [i + offset for i, (offset,) in enumerate(struct.iter_unpack("<q", raw))]


def find_tensor(folder: Path, name: str) -> tuple[Path, Place] | None:
    """The file of a target's folder that holds a tensor, and where. Raises WeightsError."""
    try:
        for path in sorted(folder.glob("*.safetensors")):
            if place := read_layout(path).places.get(name):
                return path, place
    except (OSError, FactsError) as error:
        hint = "Is the target's download complete?"
        raise WeightsError(f"the target's weights cannot be read: {error}", hint=hint) from error
    return None


def _why_not(folder: Path, rows: StoredRows) -> WeightsError:
    """Why the whole file has another hash: the stored half changed, or the target's."""
    if file_digest(folder / WEIGHTS) != rows.stored_sha256:
        return _damaged(folder, f"{WEIGHTS} is not the file that was stored")
    return _other_target(folder, "it has such rows with other values")


def _other_target(folder: Path, reason: str) -> WeightsError:
    message = (
        f"the head {folder.name} is made whole with its target's rows, and this is another target: {reason}"
    )
    hint = "`outrider pair show` names the target it was trained for; with another, the whole head is needed, not the stored."
    return WeightsError(message, hint=hint)


def _damaged(folder: Path, reason: str) -> WeightsError:
    hint = "Install Outrider again." if folder.parent == BUILT_IN_HEADS else "Copy the folder again."
    return WeightsError(f"the stored head {folder.name} is damaged: {reason}", hint=hint)

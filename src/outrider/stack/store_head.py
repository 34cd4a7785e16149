"""A trained head -> its stored form: what is the target's rows bit for bit is left out, see `head_rows`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from outrider.core.errors import WeightsError
from outrider.stack.digests import file_digest
from outrider.stack.facts import FactsError
from outrider.stack.head_rows import (
    MANIFEST,
    ROWS,
    WEIGHTS,
    Copied,
    StoredRows,
    copy_rows,
    map_in,
    span,
    whole_digest,
)
from outrider.stack.manifest import read_manifest
from outrider.stack.safetensors_header import Layout, Place, read_layout

# A head's tensor -> the target's tensors that it may be a copy of; the first that is there and agrees.
COPIES = {
    "lm_head.weight": ("lm_head.weight", "embed_tokens.weight"),
    "embed_tokens.weight": ("embed_tokens.weight",),
}


def store_head(folder: Path, target_folder: Path, out: Path) -> StoredRows:
    """Write `folder`'s head to `out` in stored form: without the tensors that are the target's rows bit for bit.

    `out` must not exist yet; it is there whole or not at all.

    Raises:
        WeightsError: a tensor that could be a copy is none (it would be lost), there is none, `pair.json` is of another head, or
            a file cannot be read or written.
        StackError: `pair.json` is no manifest.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        layout = read_layout(folder / WEIGHTS)
        copied = _find_copies(folder, layout, target_folder)
        if out.exists():
            raise WeightsError(f"{out} is there already", hint="Name another folder.")
        whole = file_digest(folder / WEIGHTS)
        _refuse_another_manifest(folder, whole)
        beside.mkdir(parents=True)
        stored = _write_without(folder / WEIGHTS, layout, {one.name for one in copied}, beside / WEIGHTS)
        rows = StoredRows(header=layout.header.decode(), sha256=whole, stored_sha256=stored, copied=copied)
        (beside / ROWS).write_text(
            json.dumps(rows.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8"
        )
        for name in ("config.json", MANIFEST):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, beside / name)
        if whole_digest(beside, lambda names: target_folder) != whole:
            raise WeightsError(f"{folder.name} cannot be made whole again from what was stored")
        beside.rename(out)
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        hint = "Check that both folders are complete, and that there is space."
        raise WeightsError(f"{folder.name} cannot be stored: {reason}", hint=hint) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return rows


def _refuse_another_manifest(folder: Path, whole: str) -> None:
    """What is stored must be the head that `pair.json` beside it speaks of."""
    path = folder / MANIFEST
    if path.is_file() and read_manifest(path).draft.content.get(WEIGHTS) != whole:
        hint = "Write it again for this head: outrider pair write."
        raise WeightsError(f"{folder.name}/{MANIFEST} is of another head", hint=hint)


def _find_copies(folder: Path, layout: Layout, target_folder: Path) -> tuple[Copied, ...]:
    """What of a head is a copy of its target. Raises WeightsError for a tensor that only looks like one."""
    target = [
        (name, path, place)
        for path in sorted(target_folder.glob("*.safetensors"))
        for name, place in read_layout(path).places.items()
    ]
    copied = []
    for name, place in layout.places.items():
        suffixes = next((COPIES[kind] for kind in COPIES if _is(name, kind)), ())
        reasons = []
        for there, path, theirs in (one for suffix in suffixes for one in target if _is(one[0], suffix)):
            reason, rows = _difference(folder, layout, place, path, theirs)
            if not reason:
                copied.append(Copied(name=name, target_tensor=there, rows=rows))
                break
            reasons.append(f"{there}: {reason}")
        else:
            if suffixes:
                hint = "Only a frozen copy can be left out; keep this head in its whole form."
                said = "; ".join(reasons) or "the target has no such tensor"
                raise WeightsError(
                    f"{folder.name}: {name} is no copy of the target's rows ({said})", hint=hint
                )
    if not copied:
        message = f"{folder.name} holds no copy of the target's rows: there is nothing to leave out"
        raise WeightsError(message, hint="Keep it as it is.")
    return tuple(copied)


def _is(name: str, kind: str) -> bool:
    return name == kind or name.endswith(f".{kind}")


def _difference(
    folder: Path, layout: Layout, place: Place, target_file: Path, theirs: Place
) -> tuple[str, Literal["d2t", "all"]]:
    """Why a head's tensor is not the target's rows ('' if it is), and which rows they would be."""
    which: Literal["d2t", "all"] = "all" if place.tensor.shape == theirs.tensor.shape else "d2t"
    try:
        ids = map_in(folder, layout) if which == "d2t" else None
        rows = _digest(copy_rows(target_file, theirs, place.tensor, ids))
    except FactsError as error:
        return str(error), which
    with (folder / WEIGHTS).open("rb") as own:
        wanted = _digest(span(own.fileno(), place.begin, place.end))
    return "" if wanted == rows else "other values", which


def _digest(pieces: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _write_without(source: Path, layout: Layout, left_out: Collection[str], out: Path) -> str:
    """A file of the same tensors less some, the rest in its order; its SHA-256."""
    metadata = json.loads(layout.header).get("__metadata__")
    entries: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    kept = [(name, place) for name, place in layout.places.items() if name not in left_out]
    offset = 0
    for name, place in kept:
        size = place.end - place.begin
        shape, dtype = list(place.tensor.shape), place.tensor.dtype
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the format's own writers align the data so
    digest = hashlib.sha256()
    with source.open("rb") as whole, out.open("wb") as file:
        data = (span(whole.fileno(), place.begin, place.end) for _, place in kept)
        for piece in chain([struct.pack("<Q", len(header)) + header], *data):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()

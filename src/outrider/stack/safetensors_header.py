"""The header of a safetensors file: names, types and shapes of its tensors, without the tensors.

Source: the format's own description, huggingface/safetensors README: 8 bytes little-endian length N, N bytes of JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from outrider.stack.facts import FactsError, TensorFacts, tensor_facts

MAX_HEADER_BYTES = 100 * 1000 * 1000
MAX_SMALL_TENSOR_BYTES = 16 * 1024 * 1024
MAX_SHARDS = 512
MAX_TENSORS = 200_000  # DeepSeek-V3 has about 90,000
MAX_RANK = 8
MAX_ELEMENTS = 2**48
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor in its file: what it is, and from which byte of the file (counted from its start) to which."""

    tensor: TensorFacts
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One file: `header` as it stands there, tensors by name in the order of their bytes, the whole file's size."""

    header: bytes
    places: Mapping[str, Place]
    size_bytes: int


def header_length(prefix: bytes, name: str) -> int:
    """Length of the JSON after the first 8 bytes. Raises FactsError when it cannot be one."""
    if len(prefix) < _LENGTH.size:
        raise FactsError(f"{name}: shorter than a safetensors header")
    length = int(_LENGTH.unpack(prefix[: _LENGTH.size])[0])
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise FactsError(f"{name}: says its header has {length:,} bytes; not a safetensors file")
    return length


def parse_header(raw: bytes, name: str) -> dict[str, TensorFacts]:
    """Tensors of one header's JSON. Raises FactsError."""
    tensors = {}
    for key, entry in _entries(raw, name).items():
        shape = entry.get("shape")
        if not isinstance(shape, list) or len(shape) > MAX_RANK:
            raise FactsError(f"{name}: tensor {key!r} has no shape")
        if not all(type(n) is int and 0 <= n < 2**40 for n in shape) or prod(shape) > MAX_ELEMENTS:
            raise FactsError(f"{name}: tensor {key!r} has an impossible shape")
        tensors[key] = tensor_facts(str(entry.get("dtype")), tuple(shape))
    return tensors


def parse_layout(raw: bytes, name: str) -> Layout:
    """Where one header's tensors lie: one after the other without gaps, as the format has it. Raises FactsError."""
    tensors, entries = parse_header(raw, name), _entries(raw, name)
    end = begins = _LENGTH.size + len(raw)
    places = {}
    for key, (begin, stop) in sorted(
        ((key, _offsets(entries[key], name)) for key in tensors), key=lambda found: found[1]
    ):
        if begins + begin != end or stop - begin != tensors[key].size_bytes:
            raise FactsError(f"{name}: tensor {key!r} does not lie where its shape says")
        places[key] = Place(tensors[key], begins + begin, begins + stop)
        end = begins + stop
    return Layout(raw, places, end)


def read_layout(path: Path) -> Layout:
    """Where the tensors of a whole file lie. Raises FactsError: also when the file is longer or shorter; OSError."""
    with path.open("rb") as file:
        layout = parse_layout(_header(file, path.name), path.name)
        size = file.seek(0, 2)
    if size != layout.size_bytes:
        raise FactsError(
            f"{path.name} has {size:,} bytes, its header says {layout.size_bytes:,}; is the download complete?"
        )
    return layout


def read_tensors(folder: Path) -> dict[str, TensorFacts]:
    """Tensors of every safetensors file in `folder`; empty where there is none. Raises FactsError, OSError."""
    files = sorted(folder.glob("*.safetensors"))
    if len(files) > MAX_SHARDS:
        raise FactsError(f"{folder.name}: more than {MAX_SHARDS} safetensors files")
    tensors: dict[str, TensorFacts] = {}
    for path in files:
        if not path.is_file():  # a pipe of that name would be read forever
            raise FactsError(f"{path.name}: not a file")
        with path.open("rb") as file:
            tensors.update(parse_header(_header(file, path.name), path.name))
    return tensors


def is_all_zero(folder: Path, tensor: str) -> bool | None:
    """Whether a small tensor holds nothing but zeros; None where there is no such tensor. Raises FactsError, OSError."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            raw = _header(file, path.name)
            entries = _entries(raw, path.name).items()
            entry = next((e for key, e in entries if key == tensor or key.endswith(f".{tensor}")), None)
            if entry is None:
                continue
            begin, end = _offsets(entry, path.name)
            if end - begin > MAX_SMALL_TENSOR_BYTES:
                raise FactsError(f"{path.name}: a map of token ids cannot be that large")
            file.seek(_LENGTH.size + len(raw) + begin)
            content = file.read(end - begin)
            if len(content) != end - begin:
                raise FactsError(f"{path.name}: {tensor} is cut short; is the download complete?")
            return not any(content)
    return None


def _header(file: BinaryIO, name: str) -> bytes:
    length = header_length(file.read(_LENGTH.size), name)
    raw = file.read(length)
    if len(raw) != length:
        raise FactsError(f"{name}: its header is cut short; is the download complete?")
    return raw


def _entries(raw: bytes, name: str) -> Mapping[str, Mapping[str, object]]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FactsError(f"{name}: its header is not JSON") from error
    if not isinstance(header, dict):
        raise FactsError(f"{name}: its header is not a JSON object")
    if len(header) > MAX_TENSORS:
        raise FactsError(f"{name}: more than {MAX_TENSORS:,} tensors")
    entries = {key: entry for key, entry in header.items() if key != "__metadata__"}
    if not all(isinstance(entry, dict) for entry in entries.values()):
        raise FactsError(f"{name}: its header does not describe tensors")
    return entries


def _offsets(entry: Mapping[str, object], name: str) -> tuple[int, int]:
    offsets = entry.get("data_offsets")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)):
        raise FactsError(f"{name}: a tensor without offsets")
    begin, end = int(offsets[0]), int(offsets[1])
    if not 0 <= begin <= end:
        raise FactsError(f"{name}: a tensor without offsets")
    return begin, end

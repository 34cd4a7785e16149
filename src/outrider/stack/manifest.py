"""The pair manifest, `pair.json`: which target and draft belong together, by content.

A pair is named by a hash over the content ids of both (hub commit and the file hashes the hub lists, or the files' own
SHA-256), so that the same name means the same bytes wherever they are stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.core.errors import Problem, StackError

FORMAT = "outrider-pair/v1"
MAX_BYTES = 1024 * 1024
ID_LENGTH = 16
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PairPart:
    """One side: its name for people, and content ids (file name or ``commit`` -> hash)."""

    model: str
    content: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairManifest:
    """What `pair.json` holds."""

    target: PairPart
    draft: PairPart
    method: str

    @property
    def id(self) -> str:
        """The pair's name."""
        return pair_id(self.target.content, self.draft.content)


def pair_id(target: Mapping[str, str], draft: Mapping[str, str]) -> str:
    """Name of a pair: 16 hex digits of SHA-256 over both sides' content ids; the order of files does not matter."""
    canonical = json.dumps([sorted(target.items()), sorted(draft.items())], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:ID_LENGTH]


def write_manifest(manifest: PairManifest, path: Path) -> None:
    """Write `pair.json`, whole or not at all."""
    parts = {name: {"model": p.model, "content": dict(p.content)} for name, p in _parts(manifest)}
    value = {"format": FORMAT, "id": manifest.id, "method": manifest.method, **parts}
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_manifest(path: Path) -> PairManifest:
    """Read `pair.json`. Raises StackError: unreadable, of another format, or its id is not that of its content."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        value = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be read: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _refused(path, f"is not of format {FORMAT}")
    manifest = PairManifest(
        _part(value, "target", path), _part(value, "draft", path), str(value.get("method", ""))
    )
    if value.get("id") != manifest.id:
        raise _refused(path, f"says id {value.get('id')}, its content is {manifest.id}")
    return manifest


def verify_folder(part: PairPart, folder: Path) -> list[Problem]:
    """Every file of `part` that `folder` lacks or holds with other bytes. Content ids that are no SHA-256 are not compared."""
    problems = []
    for name, expected in sorted(part.content.items()):
        if len(expected) != 64:
            continue
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            problems.append(Problem(f"{name} is missing", rule="pair-content", file=str(folder)))
        elif (found := file_digest(path)) != expected:
            message = f"{name} is not the file of this pair: SHA-256 {found[:12]}…, not {expected[:12]}…"
            problems.append(Problem(message, rule="pair-content", file=str(folder)))
    return problems


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _parts(manifest: PairManifest) -> tuple[tuple[str, PairPart], ...]:
    return (("target", manifest.target), ("draft", manifest.draft))


def _part(value: Mapping[str, object], name: str, path: Path) -> PairPart:
    part = value.get(name)
    content = part.get("content") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(content, dict):
        raise _refused(path, f"has no {name}")
    if not all(isinstance(one, str) for one in content.values()):
        raise _refused(path, f"has a {name} with content ids that are no text")
    return PairPart(str(part.get("model", "")), content)


def _refused(path: Path, message: str) -> StackError:
    problem = Problem(message, rule="pair-manifest", file=str(path))
    return StackError(
        f"{path} is no pair manifest.", (problem,), hint="`outrider train` writes it beside the head."
    )

"""SHA-256 of files, kept in the user's cache: hashing a folder of 140 GB takes minutes, and nothing in it has changed since.

A digest is kept for (path, size, modified, changed): the last is the inode's own time, which no copying program can set back.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from outrider.core.files import placed
from outrider.stack.weights_cache import Progress, cache_folder

SETTLED_NS = 2 * 10**9
"""A file that changed this recently may change again within one tick of its clock: its digest is not kept."""
_CHUNK = 4 * 2**20
_TELL_EVERY_S = 2.0


@dataclass
class Digester:
    """Hashes files and tells how far it is. `cache` None: the user's; `fresh`: nothing that was kept is believed."""

    say: Progress = lambda message: None
    cache: Path | None = None
    fresh: bool = False
    clock: Callable[[], float] = time.monotonic
    _total: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)
    _began: float = field(default=0.0, init=False)
    _told: float = field(default=0.0, init=False)

    def of_files(self, files: Sequence[Path]) -> list[str]:
        """SHA-256 of each, hex. Raises OSError."""
        self._total, self._done = sum(file.stat().st_size for file in files), 0
        self._began = self._told = self.clock()
        return [self._of(file) for file in files]

    def _of(self, file: Path) -> str:
        real = Path(os.path.realpath(file))
        before = real.stat()
        stamp = [str(real), before.st_size, before.st_mtime_ns, before.st_ctime_ns]
        kept = self._place(real)
        if not self.fresh and (known := _kept(kept, stamp)):
            self._done += before.st_size
            return known
        digest = self._read(real)
        after = real.stat()
        same = [after.st_size, after.st_mtime_ns, after.st_ctime_ns] == stamp[1:]
        if same and time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns) > SETTLED_NS:
            with suppress(OSError), placed(kept) as beside:  # a cache that cannot be written costs time only
                beside.write_text(json.dumps({"file": stamp, "sha256": digest}), encoding="utf-8")
        return digest

    def _read(self, file: Path) -> str:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                self._done += len(chunk)
                self._tell(file.name)
        return digest.hexdigest()

    def _tell(self, name: str) -> None:
        now = self.clock()
        if now - self._told < _TELL_EVERY_S:
            return
        self._told = now
        left = (self._total - self._done) * (now - self._began) / max(self._done, 1)
        share = self._done / max(self._total, 1)
        self.say(
            f"hashing {name}: {self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB ({share:.0%}), {left:.0f} s left"
        )

    def _place(self, real: Path) -> Path:
        name = hashlib.sha256(str(real).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return (self.cache or cache_folder()) / "digests" / f"{name}.json"


def _kept(place: Path, stamp: list[object]) -> str | None:
    try:
        value = json.loads(place.read_text(encoding="utf-8"))
        known = value["sha256"] if value["file"] == stamp else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if isinstance(known, str) and len(known) == 64 else None


def file_digest(path: Path) -> str:
    """SHA-256 of one file's bytes as they are now, hex. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def blob_id(path: Path) -> str:
    """Git's id of a file's content, as hubs list it for small files: SHA-1, 40 hex digits. Raises OSError."""
    raw = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()

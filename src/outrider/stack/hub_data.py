"""One file of a hub's data set, in the user's cache: ``CACHE/prompts/ORG--NAME/COMMIT/FILE``, fetched once a commit.

What a revision meant when the hub was last asked is kept beside the commits, so that a set read once can be read offline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from outrider.core.errors import MeasurementError
from outrider.stack.facts import HubError
from outrider.stack.hub import download_data_file, is_offline, list_data_files
from outrider.stack.weights_cache import cache_folder

MAX_BYTES = 2**30
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN = re.compile(r"(?!\.)[\w. -]+(/(?!\.)[\w. -]+)*")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A fetched file; `stale` says that no hub was asked, or none answered, and the cache was taken."""

    path: Path
    file: str
    commit: str
    stale: bool = False


def fetch_data_file(dataset: str, revision: str | None, choose: Callable[[list[str]], str]) -> DataFile:
    """The file that `choose` picks of the data set's names, at `revision` (default: its main branch today).

    Raises:
        HubError: the hub does not give it, and the cache does not have it.
        MeasurementError: the cache cannot be written; and whatever `choose` raises.
    """
    folder = cache_folder() / "prompts" / dataset.replace("/", "--")
    reference = folder / "revisions" / quote(revision or "main", safe="")
    if is_offline():
        hint = "Run once with the hub, or give a path."
        return _cached(
            folder, reference, revision, choose, HubError(f"{dataset} is not in the cache (offline)", hint)
        )
    try:
        listing = list_data_files(dataset, revision)
    except HubError as error:
        if error.unreachable:
            return _cached(folder, reference, revision, choose, error)
        raise
    if not _COMMIT.fullmatch(listing.commit):
        raise HubError(f"{dataset}: the hub names no commit", "Use another mirror.")
    name = choose([file for file in listing.files if _PLAIN.fullmatch(file)])
    place = folder / listing.commit / name
    try:
        if not place.is_file():
            download_data_file(listing, name, place, MAX_BYTES)
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(listing.commit, encoding="ascii")
    except OSError as error:
        hint = "Free some space, or set OUTRIDER_CACHE to another folder."
        raise MeasurementError(f"{dataset} cannot be cached: {error.strerror}", hint=hint) from error
    return DataFile(place, name, listing.commit)


def _cached(
    folder: Path, reference: Path, revision: str | None, choose: Callable[[list[str]], str], instead: HubError
) -> DataFile:
    """The file as it was fetched before. Raises `instead` where it was not."""
    commit = revision if revision and _COMMIT.fullmatch(revision) else ""
    if not commit and reference.is_file():
        commit = reference.read_text(encoding="ascii", errors="replace").strip()
    place = folder / commit
    if not _COMMIT.fullmatch(commit) or not place.is_dir():
        raise instead
    names = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
    name = choose([file for file in names if not Path(file).name.startswith(".")])
    return DataFile(place / name, name, commit, stale=True)

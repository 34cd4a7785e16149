"""Content ids: what a model reference stands for, by the hashes of its bytes, whatever the reference is called.

A package or GGUF file is its own digest; a folder the SHA-256 of every file that decides what the model says (weights, config,
tokenizer, chat template); a hub id its commit and the hashes that the hub lists. A head in stored form has those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import WeightsError
from outrider.stack.digests import Digester, blob_id
from outrider.stack.facts import FactsError, HubError
from outrider.stack.head_rows import WEIGHTS, is_stored, read_rows
from outrider.stack.manifest import PairPart
from outrider.stack.read_facts import TOKENIZER_FILES
from outrider.stack.weights import kind_of, local_folder

WHEEL, GGUF, COMMIT = "wheel", "gguf", "commit"
IDENTITY_FILES = frozenset(
    {
        "config.json",
        *TOKENIZER_FILES,
        *("tokenizer_config.json", "merges.txt", "added_tokens.json", "special_tokens_map.json"),
        *("chat_template.jinja", "chat_template.json", "model.safetensors.index.json"),
    }
)
BLOB_DIGITS = 40  # of git's id, which hubs list for small files


@dataclass(frozen=True, slots=True)
class Reference:
    """One model as a stack names it."""

    model: str
    revision: str | None = None
    sha256: str | None = None

    @property
    def spoken(self) -> str:
        """Its name for people: of a folder or file the last part alone, which tells nothing of the machine."""
        kind = kind_of(self.model)
        return Path(self.model).expanduser().absolute().name if kind in ("folder", "gguf") else self.model


def is_identity(name: str) -> bool:
    """Whether the file of that name in a model's folder decides what the model says."""
    return name in IDENTITY_FILES or (name.endswith(".safetensors") and "/" not in name)


def part_of(
    reference: Reference,
    digester: Digester,
    like: Mapping[str, str] | None = None,
    *,
    offline: bool = False,
) -> PairPart:
    """One side of a pair as its bytes are now. `like`: content ids to compare with, so that files get ids of the same kind;
    `offline`: no hub is asked.

    Raises:
        WeightsError: it is not there, damaged, or the hub does not tell and has it not in its local cache.
    """
    kind = kind_of(reference.model)
    if kind == "package":
        return PairPart(reference.spoken, {WHEEL: reference.sha256} if reference.sha256 else {})
    try:
        if kind == "hub":
            return PairPart(reference.spoken, _of_hub(reference, digester, like or {}, offline))
        if kind == "gguf":
            path = Path(reference.model).expanduser()
            (digest,) = digester.of_files([path])
            return PairPart(reference.spoken, {GGUF: digest}, {path.name: path.stat().st_size})
        folder = local_folder(reference.model)
        return _of_folder(reference.spoken, folder, digester, like or {})
    except (OSError, FactsError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        hint = error.hint if isinstance(error, HubError) else "Is it complete, and may this user read it?"
        raise WeightsError(f"{reference.spoken} cannot be hashed: {reason}", hint=hint) from error


def folder_sizes(folder: Path) -> dict[str, int]:
    """Sizes in bytes of a folder's identity files; of a stored head those of the whole. Raises OSError, FactsError."""
    sizes = {path.name: path.stat().st_size for path in _identity_files(folder)}
    return {**sizes, WEIGHTS: read_rows(folder).layout.size_bytes} if is_stored(folder) else sizes


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """In words, what of `found` is not what a pair's content ids say. Ids of another kind (SHA-256, git's) are left out, but
    something must be comparable, and if there are weights, weights."""
    names = [name for name in (WHEEL, GGUF) if name in expected or name in found]
    names += sorted(name for name in {*expected, *found} if is_identity(name))
    reasons, compared = [], set()
    for name in names:
        there, here = expected.get(name), found.get(name)
        if there and here and len(there) == len(here):
            compared.add(name)
            if there != here:
                reasons.append(f"{name} is another: {here[:12]}…, in the pair {there[:12]}…")
        elif name not in (WHEEL, GGUF) and (there is None or here is None):
            reasons.append(f"{name} is missing" if here is None else f"{name} was not there")
    weights = [name for name in expected if name.endswith(".safetensors") and is_identity(name)]
    if not compared or (weights and not compared.intersection(weights) and not reasons):
        kinds = f"the pair names it by {_kind(expected)}, here it is {_kind(found)}"
        return [f"{kinds}: their hashes cannot be compared"]
    return reasons


def _kind(content: Mapping[str, str]) -> str:
    words = {WHEEL: "a package's digest", GGUF: "a GGUF file's digest", COMMIT: "a hub's commit and hashes"}
    return next((words[key] for key in words if key in content), "files' hashes" if content else "nothing")


def _of_folder(name: str, folder: Path, digester: Digester, like: Mapping[str, str]) -> PairPart:
    files = _identity_files(folder)
    if not any(path.suffix == ".safetensors" for path in files):
        raise FactsError(f"{folder.name} has no *.safetensors")
    hashed = [path for path in files if len(like.get(path.name, "")) != BLOB_DIGITS]
    content = dict(zip((path.name for path in hashed), digester.of_files(hashed), strict=True))
    content |= {path.name: blob_id(path) for path in files if path not in hashed}
    if is_stored(folder):
        rows = read_rows(folder)
        if content[WEIGHTS] != rows.stored_sha256:
            raise FactsError(f"{WEIGHTS} is not the file that was stored")
        content[WEIGHTS] = rows.sha256
    return PairPart(name, content, folder_sizes(folder))


def _identity_files(folder: Path) -> list[Path]:
    """Raises FactsError: one that is no file (a folder, a pipe, a link to nothing), so that nobody can say what it holds."""
    paths = sorted(path for path in folder.iterdir() if is_identity(path.name))
    if other := next((path for path in paths if not path.is_file()), None):
        raise FactsError(f"{other.name} is not a file")
    return paths


def _of_hub(
    reference: Reference, digester: Digester, like: Mapping[str, str], offline: bool
) -> dict[str, str]:
    """As the hub lists it; where none is asked or answers, as the snapshot in the local hub cache is."""
    # httpx and huggingface_hub take 0.3 s to import
    from outrider.stack.hub import is_offline, list_files, snapshot_folder  # noqa: PLC0415

    try:
        if not (offline or is_offline()):
            listing = list_files(reference.model, reference.revision)
            return hub_content(listing.commit, listing.files)
        unreachable = HubError(f"{reference.model} is not in the local hub cache, and no hub is asked")
    except HubError as error:
        if not error.unreachable:
            raise
        unreachable = error
    folder = snapshot_folder(reference.model, reference.revision)
    if folder is None:
        raise unreachable
    part = _of_folder(reference.model, folder, digester, like)
    return {COMMIT: folder.name, **part.content}


def hub_content(commit: str, files: Mapping[str, str]) -> dict[str, str]:
    """Content ids of a hub model: its commit and all hashes that the hub lists."""
    return {COMMIT: commit, **files}


def identities(content: Mapping[str, str]) -> Iterator[str]:
    """The content ids that decide, for people: ``commit 12ab…`` first."""
    for name in (COMMIT, WHEEL, GGUF, *sorted(filter(is_identity, content))):
        if value := content.get(name):
            yield f"{name} {value[:12]}…"

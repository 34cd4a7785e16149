"""The only reader of a remote hub: configs, safetensors headers, commits and file hashes, data sets' files. Never weights.

Environment, as everywhere in the Hugging Face tools: HF_ENDPOINT (a mirror), HF_TOKEN, HF_HUB_OFFLINE, HF_HOME (what is there
offline). Files come by HTTP with a byte limit each, headers by range: a mirror that ignores ranges is left after the limit.

Source: huggingface_hub 0.34 to 2.4: `HfApi.model_info`, `hf_hub_url`, `try_to_load_from_cache`, `utils.build_hf_headers`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import httpx
from huggingface_hub import HfApi, constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported at run time, in 0.34 and 2.4

from outrider.stack.facts import HubError, ModelFacts, TensorFacts, facts_from_config
from outrider.stack.read_facts import (
    MAX_CONFIG_BYTES,
    MAX_TOKENIZER_BYTES,
    TOKENIZER_FILES,
    parse_json,
    parse_tokenizer,
    read_folder,
)
from outrider.stack.safetensors_header import MAX_HEADER_BYTES, MAX_SHARDS, header_length, parse_header

MAX_INDEX_BYTES = 32 * 1024 * 1024
MAX_FILES = 5_000
FIRST_BYTES = 128 * 1024
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Listing:
    """One commit of a model: `files` maps each name to its content id, SHA-256 for large files, else git's blob id."""

    model: str
    commit: str
    files: Mapping[str, str]


def is_offline() -> bool:
    """Whether the environment forbids the network (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)."""
    truthy = {"1", "ON", "YES", "TRUE"}
    return any(
        os.environ.get(name, "").upper() in truthy for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def read_hub(model: str, revision: str | None = None, *, with_tokenizer: bool = False) -> ModelFacts:
    """Facts of a hub model at `revision` (default: its main branch today).

    Raises:
        HubError: unknown, gated, unreachable.
        FactsError: its files do not say what they must.
    """
    listing = list_files(model, revision)
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S, headers=build_hf_headers()) as client:
        fetch = _Fetch(client, listing)
        facts = facts_from_config(parse_json(fetch.file("config.json", MAX_CONFIG_BYTES), model), model)
        facts = replace(facts, tensors=fetch.tensors(), commit=listing.commit, files=listing.files)
        name = next((name for name in TOKENIZER_FILES if name in listing.files), None)
        if with_tokenizer and name:
            facts = replace(facts, tokenizer=parse_tokenizer(fetch.file(name, MAX_TOKENIZER_BYTES), name))
    return facts


def read_config(model: str, revision: str | None = None) -> Mapping[str, object]:
    """`config.json` of a hub model as written; from the local cache if no hub is asked. Raises HubError, FactsError."""
    if is_offline():
        found = try_to_load_from_cache(model, "config.json", revision=revision)
        if not isinstance(found, str):
            hint = "Name a folder or a config.json file instead, or unset HF_HUB_OFFLINE."
            raise HubError(f"{model} is not in the local hub cache, and no hub is asked", hint)
        return parse_json(Path(found).read_bytes(), model)
    listing = list_files(model, revision)
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S, headers=build_hf_headers()) as client:
        return parse_json(_Fetch(client, listing).file("config.json", MAX_CONFIG_BYTES), model)


def list_files(model: str, revision: str | None = None) -> Listing:
    """Commit and content ids of a hub model's files. Raises HubError."""
    return _list(model, revision, data=False)


def list_data_files(dataset: str, revision: str | None = None) -> Listing:
    """Commit and content ids of a hub data set's files. Raises HubError."""
    return _list(dataset, revision, data=True)


def _list(model: str, revision: str | None, *, data: bool) -> Listing:
    api = HfApi(endpoint=endpoint())
    ask = api.dataset_info if data else api.model_info
    try:
        info = ask(model, revision=revision, timeout=TIMEOUT_S, files_metadata=True)
    except RevisionNotFoundError:
        raise HubError(f"{model} has no revision {revision} on {endpoint()}", "Check `revision`.") from None
    except GatedRepoError:
        hint = f"Accept the {'data set' if data else 'model'}'s terms on its page, and set HF_TOKEN."
        raise HubError(f"{model} is gated on {endpoint()}", hint) from None
    except RepositoryNotFoundError:
        hint = "Check the name; for a private or gated model set HF_TOKEN."
        raise HubError(f"{model} is not on {endpoint()}, or this token may not see it", hint) from None
    except HfHubHTTPError as error:
        raise _http_error(model, getattr(error.response, "status_code", 0)) from error
    except Exception as error:  # the transport below huggingface_hub changed twice: requests, httpx, httpx2
        raise _unreachable(error) from error
    siblings = info.siblings or []
    if len(siblings) > MAX_FILES:
        raise HubError(
            f"{model} lists more than {MAX_FILES} files: not a {'set of prompts' if data else 'model'}"
        )
    files = {one.rfilename: (one.lfs.sha256 if one.lfs else one.blob_id) or "" for one in siblings}
    return Listing(model, info.sha or "", files)


def download_data_file(listing: Listing, name: str, place: Path, limit: int) -> None:
    """Write the data set's file `name` to `place`, whole and with the content the hub lists, or not at all.

    Raises:
        HubError: unknown, refused, unreachable, larger than `limit` bytes, or not what the hub lists.
        OSError: `place` cannot be written.
    """
    url = hf_hub_url(listing.model, name, repo_type="dataset", revision=listing.commit, endpoint=endpoint())
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            _stream(listing.model, url, file, limit)
            if not _is_content(file, listing.files.get(name, "")):
                raise HubError(
                    f"{listing.model}: {name} is not what {endpoint()} lists",
                    "Try again, or use another mirror.",
                )
        os.replace(temporary, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _stream(model: str, url: str, file: BinaryIO, limit: int) -> None:
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    try:
        with (
            httpx.Client(follow_redirects=True, timeout=TIMEOUT_S, headers=headers) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                raise _http_error(model, response.status_code)
            for chunk in response.iter_bytes():
                if file.tell() + len(chunk) > limit:
                    raise HubError(
                        f"{model}: its file is larger than {limit:,} bytes", "Give a part of it by path."
                    )
                file.write(chunk)
    except httpx.HTTPError as error:
        raise _unreachable(error) from error


def _is_content(file: BinaryIO, listed: str) -> bool:
    """Whether the file is what the listing says: SHA-256 (64 digits) or git's blob id (40); no id says nothing."""
    size = file.tell()
    file.seek(0)
    if len(listed) not in (40, 64):
        return True
    sha256 = len(listed) == 64
    digest = hashlib.sha256() if sha256 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for chunk in iter(lambda: file.read(2**20), b""):
        digest.update(chunk)
    return digest.hexdigest() == listed


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Small files and ranges of one commit."""

    client: httpx.Client
    listing: Listing

    def file(self, name: str, limit: int) -> bytes:
        if name not in self.listing.files:
            raise HubError(f"{self.listing.model} has no {name}", "Is it a model in Hugging Face's form?")
        return self._get(name, limit, {})

    def tensors(self) -> dict[str, TensorFacts]:
        """Tensors of all shards; empty where there are no safetensors."""
        tensors: dict[str, TensorFacts] = {}
        shards = self._shards()
        with ThreadPoolExecutor(max_workers=8) as pool:
            for found in pool.map(self._header, shards):
                tensors.update(found)
        return tensors

    def _shards(self) -> list[str]:
        index = "model.safetensors.index.json"
        if index in self.listing.files:
            weights = parse_json(self.file(index, MAX_INDEX_BYTES), index).get("weight_map")
            shards = sorted(set(map(str, weights.values()))) if isinstance(weights, dict) else []
        else:
            shards = [
                name for name in self.listing.files if name.endswith(".safetensors") and "/" not in name
            ]
        if len(shards) > MAX_SHARDS:
            raise HubError(f"{self.listing.model} has more than {MAX_SHARDS} safetensors files")
        missing = [name for name in shards if name not in self.listing.files]
        if missing:
            raise HubError(f"{self.listing.model} lacks {missing[0]}, which its index names")
        return shards

    def _header(self, name: str) -> dict[str, TensorFacts]:
        first = self._range(name, 0, FIRST_BYTES)
        length = header_length(first, name)
        if len(first) < 8 + length:
            first += self._range(name, len(first), 8 + length - len(first))
        return parse_header(first[8 : 8 + length], name)

    def _range(self, name: str, begin: int, length: int) -> bytes:
        if length > MAX_HEADER_BYTES:
            raise HubError(f"{name}: its header is too large")
        return self._get(name, length, {"Range": f"bytes={begin}-{begin + length - 1}"})

    def _get(self, name: str, limit: int, headers: Mapping[str, str]) -> bytes:
        """At most `limit` bytes. With a Range the answer must be a part: a whole file would be weights."""
        url = hf_hub_url(self.listing.model, name, revision=self.listing.commit, endpoint=endpoint())
        content = bytearray()
        try:
            # identity: a compressed answer would make the byte limit meaningless
            with self.client.stream(
                "GET", url, headers={**headers, "Accept-Encoding": "identity"}
            ) as response:
                if response.status_code not in (200, 206):
                    raise _http_error(self.listing.model, response.status_code)
                if headers and response.status_code != 206 and "bytes=0-" not in headers["Range"]:
                    raise HubError(f"{endpoint()} does not give parts of files", "Use a mirror that does.")
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > limit:
                        if headers:
                            return bytes(content[:limit])
                        raise HubError(f"{self.listing.model}: {name} is larger than {limit:,} bytes")
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        return bytes(content)


def read_cached(model: str, revision: str | None = None) -> ModelFacts | None:
    """Facts of a snapshot in the local hub cache, which needs no network; None if it is not there. Raises FactsError."""
    folder = snapshot_folder(model, revision)
    if folder is None:
        return None
    commit = folder.name if folder.parent.name == "snapshots" else None
    return replace(read_folder(folder), source=model, commit=commit)


def snapshot_folder(model: str, revision: str | None = None) -> Path | None:
    """Where the local hub cache has a model's files, named by its commit; None if they are not there."""
    found = try_to_load_from_cache(model, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def endpoint() -> str:
    """The hub that is asked: HF_ENDPOINT, else Hugging Face's."""
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def _http_error(model: str, status: int) -> HubError:
    if status in (401, 403):
        return HubError(
            f"{endpoint()} refuses {model} ({status})", "Set HF_TOKEN to a token that may read it."
        )
    if status == 404:
        return HubError(f"{model} is not on {endpoint()} (404)", "Check the name and the revision.")
    if status == 429:
        return HubError(
            f"{endpoint()} asks to slow down (429)", "Wait a minute, or set HF_TOKEN.", unreachable=True
        )
    return HubError(f"{endpoint()} answered {status} for {model}", "Try again later.", unreachable=True)


def _unreachable(error: Exception) -> HubError:
    hint = "Check the network and HF_ENDPOINT."
    return HubError(f"{endpoint()} cannot be reached: {error}", hint, unreachable=True)

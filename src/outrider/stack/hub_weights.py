"""The one file of a hub model's weights that holds a tensor, in the hub's own local cache, where the engine looks too.

Only a head in stored form needs it: its rows are the target's, and the target itself is fetched by the engine.

Source: huggingface_hub 2.4: `hf_hub_download`; `weight_map` of `model.safetensors.index.json`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from outrider.core.errors import WeightsError
from outrider.stack.facts import FactsError
from outrider.stack.head_rows import WEIGHTS, TargetWeights
from outrider.stack.read_facts import parse_json
from outrider.stack.weights_cache import Progress

LOADED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(?!\.)[\w.-]+\.safetensors")


def hub_weights(model: str, revision: str | None, progress: Progress) -> TargetWeights:
    """Fetches the files that hold the tensors asked for, at `revision`, and gives their folder."""

    def fetch(names: Collection[str]) -> Path:
        from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415  # 0.3 s to import

        try:
            try:
                index = _download(model, INDEX, revision)
                folder, shards = index.parent, _shards(index, names)
            except EntryNotFoundError:
                folder, shards = Path(), {WEIGHTS}
            for shard in sorted(shards):
                progress(f"{shard} of {model}: its rows make the head whole")
                folder = _download(model, shard, revision).parent
        except Exception as error:  # whatever the transport below huggingface_hub raises: it changed twice
            raise _failed(model, error) from error
        return folder

    return fetch


def whole_model(model: str, revision: str | None, folder: Path) -> None:
    """All files of a hub model that an engine loads, into `folder`: no pickled weights, no code. Raises WeightsError."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    from outrider.stack.hub import endpoint, is_offline  # noqa: PLC0415

    try:
        snapshot_download(
            model,
            revision=revision,
            local_dir=folder,
            local_files_only=is_offline(),
            endpoint=endpoint(),
            allow_patterns=LOADED,
        )
    except Exception as error:  # as above
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "Is the hub reachable from here, and may HF_TOKEN read the model?"
        raise WeightsError(f"{model} cannot be fetched: {reason}", hint=hint) from error


def _download(model: str, name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415

    from outrider.stack.hub import endpoint, is_offline  # noqa: PLC0415

    found = hf_hub_download(
        model, name, revision=revision, local_files_only=is_offline(), endpoint=endpoint()
    )
    return Path(str(found))


def _shards(index: Path, names: Collection[str]) -> set[str]:
    """The files that hold these tensors; a tensor that no file holds is the reader's to miss."""
    weights = parse_json(index.read_bytes(), index.name).get("weight_map")
    found = {str(weights[name]) for name in names if name in weights} if isinstance(weights, dict) else set()
    if not all(map(_SHARD.fullmatch, found)):
        raise FactsError(f"{index.name} names files that are no safetensors")
    return found


def _failed(model: str, error: Exception) -> WeightsError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    hint = "Start the engine once without the head, or fetch the target with `hf download`; then it is in the local cache."
    return WeightsError(f"the rows of {model} cannot be had: {reason}", hint=hint)

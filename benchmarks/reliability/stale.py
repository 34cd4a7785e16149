"""A head that went stale: it stands away from where its target is, and its manifest goes on promising what was once measured.

In service it is the target that moves away, by an upgrade. Here the head does (Gaussian noise on its matrices, so many times
their own root mean square): what is accepted falls as it would, and the target and its speed stay as they are in every phase.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from outrider.core.errors import MeasurementError
from outrider.stack.digests import file_digest
from outrider.stack.head_rows import WEIGHTS
from outrider.stack.manifest import read_manifest, write_manifest
from outrider.stack.safetensors_header import read_layout

MANIFEST = "pair.json"
CONFIG = "config.json"


def disturbed(raw: bytes, share: float, seed: int) -> bytes:
    """bfloat16 values with noise of `share` times their root mean square added."""
    values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    noise = np.random.default_rng(seed).standard_normal(values.size, np.float32)
    changed = values + np.float32(share * np.sqrt(np.mean(values**2))) * noise
    bits = changed.view(np.uint32)
    return (
        ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    )  # to nearest, ties to even


def make_stale(head: Path, out: Path, share: float, seed: int = 0) -> None:
    """Write the stale head of `head` into `out`. Raises MeasurementError where the head is not one of `outrider train`'s."""
    out.mkdir(parents=True, exist_ok=True)
    weights, manifest = out / WEIGHTS, read_manifest(head / MANIFEST)
    shutil.copy(head / CONFIG, out / CONFIG)
    shutil.copy(head / WEIGHTS, weights)
    matrices = [
        place
        for place in read_layout(weights).places.values()
        if place.tensor.dtype == "BF16" and len(place.tensor.shape) == 2
    ]
    if not matrices:
        raise MeasurementError(
            f"{head.name} has no matrices in bfloat16: it is no head of `outrider train`",
            hint="Make one: make train-demo, then --head train-demo.",
        )
    with weights.open("r+b") as file:
        for number, place in enumerate(matrices):
            file.seek(place.begin)
            changed = disturbed(file.read(place.end - place.begin), share, seed + number)
            file.seek(place.begin)
            file.write(changed)
    content = {**manifest.draft.content, WEIGHTS: file_digest(weights)}
    write_manifest(replace(manifest, draft=replace(manifest.draft, content=content)), out / MANIFEST)

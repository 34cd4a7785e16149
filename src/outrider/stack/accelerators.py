"""How much memory an accelerator, or a slice of one, gives to a process.

The product name says decimal GB of chips; what a process gets is less or more: an "H200 141GB" reports 139.80 GiB = 150.1 GB to
CUDA, an "80GB" H100 79.18 GiB = 85.0 GB. The numbers here are what CUDA reports as total (``cudaMemGetInfo``, which is what
vLLM multiplies by its memory fraction), the smallest seen, and for MIG what ``nvidia-smi mig -lgip`` lists.

Source: totals in public out-of-memory reports of PyTorch; MIG: NVIDIA's MIG user guide, and for the H200
NVIDIA/mig-parted#120. The whole-card H200 slice is assumed: no listing was at hand.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator or MIG slice. `memory_gib`: total as CUDA reports it. `is_cpu`: the machine's own memory."""

    name: str
    label: str
    memory_gib: float
    is_cpu: bool = False

    @property
    def memory_bytes(self) -> int:
        """Total in bytes."""
        return int(self.memory_gib * GIB)


def _card(name: str, label: str, whole_gib: float, slices: Mapping[str, float]) -> list[Accelerator]:
    mig = [
        Accelerator(f"{name.partition('-')[0]}-mig-{s}", f"{label} MIG {s}", gib) for s, gib in slices.items()
    ]
    return [Accelerator(name, label, whole_gib), *mig]


_TABLE = [
    *_card(
        "h200",
        "H200 141GB",
        139.80,
        {"1g.18gb": 16.00, "1g.35gb": 32.25, "2g.35gb": 32.25, "3g.71gb": 69.50, "4g.71gb": 69.50, "7g.141gb": 139.50},
    ),
    *_card(
        "h100",
        "H100 80GB",
        79.10,
        {"1g.10gb": 9.75, "1g.20gb": 19.62, "2g.20gb": 19.62, "3g.40gb": 39.50, "4g.40gb": 39.50, "7g.80gb": 79.00},
    ),
    *_card(
        "a100-80gb",
        "A100 80GB",
        79.14,
        {"1g.10gb": 9.50, "1g.20gb": 19.50, "2g.20gb": 19.50, "3g.40gb": 39.25, "4g.40gb": 39.25, "7g.80gb": 78.50},
    ),
    *_card(
        "a100-40gb",
        "A100 40GB",
        39.38,
        {"1g.5gb": 4.75, "2g.10gb": 9.62, "3g.20gb": 19.50, "4g.20gb": 19.50, "7g.40gb": 39.25},
    ),
    Accelerator("l40s", "L40S 48GB", 44.34),
]  # fmt: skip

ACCELERATORS: Mapping[str, Accelerator] = {one.name: one for one in _TABLE}
WHOLE_CARDS = tuple(one for one in _TABLE if "-mig-" not in one.name)
_OTHER_NAMES = {"a100": "a100-80gb", "h100-80gb": "h100", "h200-141gb": "h200", "l40s-48gb": "l40s"}


def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator of this name; ``nvidia-h200``, ``H200`` and ``h200-1g.18gb`` are understood too."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("nvidia-")
    key = _OTHER_NAMES.get(key, key)
    if key in ACCELERATORS:
        return ACCELERATORS[key]
    card, _, part = key.partition("-")
    return ACCELERATORS.get(f"{card}-mig-{part.removeprefix('mig-')}")


def nearest_accelerator(name: str) -> str:
    """The known name most like `name`; '' if none is."""
    return next(iter(difflib.get_close_matches(name.lower(), ACCELERATORS, n=1, cutoff=0.5)), "")


def unknown_accelerator(name: str) -> tuple[str, str] | None:
    """(message, hint) where no accelerator has this name; None where one has."""
    if find_accelerator(name):
        return None
    near = nearest_accelerator(name)
    hint = f"Did you mean `{near}`?" if near else f"Known: {', '.join(ACCELERATORS)}."
    return f"{name!r} is not a known accelerator", hint


def this_machine(memory_bytes: int) -> Accelerator:
    """The machine's own memory, for the CPU engine."""
    return Accelerator("cpu", "this machine", memory_bytes / GIB, is_cpu=True)

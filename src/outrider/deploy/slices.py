"""MIG slices as the chart's template knows them: the resource of NVIDIA's device plugin -> memory in GiB."""

from __future__ import annotations

from outrider.stack.accelerators import ACCELERATORS


def slices() -> dict[str, float]:
    """``1g.10gb`` -> GiB. A resource names no card; where cards differ, the least."""
    found: dict[str, float] = {}
    for accelerator in ACCELERATORS.values():
        _, mig, name = accelerator.name.partition("-mig-")
        if mig:
            found[name] = min(found.get(name, accelerator.memory_gib), accelerator.memory_gib)
    return dict(sorted(found.items()))


def slices_file() -> str:
    """The chart's files/mig.yaml."""
    rows = "".join(f"  {name}: {gib:g}\n" for name, gib in slices().items())
    return (
        f"# GiB of each MIG slice. Made from outrider/stack/accelerators.py by `make docs`.\nslices:\n{rows}"
    )

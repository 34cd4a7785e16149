"""Import and arm the plugin where only a stock vLLM is: ``python plugin/tests/stock_import.py``.

Run by CI with the Python of an environment that has vLLM and outrider-vllm. Outrider itself is hidden if it is there.
Exits non-zero, with the reason, if the plugin needs anything else, does anything unasked, or arms with a fault.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hide(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "outrider" or name.startswith("outrider."):
            raise ModuleNotFoundError(f"hidden: {name}", name=name)
        return None


def check() -> str:
    """What was found; raises AssertionError."""
    sys.meta_path.insert(0, _Hide())
    points = importlib.metadata.entry_points(group="vllm.general_plugins", name="outrider")
    assert len(points) == 1, f"expected one entry point, found {len(points)}"
    (point,) = points
    register = point.load()
    os.environ.pop("OUTRIDER_VLLM", None)
    register()
    touched = {"vllm", "torch"} & set(sys.modules)
    assert not touched, f"not inert without OUTRIDER_VLLM: imported {touched}"

    os.environ["OUTRIDER_VLLM"] = "1"
    register()
    register()  # vLLM may load plugins more than once
    from vllm import __version__  # noqa: PLC0415  (only now: before, nothing may be imported)
    from vllm.platforms import current_platform  # noqa: PLC0415

    from outrider_vllm import cpu, faults, switch  # noqa: PLC0415

    assert not faults.counts, f"faults while arming: {dict(faults.counts)}"
    due = current_platform.is_cpu() and cpu.has_faults(__version__)
    hook = type(current_platform).register_triton_kernel_overrides if due else None
    assert getattr(hook, "outrider", False) == due, "armed where it must not be, or not where it must"
    if current_platform.is_cpu() and cpu.minor(__version__) in switch.SEEN_IN:
        import outrider_vllm.scheduler  # noqa: PLC0415
        import outrider_vllm.worker  # noqa: PLC0415, F401
    return f"outrider-vllm beside vLLM {__version__}: {'armed' if due else 'nothing to mend'}"


if __name__ == "__main__":
    print(check())

"""What Outrider runs inside vLLM. Standard library, torch and vLLM only; inert unless OUTRIDER_VLLM is set.

`drafts.py` names the drafts a request can be stamped with; `cpu.py` mends two faults of vLLM's CPU build.
"""

from __future__ import annotations

import os

ENVIRONMENT = "OUTRIDER_VLLM"


def register() -> None:
    """Entry point `vllm.general_plugins`: called in every vLLM process, maybe more than once. Never raises.

    Source: vLLM 0.32 `plugins/__init__.py`, `load_general_plugins`.
    """
    if os.environ.get(ENVIRONMENT) != "1":
        return
    from outrider_vllm import cpu, faults  # noqa: PLC0415  (nothing of vLLM is touched unless asked)

    faults.guarded("register", cpu.arm)

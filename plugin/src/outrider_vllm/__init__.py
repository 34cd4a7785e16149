"""What Outrider runs inside vLLM. Only what a vLLM has anyway is imported; inert unless OUTRIDER_VLLM is set.

`drafts.py` names the drafts a request can be stamped with; `cpu.py` mends two faults of vLLM's CPU build. With
OUTRIDER_VLLM_SWITCH and the two flags that go with it: `worker.py` and `switch.py` give each request the draft of its stamp,
`scheduler.py` and `counters.py` count by draft.
"""

from __future__ import annotations

import os

ENVIRONMENT = "OUTRIDER_VLLM"
SWITCH = "OUTRIDER_VLLM_SWITCH"  # the shortest and longest n-gram: "2,4"


def register() -> None:
    """Entry point `vllm.general_plugins`: called in every vLLM process, maybe more than once. Never raises.

    Source: vLLM 0.32 `plugins/__init__.py`, `load_general_plugins`.
    """
    if os.environ.get(ENVIRONMENT) != "1":
        return
    from outrider_vllm import counters, cpu, faults  # noqa: PLC0415  (nothing of vLLM is touched unless asked)

    faults.guarded("register", cpu.arm)
    if os.environ.get(SWITCH):
        faults.guarded("counters", counters.show)

"""`--worker-cls outrider_vllm.worker.SwitchWorker`: the CPU build's worker, whose drafter answers by request."""

from __future__ import annotations

import os
from typing import Any

from vllm import __version__
from vllm.v1.worker.cpu_worker import CPUWorker

from outrider_vllm import SWITCH, switch
from outrider_vllm.faults import guarded


class SwitchWorker(CPUWorker):  # type: ignore[misc]  # vLLM is not there when types are checked
    """Loads, profiles and warms up as the plain worker does; only then the drafter is changed."""

    def compile_or_warm_up_model(self) -> Any:
        """The last step before requests come."""
        done = super().compile_or_warm_up_model()
        guarded("switch", lambda: switch.log_outcome(self._put_in))
        return done

    def _put_in(self) -> frozenset[str]:
        shortest, longest = (int(n) for n in os.environ.get(SWITCH, "2,4").split(","))
        return switch.put_in(self.model_runner, __version__, (shortest, longest))

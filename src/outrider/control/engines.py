"""The engines of one stack behind one front: one, or two that share a device, the second without a draft.

New requests go to the one that runs the draft in force; each is watched and restarted alone, and while one is down the other
serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outrider.control.governing import Governing
from outrider.control.probe import ProbeResult
from outrider.control.scraping import EngineMetrics
from outrider.control.supervisor import Job, Supervisor
from outrider.control.upstreams import Busy, UpstreamSet


class Engines:
    """Keeps them running. `say` prints a line for people, `on_log` gets their own lines."""

    def __init__(
        self,
        jobs: Sequence[Job],
        upstreams: UpstreamSet,
        metrics: EngineMetrics,
        say: Callable[[str], None],
        on_log: Callable[[str], None] = lambda line: None,
        governing: Governing | None = None,
    ) -> None:
        device, starting = Busy(), asyncio.Lock()
        self._name = len(jobs) > 1
        self._supervisors = [
            Supervisor(
                job,
                upstreams,
                metrics,
                say=lambda line, job=job: say(self._named(job, line)),  # type: ignore[misc]  # bound here
                on_log=on_log,
                governing=governing,
                device=device,
                starting=starting,
            )
            for job in jobs
        ]

    @property
    def state(self) -> ProbeResult:
        """What /readyz tells: ready once all of them were; from then on while one is."""
        missing = next((one for one in self._supervisors if not one.first_ready.is_set()), None)
        if missing:
            return ProbeResult(False, self._named(missing.job, missing.state.reason))
        ready = any(one.state.ready for one in self._supervisors)
        return ProbeResult(
            ready, "; ".join(self._named(one.job, one.state.reason) for one in self._supervisors)
        )

    def start(self) -> asyncio.Task[None]:
        """Run until `stop`. The task raises EngineStartFailed if one of them was never ready: a mistake to mend, not to retry."""
        return asyncio.create_task(self._run())

    async def _run(self) -> None:
        await asyncio.gather(*(one.start() for one in self._supervisors))

    async def first_ready(self) -> None:
        """Until each of them was ready once."""
        for one in self._supervisors:
            await one.first_ready.wait()

    async def stop(self) -> None:
        """Stop watching, then the engines, all at once."""
        await asyncio.gather(*(one.stop() for one in self._supervisors))

    def _named(self, job: Job, line: str) -> str:
        return f"{job.name}: {line}" if self._name else line

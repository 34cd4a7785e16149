"""The run: front, Prometheus, autoscaler, replicas and clients together, on this machine's clock.

One process owns the front, the replicas' supervisors and the clients; engines and Prometheus are processes of their own.
Compressed are the times of the control loop alone (the policy's windows and periods, the look, the scrape, the front's
p90 window, a pod's start): by one factor, so that they keep their proportions. Not the engines' times for a request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from outrider.control.governing import Speculation
from outrider.control.upstreams import DraftInForce, UpstreamSet
from outrider.core.errors import EngineUnreachable, MeasurementError
from outrider.core.provenance import provenance
from outrider.deploy.scale_demo.document import ChangeInfo, Check, PhaseInfo, Sample, ScaleRun
from outrider.deploy.scale_demo.prometheus import Prometheus, labels_of, running_prometheus
from outrider.deploy.scale_demo.replicas import MODEL, Replicas, engine_flags, engine_job
from outrider.deploy.scale_demo.traffic import Clients
from outrider.deploy.scale_model import Phase, arrivals
from outrider.deploy.scaling import Autoscaler, External, Policy, Reading
from outrider.deploy.scaling_policy import compressed, quantity
from outrider.deploy.service_times import ServiceTimes
from outrider.engines.sim.adapter import SimEngine
from outrider.front.admission import WINDOW_S
from outrider.front.journal import Journal
from outrider.front.server import start
from outrider.front.settings import FrontSettings
from outrider.telemetry.metrics import Metrics

SCRAPE_S = 15.0  # declared; a PodMonitor's usual interval
FIRST_REPLICA_S = 60.0
LOSE_NOTHING_S = 300.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What to run. `policy` and `start_s` as declared: they are divided by `compression`."""

    phases: tuple[Phase, ...]
    times: ServiceTimes
    draft: str
    draft_length: int
    concurrency: int
    output_tokens: int
    policy: Policy
    start_s: float = 120.0
    compression: float = 10.0
    seed: int = 0

    @property
    def length_s(self) -> float:
        """Seconds from the first request to the end of the last phase."""
        return sum(phase.length_s for phase in self.phases)


async def run(wish: Wish, folder: Path, say: Callable[[str], None]) -> ScaleRun:
    """Run it; logs go to `folder`, which exists. Raises EngineError: something did not start or died."""
    queries = queries_of(wish.policy)
    metrics, upstreams = Metrics(), UpstreamSet()
    with (folder / "front.log").open("w", encoding="utf-8") as log:
        journal = Journal(metrics, log.write, form="json")
        settings = FrontSettings(models=(MODEL,), queue_wait_window_s=WINDOW_S / wish.compression)
        front = await start(
            settings,
            upstreams,
            SimEngine(),
            Speculation(DraftInForce(wish.draft)),
            journal,
            lambda: (True, ""),
        )
        flags = engine_flags(wish.times, wish.draft_length)
        job = engine_job(flags, wish.draft, wish.concurrency, folder / "engine.log")
        replicas = Replicas(upstreams, metrics, job, wish.start_s / wish.compression)
        clients = Clients(f"http://127.0.0.1:{front.port}", wish.output_tokens)
        try:
            labels = {name: text for query in queries.values() for name, text in labels_of(query).items()}
            scrape_s = max(SCRAPE_S / wish.compression, 0.5)
            async with running_prometheus(folder, front.port, scrape_s, labels) as prometheus:
                return await _course(wish, _Stage(prometheus, replicas, clients, queries), say)
        finally:
            await clients.close()
            await replicas.stop()
            await front.drain(5.0)
            await front.close()


@dataclass(frozen=True, slots=True)
class _Stage:
    prometheus: Prometheus
    replicas: Replicas
    clients: Clients
    queries: Mapping[str, str]


async def _course(wish: Wish, stage: _Stage, say: Callable[[str], None]) -> ScaleRun:
    tally, policy = stage.clients.tally, compressed(wish.policy, wish.compression)
    target_ms = next((one.target for one in policy.metrics if quantity(one) == "queue_wait_ms"), 500.0)
    await _first_replicas(stage, policy.min_replicas)
    moments = list(arrivals(wish.phases, wish.seed))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    source = provenance(["outrider", *sys.argv[1:]], created)
    shorter = f"every window of the loop is 1/{wish.compression:g} of the declared one"
    say(f"{len(moments):,} requests in {wish.length_s:.0f} s; {shorter}")
    began_s = time.monotonic()
    sending = asyncio.create_task(stage.clients.send_at(moments, began_s))
    try:
        samples, changes = await _looks(policy, stage, began_s, wish.length_s, say)
        await sending
        async with asyncio.timeout(LOSE_NOTHING_S):
            await stage.clients.finish()
    except TimeoutError as error:
        late = f"requests were still under way {LOSE_NOTHING_S:.0f} s after the last was sent"
        raise MeasurementError(late, hint="See the engines' logs.") from error
    finally:
        sending.cancel()
    phases = tuple(PhaseInfo(rate_s=one.rate_s, length_s=one.length_s) for one in wish.phases)
    return ScaleRun(
        created=created,
        provenance=source,
        prometheus=await stage.prometheus.version(),
        times=wish.times,
        concurrency=wish.concurrency,
        output_tokens=wish.output_tokens,
        start_s=wish.start_s / wish.compression,
        compression=wish.compression,
        phases=phases,
        policy=policy,
        declared_policy=wish.policy,
        target_ms=target_ms,
        samples=tuple(samples),
        changes=tuple(changes),
        sent=tally.sent,
        whole=tally.whole,
        lost=dict(tally.lost),
        longest_gap_s=max(later.at_s - sooner.at_s for sooner, later in pairwise(samples)),
        checks=checks(samples, phases, target_ms, tally.sent, tally.whole),
    )


async def _looks(
    policy: Policy, stage: _Stage, began_s: float, length_s: float, say: Callable[[str], None]
) -> tuple[list[Sample], list[ChangeInfo]]:
    """The control loop: ask Prometheus, decide, scale. Raises EngineError: a replica ended that nobody told to end."""
    scaler, replicas = Autoscaler(policy), stage.replicas
    samples: list[Sample] = []
    changes: list[ChangeInfo] = []
    due_s = 0.0
    while due_s <= length_s:
        await asyncio.sleep(max(began_s + due_s - time.monotonic(), 0.0))
        if replicas.failure:
            raise replicas.failure
        readings = await _readings(stage)
        now_s, current = time.monotonic() - began_s, replicas.declared
        decision = scaler.look(now_s, current, replicas.ready, readings)
        samples.append(_sample(now_s, stage.clients.tally.sent, readings, policy, replicas))
        if decision.replicas != current:
            replicas.scale(decision.replicas)
            changes.append(
                ChangeInfo(at_s=now_s, before=current, after=decision.replicas, reason=decision.reason)
            )
            say(f"{now_s:5.0f} s  {current} → {decision.replicas} replicas: {decision.reason}")
        # A machine that stood still does not make up for looks that it missed: no controller does.
        due_s = max(due_s, now_s // policy.sync_s * policy.sync_s) + policy.sync_s
        if len(samples) % 10 == 0:
            say(_status(samples[-1]))
    return samples, changes


async def _first_replicas(stage: _Stage, count: int) -> None:
    """The replicas that are there before the load, and a first scrape of the front."""
    stage.replicas.scale(count, start_s=0.0)
    until_s = time.monotonic() + FIRST_REPLICA_S
    while stage.replicas.ready < count or None in (await _readings(stage)).values():
        if stage.replicas.failure:
            raise stage.replicas.failure
        if time.monotonic() > until_s:
            raise EngineUnreachable(f"no replica was ready and scraped within {FIRST_REPLICA_S:.0f} s")
        await asyncio.sleep(0.2)


def queries_of(policy: Policy) -> Mapping[str, str]:
    """What to ask Prometheus, by the metrics' names. Raises MeasurementError for a policy of other metrics."""
    found = {one.name: one.query for one in policy.metrics if isinstance(one, External) and one.query}
    if len(found) != len(policy.metrics) or policy.min_replicas < 1:
        raise MeasurementError(
            "the run needs a ScaledObject with Prometheus triggers and at least one replica",
            hint="Leave the policy out: the declared one is of that kind.",
        )
    return found


async def _readings(stage: _Stage) -> Mapping[str, Reading]:
    values = await asyncio.gather(*(stage.prometheus.value(query) for query in stage.queries.values()))
    return dict(zip(stage.queries, values, strict=True))


def _sample(
    at_s: float, sent: int, readings: Mapping[str, Reading], policy: Policy, replicas: Replicas
) -> Sample:
    values = {quantity(metric): readings[metric.name] for metric in policy.metrics}
    wait, running = values.get("queue_wait_ms"), values.get("running")
    return Sample(
        at_s=at_s,
        sent=sent,
        queue_wait_ms=wait if isinstance(wait, float) else None,
        running=running if isinstance(running, float) else None,
        declared=replicas.declared,
        ready=replicas.ready,
        draining=replicas.draining,
    )


def _status(sample: Sample) -> str:
    wait = "unknown" if sample.queue_wait_ms is None else f"{sample.queue_wait_ms:,.0f} ms"
    there = f"{sample.ready} of {sample.declared} replicas ready"
    return f"{sample.at_s:5.0f} s  queue wait {wait}, {there}, {sample.sent} requests sent"


def checks(
    samples: Sequence[Sample], phases: Sequence[PhaseInfo], target_ms: float, sent: int, whole: int
) -> tuple[Check, ...]:
    """What a run with a base load, a higher one and the base load again is to show."""
    begin, end = phases[0].length_s, phases[0].length_s + phases[1].length_s
    before = [one for one in samples if one.at_s <= begin]
    during = [one for one in samples if begin < one.at_s <= end]
    after = [one for one in samples if one.at_s > end]
    waits = [one.queue_wait_ms for one in during]
    worst = max((wait for wait in waits if wait is not None), default=0.0)
    back = None
    for one in during:
        over = one.queue_wait_ms is None or one.queue_wait_ms > target_ms
        back = None if over else one.at_s if back is None else back
    most = max((one.ready for one in during), default=0)
    fewest, lowest = min(one.ready for one in before), after[-1].declared if after else 0
    return (
        Check(
            name="the higher load makes requests wait",
            good=worst > target_ms,
            found=f"queue wait up to {worst:,.0f} ms, target {target_ms:g} ms",
        ),
        Check(name="replicas rise", good=most > fewest, found=f"{fewest} → {most} ready"),
        Check(
            name="the queue wait returns under target and stays there",
            good=back is not None,
            found="not within the phase" if back is None else f"{back - begin:.0f} s after the load rose",
        ),
        Check(
            name="replicas fall again", good=0 < lowest < most, found=f"{most} → {lowest} declared at the end"
        ),
        Check(
            name="no request is lost", good=sent == whole > 0, found=f"{whole:,} of {sent:,} answered whole"
        ),
    )

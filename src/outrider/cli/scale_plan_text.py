"""A scale plan for people: what went in, the course of it, decisions, what it came to; within a number of columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.cli.replay_text import clock
from outrider.deploy.scale_model import Phase, Site
from outrider.deploy.scale_plan import Moment, Outcome, settled_s
from outrider.deploy.scaling import External, Limit, Policy, Rules

ROWS, DECISIONS = 24, 16
_STEPS_S = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked and what came of it; `by_cpu` is the same load with pods scaled on CPU: `cpu` is (idle, full, target)."""

    load: Sequence[Phase]
    site: Site
    policy: Policy
    gpus: int
    found: Outcome
    by_cpu: Outcome
    cpu: tuple[float, float, float]


def as_text(whole: Plan, width: int) -> str:
    """Lines of at most `width` columns."""
    blocks = [
        list(_inputs(whole)),
        list(_course(whole.found, width)),
        list(_decisions(whole.found)),
        list(_summary(whole)),
        list(_cpu(whole)),
    ]
    lines = [line for block in blocks for line in [*block, ""]][:-1]
    return "\n".join(folded for line in lines for folded in _folded(line, width))


def _inputs(whole: Plan) -> Iterator[str]:
    site, times = whole.site, whole.site.times
    yield "MODELLED, all of it: no cluster ran. What is left out: docs/scale.md"
    yield f"times: {times.run}, {times.arm}, measured on {times.hardware} ({'; '.join(times.notes)})"
    if not times.gpu:
        yield "       these are a CPU's times: they say nothing of how many GPUs you need"
    most = times.requests_per_s(site.concurrency, site.output_tokens)
    yield (
        f"a replica: {site.concurrency} requests at once, {site.output_tokens} tokens each: {most:,.1f} requests/s at most; "
        f"ready after {_time(site.start_s)}; {whole.gpus} GPU{'s' if whole.gpus > 1 else ''}"
    )
    yield f"queue: {site.queue.max_queue:,} requests, {_time(site.queue.queue_timeout_s)} at most"
    policy = whole.policy
    targets = ", ".join(
        f"{one.name} {one.target:g}{' a replica' if not isinstance(one, External) or one.per_replica else ''}"
        for one in policy.metrics
    )
    yield f"policy: {policy.min_replicas} to {policy.max_replicas} replicas; targets {targets}"
    yield f"  up: {_rules(policy.up)}; down: {_rules(policy.down)}"


def _rules(rules: Rules) -> str:
    if rules.select == "Disabled":
        return "never"
    limits = [f"{one.value}{_unit(one)} in {_time(one.period_s)}" for one in rules.limits]
    joined = " or ".join(limits) + (f" ({rules.select.lower()} of them)" if len(limits) > 1 else "")
    return f"{joined}, proposed for {_time(rules.window_s)}" if rules.window_s else joined


def _unit(limit: Limit) -> str:
    return " %" if limit.kind == "Percent" else " pod" if limit.value == 1 else " pods"


def _course(found: Outcome, width: int) -> Iterator[str]:
    length = found.moments[-1].at_s
    step = next((one for one in _STEPS_S if length / one <= ROWS), math.ceil(length / ROWS))
    wide = width >= 100
    head = f"{'time':>8} {'load/s':>8} {'declared':>9} {'ready':>6} {'running':>8} {'waiting':>8} {'queue wait':>11}"
    yield head + ("  " + "ready replicas, … starting" if wide else "")
    for start in range(0, len(found.moments), int(step)):
        rows = found.moments[start : start + int(step)]
        yield _row(rows, found.target_ms) + ("  " + _bar(rows[-1]) if wide else "")
    yield f"  queue wait: the longest within {_time(step)}, ! where over {found.target_ms:g} ms; the rest at its end"


def _row(rows: Sequence[Moment], target_ms: float) -> str:
    last, wait = rows[-1], max(row.queue_wait_ms for row in rows)
    mark = "!" if wait > target_ms else " "
    return (
        f"{clock(rows[0].at_s):>8} {last.load_s:>8.1f} {last.declared:>9} {last.ready:>6} {last.running:>8,} {last.waiting:>8,} "
        f"{_ms(wait):>10}{mark}"
    )


def _bar(moment: Moment) -> str:
    return ("█" * moment.ready + "…" * max(moment.declared - moment.ready, 0))[:24]


def _decisions(found: Outcome) -> Iterator[str]:
    yield "decisions:" if found.changes else "decisions: none"
    for change in found.changes[:DECISIONS]:
        yield f"{clock(change.at_s):>8}  {change.before} → {change.after}  {change.reason}"
    if len(found.changes) > DECISIONS:
        yield f"{'…':>8}  {len(found.changes) - DECISIONS} more: --json has them"


def _summary(whole: Plan) -> Iterator[str]:
    yield "modelled:"
    yield from (f"  {line}" for line in _told(whole.found, whole.gpus))
    begin = 0.0
    for number, phase in enumerate(whole.load):
        end = begin + phase.length_s
        if number and phase.rate_s > whole.load[number - 1].rate_s:
            back = settled_s(whole.found, begin, end)
            after = "not within it" if back is None else f"{_time(back - begin)} after it began"
            yield (
                f"  load {whole.load[number - 1].rate_s:.1f} → {phase.rate_s:.1f} requests/s: queue wait under "
                f"{whole.found.target_ms:g} ms for good {after}"
            )
        begin = end
    if whole.found.lost:
        yield (
            "  → lost requests: keep more replicas (min_replicas), add them faster (up_pods, up_period_s), or hold more in the "
            "queue (--max-queue, --queue-timeout)"
        )


def _told(found: Outcome, gpus: int) -> Iterator[str]:
    yield (
        f"{found.arrived:,} requests: {found.served:,} served, {found.queue_full:,} refused (queue full), "
        f"{found.queue_timeout:,} timed out, {found.under_way:,} under way at the end"
    )
    p50, p90, p99 = _ms(found.wait_p50_ms), _ms(found.wait_p90_ms), _ms(found.wait_p99_ms)
    yield (
        f"queue wait of those dispatched: p50 {p50}, p90 {p90}, p99 {p99}; the gauge at most {_ms(found.worst_ms)}, over target "
        f"for {_time(found.over_target_s)}"
    )
    yield f"replicas at most {found.most_replicas}; {found.replica_hours * gpus:,.2f} GPU-hours"


def _cpu(whole: Plan) -> Iterator[str]:
    idle, full, target = whole.cpu
    yield (
        f"the same load, scaled on CPU: modelled, and assumed that an engine's pod uses {idle:.0%} of the CPU it requests "
        f"without work and {full:.0%} with all places taken (--cpu); target {target:.0%}, same limits:"
    )
    yield from (f"  {line}" for line in _told(whole.by_cpu, whole.gpus))


def _ms(value: float) -> str:
    return f"{value / 1e3:,.1f} s" if value >= 10_000 else f"{value:,.0f} ms"


def _time(seconds: float) -> str:
    whole, minutes = round(seconds), round(seconds) // 60
    return (
        f"{minutes} min"
        if minutes and whole == 60 * minutes
        else f"{minutes}:{whole % 60:02} min"
        if minutes
        else f"{whole} s"
    )


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="    ") if len(line) > width else [line]

"""Silences: times in which every stream under way stood still, and which of them did not come again.

An engine that compiles a kernel at its first use, or loads something, answers nobody meanwhile. That is in the cell's throughput
and tails and is nothing the next hour of serving will show. A silence that comes again, in another trial or later in the same
one, belongs to the engine (long prompts being read, memory being moved) and is rightly part of its figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from outrider.bench.document import Silence
from outrider.measure.records import RequestRecord

LONGER = 10.0  # times the median step gap
LEAST_S = 0.1  # shorter is the machine's scheduling
AGAIN = 0.5  # a silence this many times as long is the same kind
KEPT = 20  # of the first wave and of what follows, the longest each


def silences(records: Sequence[RequestRecord], concurrency: int, began_s: float) -> list[Silence]:
    """The longest silences of one trial, in order of time: no token of any request for ten times the median step gap (and
    0.1 s at least), though one or more streams had begun and went on afterwards. Failed requests count as under way.

    `concurrency` requests are the first wave; moments are given from `began_s` on (seconds, the records' clock).
    """
    gaps = [gap for record in records for gap in record.step_gaps_s()]
    if not gaps:
        return []
    least_s = max(LEAST_S, LONGER * median(gaps))
    moments = sorted(event.at_s for record in records for event in record.events)
    first = sorted(records, key=lambda record: record.started_s)[: max(1, concurrency)]
    first_wave_s = max(record.ended_s for record in first)
    found = [
        Silence(
            at_s=before - began_s,
            length_ms=(after - before) * 1e3,
            first_wave=before < first_wave_s,
            prefill=any(_waits(record, before, after) for record in records),
        )
        for before, after in pairwise(moments)
        if after - before >= least_s and any(_goes_on(record, before, after) for record in records)
    ]
    longest = sorted(found, key=lambda one: -one.length_ms)
    kept = [one for wave in (True, False) for one in [s for s in longest if s.first_wave is wave][:KEPT]]
    return sorted(kept, key=lambda one: one.at_s)


def _goes_on(record: RequestRecord, before_s: float, after_s: float) -> bool:
    """Whether its stream had begun before and went on afterwards."""
    return bool(record.events) and record.events[0].at_s <= before_s and record.events[-1].at_s >= after_s


def _waits(record: RequestRecord, before_s: float, after_s: float) -> bool:
    """Whether it waited for its first token between the two moments."""
    first_s = record.events[0].at_s if record.events else record.ended_s
    return record.started_s < after_s and first_s > before_s


def once(trials: Mapping[int, Sequence[Silence]]) -> dict[int, list[Silence]]:
    """By trial: silences that did not come again, half as long or longer.

    With several trials: not in any other trial. And, also where it is in each trial or there is but one: in the first wave, no
    prompt being read, and not again after the first wave of any trial.
    """
    found = {}
    for trial, mine in trials.items():
        elsewhere = [one for other, theirs in trials.items() if other != trial for one in theirs]
        later = [one for theirs in trials.values() for one in theirs if not one.first_wave]
        found[trial] = [
            one
            for one in mine
            if (len(trials) > 1 and not _again(one, elsewhere))
            or (one.first_wave and not one.prefill and not _again(one, later))
        ]
    return found


def _again(one: Silence, others: Sequence[Silence]) -> bool:
    return any(other.length_ms >= AGAIN * one.length_ms for other in others)

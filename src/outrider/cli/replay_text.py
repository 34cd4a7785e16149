"""A replay for people: a timeline, then shares, alerts and what it was worth, within a given number of columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from outrider.governor.modelled import Against
from outrider.governor.replay import Event, Heard, Replay
from outrider.governor.settings import PolicySettings

_TIME, _DRAFT = 9, 11


def as_text(found: Replay, settings: PolicySettings, width: int, limit: int | None) -> str:
    """Lines of at most `width` columns; of the timeline the last `limit` entries."""
    blocks = [
        [_policy(settings)],
        list(_timeline(found.events, width, limit)),
        list(_summary(found)),
        list(_heard(found.heard)),
        list(_against(found.against)),
        [f"left out: {one}" for one in found.left_out],
    ]
    lines = [line for block in blocks if block for line in [*block, ""]]
    return "\n".join(folded for line in lines[:-1] for folded in _folded(line, width))


def _policy(settings: PolicySettings) -> str:
    changed = [
        f"{one.name}={getattr(settings, one.name)}"
        for one in fields(settings)
        if getattr(settings, one.name) != one.default
    ]
    return f"policy: {', '.join(changed) or 'the defaults'}"


def _timeline(events: Sequence[Event], width: int, limit: int | None) -> Iterator[str]:
    yield f"{'time':>{_TIME}} {'in force':<{_DRAFT}} {'for':>{_TIME}}  why"
    shown = events if limit is None else events[-limit:]
    if len(shown) < len(events):
        yield f"{'…':>{_TIME}} {len(events) - len(shown)} before that: --all prints them"
    for event in shown:
        head = f"{clock(event.at_s):>{_TIME}} {event.draft:<{_DRAFT}} {clock(event.for_s):>{_TIME}}  "
        yield from textwrap.wrap(
            f"{event.reason}: {event.why}", width, initial_indent=head, subsequent_indent=" " * len(head)
        )


def _summary(found: Replay) -> Iterator[str]:
    bare = f", {found.not_speculated:,} of them not speculated" if found.not_speculated else ""
    yield f"{clock(found.length_s)} of traffic: {found.requests:,} finished requests{bare}, {found.looks:,} snapshots"
    shares = [f"{draft} {share:.1%}" for draft, share in found.shares.items()]
    yield f"in force: {', '.join(shares)}"
    text = f"switches: {found.switches}"
    if found.recorded_switches is not None:
        text += f"; the recorded service made {found.recorded_switches}"
    if found.differing_ratio:
        text += f", and had another draft in force for {found.differing_ratio:.1%} of the time"
    yield text


def _heard(heard: Iterable[Heard]) -> Iterator[str]:
    for one in sorted(heard, key=lambda each: each.first_s):
        yield f"{one.alert.level}, {clock(one.first_s)} to {clock(one.last_s)}: {one.alert.text}"


def _against(found: Iterable[Against]) -> Iterator[str]:
    yield "Against one draft kept all the time, modelled (tokens per step near each moment, step times of the trace, same batch):"
    for one in found:
        if one.gained_tokens is None or one.ratio is None:
            yield f"  {one.draft:<{_DRAFT}} cannot be said: its acceptance or its step time is not in the trace"
            continue
        yield (
            f"  {one.draft:<{_DRAFT}} {one.gained_tokens:>+14,.0f} tokens {one.ratio - 1:>+8.1%}   "
            f"over {one.covered_ratio:.0%} of the busy time"
        )


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="    ") if len(line) > width else [line]


def clock(seconds: float) -> str:
    """``0:01:51``; tenths are dropped."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"

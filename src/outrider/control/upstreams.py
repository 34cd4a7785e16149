"""The engines behind the front: which are ready, how busy each is, and the draft in force for new requests.

Written by `outrider.control`, read by `outrider.front` at every dispatch. All of it lives on one event loop; nothing
here is thread-safe or does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from outrider.governor.probing import is_probe


@dataclass(slots=True)
class Busy:
    """Requests in flight, and the request-seconds of them so far: their difference over a time is the mean batch times it."""

    in_flight: int = 0
    _busy_s: float = field(default=0.0, repr=False)
    _changed_s: float = field(default=0.0, repr=False)

    def change(self, now_s: float, by: int) -> None:
        """So many more in flight from now on."""
        self.so_far_s(now_s)
        self.in_flight += by

    def so_far_s(self, now_s: float) -> float:
        """Request-seconds up to now."""
        self._busy_s += self.in_flight * (now_s - self._changed_s)
        self._changed_s = now_s
        return self._busy_s


@dataclass(eq=False, slots=True)
class Upstream:
    """One engine. `concurrency` is how many requests it is given at once; the front queues the rest.

    `api_key` is sent to it and never shown. `lanes`: those whose requests it serves; none named: all. `draft`: what it runs
    whatever is in force (`none`: it was started without one; `off`: so was it, and stands beside one that drafts). `device`:
    requests in flight at all engines that share its device, which `concurrency` is of then. `in_flight` and the busy time are
    kept by the front.
    """

    name: str
    host: str
    port: int
    concurrency: int
    api_key: str = field(default="", repr=False)
    ready: bool = False
    lanes: frozenset[str] = frozenset()
    draft: str | None = None
    device: Busy = field(default_factory=Busy, repr=False)
    suspended_until_s: float = 0.0
    _busy: Busy = field(default_factory=Busy, repr=False)
    _by_draft: dict[str | None, Busy] = field(default_factory=dict, repr=False)

    @property
    def in_flight(self) -> int:
        """Requests sent to it and not ended."""
        return self._busy.in_flight

    def begin(self, now_s: float, draft: str | None = None) -> None:
        """One more request in flight, with this draft."""
        self._busy.change(now_s, 1)
        self.device.change(now_s, 1)
        self._by_draft.setdefault(draft, Busy()).change(now_s, 1)

    def end(self, now_s: float, draft: str | None = None) -> None:
        """One request less in flight."""
        self._busy.change(now_s, -1)
        self.device.change(now_s, -1)
        self._by_draft[draft].change(now_s, -1)

    def busy_s(self, now_s: float) -> float:
        """Request-seconds in flight so far: its difference over a time, divided by that time, is the mean batch."""
        return self._busy.so_far_s(now_s)

    def busy_by_draft_s(self, now_s: float) -> dict[str | None, float]:
        """The same by draft."""
        return {draft: busy.so_far_s(now_s) for draft, busy in self._by_draft.items()}

    def alike_s(self, now_s: float, draft: str | None) -> float:
        """The same of one draft that it has had."""
        return self._by_draft[draft].so_far_s(now_s)

    def serves(self, lane: str) -> bool:
        """Whether requests of this lane may be sent to it."""
        return not self.lanes or lane in self.lanes

    def can_run(self, draft: str) -> bool:
        """Whether a request stamped with this draft runs with it there."""
        return self.draft is None or self.draft == draft

    def in_reach(self, now_s: float) -> bool:
        """Whether it is ready, and did not just refuse a connection."""
        return self.ready and now_s >= self.suspended_until_s

    def has_room(self, now_s: float) -> bool:
        """Whether a request may be dispatched to it now."""
        return self.in_reach(now_s) and self.device.in_flight < self.concurrency


class UpstreamSet:
    """The engines, by name. Whoever must know of changes subscribes; callbacks run at once and must not block."""

    def __init__(self) -> None:
        self._upstreams: dict[str, Upstream] = {}
        self._subscribers: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._upstreams.values())

    def __len__(self) -> int:
        return len(self._upstreams)

    def get(self, name: str) -> Upstream | None:
        """The engine of this name."""
        return self._upstreams.get(name)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after every add, remove and change of readiness."""
        self._subscribers.append(callback)

    def add(self, upstream: Upstream) -> None:
        """A new engine; one of the same name is replaced (requests in flight on the old one go on)."""
        self._upstreams[upstream.name] = upstream
        self._tell()

    def remove(self, name: str) -> None:
        """Dispatch nothing more to it; requests in flight go on. Unknown names are ignored."""
        if self._upstreams.pop(name, None) is not None:
            self._tell()

    def set_ready(self, name: str, ready: bool) -> None:
        """What a health check found. Raises KeyError for an unknown name."""
        upstream = self._upstreams[name]
        if upstream.ready != ready:
            upstream.ready = ready
            upstream.suspended_until_s = 0.0
            self._tell()

    def pick(self, now_s: float, lane: str = "", drafts: Sequence[str] = ()) -> Upstream | None:
        """The lane's ready engine with the fewest requests in flight that has room; None when there is none. Without a lane: of
        the engines that serve all.

        `drafts`: what the request is to run with, the most wanted first, the draft in force last. While an engine is in reach
        that runs the last of them, no other is taken than those that run one; where none is, any that has room.
        """
        serving = [one for one in self._upstreams.values() if one.serves(lane)]
        free = [one for one in serving if one.has_room(now_s)]
        for draft in drafts:
            if able := [one for one in free if one.can_run(draft)]:
                return _least_busy(able)
        if drafts and any(one.in_reach(now_s) and one.can_run(drafts[-1]) for one in serving):
            return None
        return _least_busy(free) if free else None

    def _tell(self) -> None:
        for callback in self._subscribers:
            callback()


def _least_busy(upstreams: Sequence[Upstream]) -> Upstream:
    return min(upstreams, key=lambda upstream: upstream.in_flight)


@dataclass(slots=True)
class DraftInForce:
    """The draft that new requests are stamped with, and why; a share of them are probes of another. Running ones keep theirs.

    `pinned`: an operator holds it.
    """

    draft: str
    reason: str = "the stack's"
    probe_draft: str | None = None
    probe_share: float = 0.0
    pinned: bool = False
    _dispatched: int = 0

    def set(
        self,
        draft: str,
        reason: str,
        probe_draft: str | None = None,
        probe_share: float = 0.0,
        *,
        pinned: bool = False,
    ) -> None:
        """Decide for the requests to come."""
        self.draft = draft
        self.reason = reason
        self.probe_draft = probe_draft
        self.probe_share = probe_share
        self.pinned = pinned

    @property
    def coming(self) -> tuple[str, ...]:
        """What the next request is to run with: the draft in force, before it the one that it is to probe."""
        if self.probe_draft is None or not is_probe(self._dispatched + 1, self.probe_share):
            return (self.draft,)
        return (self.probe_draft, self.draft)

    def next(self) -> str:
        """The draft of the next request, which is dispatched now."""
        first = self.coming[0]
        if self.probe_draft is not None:
            self._dispatched += 1
        return first

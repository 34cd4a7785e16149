"""The engines behind the front: which are ready, how busy each is, and the draft in force for new requests.

Written by `outrider.control`, read by `outrider.front` at every dispatch. All of it lives on one event loop; nothing
here is thread-safe or does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    whatever is in force (`none`: it was started without one). `in_flight` and the busy time are kept by the front.
    """

    name: str
    host: str
    port: int
    concurrency: int
    api_key: str = field(default="", repr=False)
    ready: bool = False
    lanes: frozenset[str] = frozenset()
    draft: str | None = None
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
        self._by_draft.setdefault(draft, Busy()).change(now_s, 1)

    def end(self, now_s: float, draft: str | None = None) -> None:
        """One request less in flight."""
        self._busy.change(now_s, -1)
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

    def has_room(self, now_s: float) -> bool:
        """Whether a request may be dispatched to it now."""
        return self.ready and self.in_flight < self.concurrency and now_s >= self.suspended_until_s


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

    def pick(self, now_s: float, lane: str = "") -> Upstream | None:
        """The lane's ready engine with the fewest requests in flight that has room; None when there is none. Without a lane: of
        the engines that serve all."""
        free = [one for one in self._upstreams.values() if one.serves(lane) and one.has_room(now_s)]
        return min(free, key=lambda upstream: upstream.in_flight) if free else None

    def _tell(self) -> None:
        for callback in self._subscribers:
            callback()


@dataclass(slots=True)
class DraftInForce:
    """The draft that new requests are stamped with, and why; a share of them are probes of another. Running ones keep theirs."""

    draft: str
    reason: str = "the stack's"
    probe_draft: str | None = None
    probe_share: float = 0.0
    _dispatched: int = 0

    def set(self, draft: str, reason: str, probe_draft: str | None = None, probe_share: float = 0.0) -> None:
        """Decide for the requests to come."""
        self.draft = draft
        self.reason = reason
        self.probe_draft = probe_draft
        self.probe_share = probe_share

    def next(self) -> str:
        """The draft of the next request."""
        if self.probe_draft is None:
            return self.draft
        self._dispatched += 1
        return self.probe_draft if is_probe(self._dispatched, self.probe_share) else self.draft

"""The engines behind the front: which are ready, how busy each is, and the draft in force for new requests.

Written by `outrider.control`, read by `outrider.front` at every dispatch. All of it lives on one event loop; nothing
here is thread-safe or does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


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
    in_flight: int = 0
    suspended_until_s: float = 0.0
    _busy_s: float = field(default=0.0, repr=False)
    _changed_s: float = field(default=0.0, repr=False)

    def begin(self, now_s: float) -> None:
        """One more request in flight."""
        self.busy_s(now_s)
        self.in_flight += 1

    def end(self, now_s: float) -> None:
        """One request less in flight."""
        self.busy_s(now_s)
        self.in_flight -= 1

    def busy_s(self, now_s: float) -> float:
        """Request-seconds in flight so far: its difference over a time, divided by that time, is the mean batch."""
        self._busy_s += self.in_flight * (now_s - self._changed_s)
        self._changed_s = now_s
        return self._busy_s

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
    """The draft that new requests are stamped with, and why. Running requests keep theirs."""

    draft: str
    reason: str = "the stack's"

    def set(self, draft: str, reason: str) -> None:
        """Decide for the requests to come."""
        self.draft = draft
        self.reason = reason

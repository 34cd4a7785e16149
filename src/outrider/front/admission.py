"""Who may run next: a bounded queue per lane, fair turns between keys inside a lane. A pure state machine.

Time is handed in; nothing here waits, sends or starts. The rules:

1. Interactive before batch (lanes in the order they are given).
2. Inside a lane keys take turns; a key at its own limit is passed over.
3. A full lane refuses the newest request of the key that has the most waiting, so one key cannot shut others out.
4. `queue_wait_ms` is the larger of the p90 wait of requests dispatched in the last 60 s and the age of the oldest one
   waiting: 0 while idle, growing in a stall.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

from outrider.core.latency import percentile
from outrider.front.settings import LaneRule

WINDOW_S = 60.0


class Ticket(Protocol):
    """One request in the queue: whose it is, how many of that key may run, when it came. Known by identity."""

    key: str
    lane: str
    limit: int | None
    arrived_s: float


T = TypeVar("T", bound=Ticket)


class _Lane(Generic[T]):
    """Waiting tickets by key; the order of `turns` is whose turn it is."""

    def __init__(self, rule: LaneRule) -> None:
        self.rule = rule
        self.turns: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self.waiting = 0

    def add(self, ticket: T, *, first: bool = False) -> None:
        queue = self.turns.setdefault(ticket.key, OrderedDict())
        queue[ticket] = None
        if first:
            # Behind those that were put back before it and are older: a key's queue stays in order of arrival.
            older = list(takewhile(lambda other: other.arrived_s < ticket.arrived_s, queue))
            for each in (ticket, *reversed(older)):
                queue.move_to_end(each, last=False)
            self.turns.move_to_end(ticket.key, last=False)
        self.waiting += 1

    def discard(self, ticket: T) -> bool:
        queue = self.turns.get(ticket.key)
        if queue is None or ticket not in queue:
            return False
        del queue[ticket]
        self.waiting -= 1
        if not queue:
            del self.turns[ticket.key]
        return True

    def heads(self) -> Iterator[T]:
        """The oldest ticket of every key, in order of turns."""
        for queue in self.turns.values():
            yield next(iter(queue))

    def victim(self) -> T:
        """The newest ticket of the key with the most waiting; between equals, the newest of all."""
        return max((next(reversed(queue)) for queue in self.turns.values()), key=self._claim)

    def _claim(self, ticket: T) -> tuple[int, float]:
        return len(self.turns[ticket.key]), ticket.arrived_s


class Admission(Generic[T]):
    """The queues and who runs. Every ticket taken must be given back by `done` or `put_back`."""

    def __init__(self, lanes: Mapping[str, LaneRule], window_s: float = WINDOW_S) -> None:
        self._lanes: dict[str, _Lane[T]] = {name: _Lane(rule) for name, rule in lanes.items()}
        self._window_s = window_s
        self._running: dict[str, int] = {}
        self._waits: deque[tuple[float, float, str]] = deque()  # dispatched, arrived, lane

    def offer(self, ticket: T) -> None:
        """Queue a request. Call `take` while there is room, then refuse what `overflow` returns."""
        self._lanes[ticket.lane].add(ticket)

    def overflow(self, lane: str) -> T | None:
        """A ticket that the lane has no place for, taken out of it; None if the lane is within its bound."""
        queue = self._lanes[lane]
        if queue.waiting <= queue.rule.max_queue:
            return None
        victim = queue.victim()
        queue.discard(victim)
        return victim

    def take(self, now_s: float, lanes: Collection[str] | None = None) -> T | None:
        """The ticket (of these lanes, if named) whose turn it is, now running; None when nobody may run."""
        for name, lane in self._lanes.items():
            if lanes is not None and name not in lanes:
                continue
            for ticket in lane.heads():
                running = self._running.get(ticket.key, 0)
                if ticket.limit is not None and running >= ticket.limit:
                    continue
                lane.discard(ticket)
                if ticket.key in lane.turns:
                    lane.turns.move_to_end(ticket.key)
                self._running[ticket.key] = running + 1
                self._waits.append((now_s, ticket.arrived_s, ticket.lane))
                self._forget(now_s)
                return ticket
        return None

    def put_back(self, ticket: T) -> None:
        """A taken ticket could not be dispatched after all: it is next again, and its wait goes on."""
        self.done(ticket)
        for row in reversed(self._waits):
            if row[1] == ticket.arrived_s:
                self._waits.remove(row)
                break
        self._lanes[ticket.lane].add(ticket, first=True)

    def done(self, ticket: T) -> None:
        """A taken ticket has ended, whatever way."""
        running = self._running[ticket.key] - 1
        if running:
            self._running[ticket.key] = running
        else:
            del self._running[ticket.key]

    def cancel(self, ticket: T) -> None:
        """A waiting ticket's client has gone."""
        self._lanes[ticket.lane].discard(ticket)

    def expire(self, now_s: float) -> list[T]:
        """Tickets that waited longer than their lane allows, taken out of the queue."""
        expired: list[T] = []
        for lane in self._lanes.values():
            while late := [t for t in lane.heads() if now_s - t.arrived_s > lane.rule.queue_timeout_s]:
                for ticket in late:
                    lane.discard(ticket)
                expired.extend(late)
        return expired

    def waiting(self, lane: str) -> int:
        """Tickets waiting in a lane."""
        return self._lanes[lane].waiting

    @property
    def empty(self) -> bool:
        """Whether nobody waits."""
        for lane in self._lanes.values():  # noqa: SIM110  # asked three times a request: a generator costs four times this
            if lane.waiting:
                return False
        return True

    def running(self, key: str) -> int:
        """Tickets of a key taken and not given back."""
        return self._running.get(key, 0)

    def queue_wait_ms(self, now_s: float, only: str | None = None) -> float:
        """The gauge the autoscaler reads: of all lanes, or of one."""
        self._forget(now_s)
        waits = [gone_s - came_s for gone_s, came_s, lane in self._waits if only in (None, lane)]
        p90 = percentile(waits, 90) if waits else 0.0
        return max(p90, self.oldest_s(now_s, only)) * 1e3

    def oldest_s(self, now_s: float, only: str | None = None) -> float:
        """The age of the oldest ticket that waits (in one lane, if named); 0 where none does."""
        lanes = [lane for name, lane in self._lanes.items() if only in (None, name)]
        heads = (ticket for lane in lanes for ticket in lane.heads())
        return max((now_s - ticket.arrived_s for ticket in heads), default=0.0)

    def _forget(self, now_s: float) -> None:
        while self._waits and self._waits[0][0] < now_s - self._window_s:
            self._waits.popleft()

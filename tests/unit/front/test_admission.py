"""The queue on a virtual clock: order, fairness, bounds, and the gauge the autoscaler reads."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outrider.front.admission import Admission
from outrider.front.settings import LaneRule

LANES = {"interactive": LaneRule(4, 10.0), "batch": LaneRule(8, 100.0)}


@dataclass(eq=False)
class Ticket:
    """A request in the queue."""

    key: str
    lane: str = "interactive"
    limit: int | None = None
    arrived_s: float = 0.0


def take_all(admission: Admission[Ticket], now_s: float = 1.0) -> list[Ticket]:
    """Everybody whose turn it is, in order."""
    taken = []
    while (ticket := admission.take(now_s)) is not None:
        taken.append(ticket)
    return taken


def test_interactive_goes_before_batch() -> None:
    """A batch request waits while an interactive one does, even if it came first."""
    admission: Admission[Ticket] = Admission(LANES)
    batch, interactive = Ticket("b", "batch"), Ticket("i")
    admission.offer(batch)
    admission.offer(interactive)
    assert take_all(admission) == [interactive, batch]


def test_a_lane_without_a_free_engine_waits_and_holds_up_no_other() -> None:
    """Only lanes that are named are taken from; the gauge of one lane does not see the other's wait."""
    admission: Admission[Ticket] = Admission(LANES)
    batch, interactive = Ticket("b", "batch"), Ticket("i", arrived_s=0.5)
    admission.offer(batch)
    admission.offer(interactive)
    assert admission.take(1.0, ["interactive"]) is interactive
    assert admission.take(1.0, ["interactive"]) is None
    assert admission.queue_wait_ms(2.0, "interactive") == 500.0
    assert admission.queue_wait_ms(2.0, "batch") == 2000.0
    assert admission.queue_wait_ms(2.0) == 2000.0
    assert admission.take(2.0, ["batch"]) is batch


def test_keys_take_turns() -> None:
    """A key with many waiting gets one turn for every turn of a key with few."""
    admission: Admission[Ticket] = Admission({"interactive": LaneRule(100, 10.0)})
    many = [Ticket("many") for _ in range(4)]
    few = [Ticket("few") for _ in range(2)]
    for ticket in many + few:
        admission.offer(ticket)
    assert take_all(admission) == [many[0], few[0], many[1], few[1], many[2], many[3]]


def test_a_key_at_its_limit_is_passed_over() -> None:
    """Per-key concurrency holds, and does not hold up other keys."""
    admission: Admission[Ticket] = Admission(LANES)
    limited = [Ticket("a", limit=1) for _ in range(2)]
    free = Ticket("b")
    for ticket in [*limited, free]:
        admission.offer(ticket)
    assert take_all(admission) == [limited[0], free]
    admission.done(limited[0])
    assert take_all(admission) == [limited[1]]


def test_one_key_cannot_fill_a_lane() -> None:
    """A full lane refuses the newest request of the key that has the most waiting, not the newcomer."""
    admission: Admission[Ticket] = Admission(LANES)
    greedy = [Ticket("greedy", arrived_s=n) for n in range(4)]
    for ticket in greedy:
        admission.offer(ticket)
        assert admission.overflow("interactive") is None
    newcomer = Ticket("other", arrived_s=9.0)
    admission.offer(newcomer)
    assert admission.overflow("interactive") is greedy[-1]
    assert newcomer in take_all(admission)


def test_a_key_that_overfills_alone_is_refused_itself() -> None:
    """With one key, the newest request is the one refused."""
    admission: Admission[Ticket] = Admission(LANES)
    tickets = [Ticket("a", arrived_s=n) for n in range(5)]
    for ticket in tickets:
        admission.offer(ticket)
    assert admission.overflow("interactive") is tickets[-1]


def test_waiting_too_long_expires() -> None:
    """Tickets leave the queue when their lane's time is over, the others stay."""
    admission: Admission[Ticket] = Admission(LANES)
    old, young, batch = (
        Ticket("a", arrived_s=0.0),
        Ticket("a", arrived_s=5.0),
        Ticket("b", "batch", arrived_s=0.0),
    )
    for ticket in (old, young, batch):
        admission.offer(ticket)
    assert admission.expire(10.0) == []
    assert admission.expire(10.1) == [old]
    assert take_all(admission, 10.1) == [young, batch]


def test_put_back_is_next_again() -> None:
    """A request whose engine could not be reached keeps its place, and its wait goes on."""
    admission: Admission[Ticket] = Admission(LANES)
    first, second = Ticket("a", arrived_s=0.0), Ticket("a", arrived_s=1.0)
    admission.offer(first)
    admission.offer(second)
    taken = admission.take(2.0)
    assert taken is first
    admission.put_back(first)
    assert admission.running("a") == 0
    assert admission.queue_wait_ms(3.0) == 3000.0
    assert take_all(admission, 4.0) == [first, second]


def test_what_is_put_back_keeps_its_order() -> None:
    """Two requests of one key that an engine refused wait on in the order they came, whichever came back first."""
    for order in ((0, 1), (1, 0)):
        admission = Admission[Ticket](LANES)
        tickets = [Ticket("a", "batch", None, float(n)) for n in range(3)]
        for ticket in tickets:
            admission.offer(ticket)
        taken = [admission.take(3.0), admission.take(3.0)]
        for n in order:
            admission.put_back(taken[n])  # type: ignore[arg-type]  # both were there
        assert admission.oldest_s(5.0) == 5.0
        assert [admission.take(5.0) for _ in range(3)] == tickets


def test_queue_wait_is_zero_while_idle() -> None:
    """Defined without any request."""
    assert Admission[Ticket](LANES).queue_wait_ms(5.0) == 0.0


def test_queue_wait_grows_in_a_stall() -> None:
    """With nobody dispatched, the gauge is the age of the oldest one waiting."""
    admission: Admission[Ticket] = Admission(LANES)
    admission.offer(Ticket("a", arrived_s=1.0))
    admission.offer(Ticket("b", "batch", arrived_s=3.0))
    assert [admission.queue_wait_ms(now_s) for now_s in (4.0, 9.0)] == [3000.0, 8000.0]


def test_queue_wait_is_the_p90_of_the_last_minute() -> None:
    """Nearest rank over what was dispatched within 60 s; older waits are forgotten."""
    admission: Admission[Ticket] = Admission({"interactive": LaneRule(100, 1000.0)})
    for wait_s in range(1, 11):
        ticket = Ticket("a", arrived_s=100.0 - wait_s)
        admission.offer(ticket)
        admission.take(100.0)
        admission.done(ticket)
    assert admission.queue_wait_ms(100.0) == 9000.0
    assert admission.queue_wait_ms(160.0) == 9000.0
    assert admission.queue_wait_ms(160.1) == 0.0


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_turns_are_fair(keys: list[str]) -> None:
    """While a key waits, no other key that waited as long gets two turns more than it."""
    admission: Admission[Ticket] = Admission({"interactive": LaneRule(100, 1000.0)})
    for key in keys:
        admission.offer(Ticket(key))
    order = [ticket.key for ticket in take_all(admission)]
    for end in range(len(order)):
        still = set(order[end:])
        counts = {key: order[:end].count(key) for key in still}
        assert max(counts.values()) - min(counts.values()) <= 1


class Queue(RuleBasedStateMachine):
    """Any sequence of events keeps the books straight."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.admission: Admission[Ticket] = Admission(LANES)
        self.waiting: list[Ticket] = []
        self.running: list[Ticket] = []

    @rule(key=st.sampled_from(["a", "b", "c"]), lane=st.sampled_from(sorted(LANES)))
    def offer(self, key: str, lane: str) -> None:
        """A request comes; the lane stays within its bound."""
        ticket = Ticket(f"{key}-{lane}", lane, {"a": 1, "b": 3}.get(key), self.now_s)
        self.admission.offer(ticket)
        self.waiting.append(ticket)
        refused = self.admission.overflow(lane)
        if refused is not None:
            assert refused.lane == lane
            self.waiting.remove(refused)

    @rule()
    def take(self) -> None:
        """Somebody's turn."""
        ticket = self.admission.take(self.now_s)
        if ticket is not None:
            self.waiting.remove(ticket)
            self.running.append(ticket)
        else:
            for other in self.waiting:
                assert other.limit is not None
                assert self.admission.running(other.key) >= other.limit

    @rule(data=st.data(), back=st.booleans())
    def give_back(self, data: st.DataObject, back: bool) -> None:
        """A running request ends, or could not be dispatched."""
        if self.running:
            ticket = data.draw(st.sampled_from(self.running))
            self.running.remove(ticket)
            if back:
                self.admission.put_back(ticket)
                self.waiting.append(ticket)
            else:
                self.admission.done(ticket)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A waiting client leaves."""
        if self.waiting:
            ticket = data.draw(st.sampled_from(self.waiting))
            self.waiting.remove(ticket)
            self.admission.cancel(ticket)

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        """Time passes; exactly those that waited too long leave."""
        self.now_s += seconds
        late = {t for t in self.waiting if self.now_s - t.arrived_s > LANES[t.lane].queue_timeout_s}
        assert set(self.admission.expire(self.now_s)) == late
        self.waiting = [ticket for ticket in self.waiting if ticket not in late]

    @invariant()
    def books_are_straight(self) -> None:
        """Counts by lane and key match, limits hold, the gauge is at least the oldest one's age."""
        for lane in LANES:
            assert self.admission.waiting(lane) == sum(t.lane == lane for t in self.waiting)
        assert self.admission.empty == (not self.waiting)
        for ticket in self.running:
            count = sum(t.key == ticket.key for t in self.running)
            assert self.admission.running(ticket.key) == count
            assert ticket.limit is None or count <= ticket.limit
        oldest = max((self.now_s - t.arrived_s for t in self.waiting), default=0.0)
        assert self.admission.queue_wait_ms(self.now_s) >= oldest * 1e3 - 1e-6


TestQueue = Queue.TestCase

"""Cases from the field that the governor owes an answer to, by their ids."""

from __future__ import annotations

from itertools import pairwise

import pytest

from outrider.bench.document import Interval
from outrider.bench.schedule import accept, edges
from outrider.governor.ladder import Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit
from tests.unit.governor.driver import Driver, credit, readings
from tests.unit.governor.traffic import HEAD, head_ladder, quiet


def head_alerts(driver: Driver, kind: str) -> list[str]:
    """Levels of the head's alerts of a kind, now."""
    return [one.level for one in driver.decision.alerts if (one.kind, one.draft) == (kind, HEAD)]


def test_governor_threshold_edge() -> None:
    """[[1,4,2],[5,512,0]]: written only once 4, 5 and 8 were measured; the governor leaves a schedule of the engine's alone."""
    rows = [(1, 4, 2), (5, 512, 0)]
    assert edges(rows, 512) == [4, 5, 8]
    good = {batch: Interval(value=1.1, low=1.05, high=1.15, n=3) for batch in (4, 5)}
    assert [one.running for one in accept(rows, good)] == [8]
    slow = good | {8: Interval(value=157 / 232, low=0.6, high=0.75, n=3)}
    assert [one.running for one in accept(rows, slow)] == [8]
    assert accept(rows, good | {8: Interval(value=1.0, low=0.98, high=1.02, n=3)}) == []
    # Where the engine switches by batch itself, its step times must not make the governor switch the method on top of it.
    for scheduled, left in ((True, False), (False, True)):
        driver = Driver(Policy(head_ladder(2.6, scheduled=scheduled), quiet()))
        driver.look(steps=(*readings(HEAD, 0.08, 8.0), *readings("off", 0.02, 8.0)), running=8.0)
        driver.serve(60, {HEAD: 2.6}, running=8.0)
        assert (driver.decision.draft != HEAD) is left


def test_governor_stale_requests() -> None:
    """Head on, off, on: those from before the second 'on' end at AL 1.05, newer ones at 2.6: kept. Twin: newer ones are bad."""
    for newer, kept in ((2.6, True), (1.05, False)):
        driver = Driver(Policy(head_ladder(2.6), quiet()))
        driver.serve(30, {HEAD: 2.6})
        driver.look(pinned="off")
        driver.serve(20, {"off": 1.0}, pinned="off")
        driver.look(pinned=HEAD)
        on_s = driver.at_s
        driver.look()
        for _ in range(40):
            old = [credit(HEAD, 1.05, driver.at_s + 1, started_s=on_s - 5.0) for _ in range(4)]
            new = [credit(HEAD, newer, driver.at_s + 1, started_s=max(driver.at_s - 1.0, on_s))]
            draft = driver.decision.draft
            driver.look([*old, *new] if draft == HEAD else old)
        assert (driver.switches[-1][:2] == (on_s, HEAD)) is kept
        seen = driver.decision.assessments[0].seen
        assert not kept or seen.length == pytest.approx(2.6)


def test_governor_undefined_is_not_low() -> None:
    """Every request carries presence_penalty 0.5, drafts delta 0: kept for good and told apart as not speculated."""
    for draftable in (False, None):
        driver = Driver(Policy(head_ladder(), quiet()))
        for _ in range(300):
            plain = {"drafts": 0, "proposed": 0, "accepted": 0, "draftable": draftable}
            driver.look([credit(HEAD, 1.0, driver.at_s + 1, **plain) for _ in range(3)])
        assert driver.switches == []
        assert driver.decision.not_speculated == 900
        assert driver.decision.assessments[0].seen.length is None
        assert driver.decision.assessments[0].verdict == "undefined"
    drafted = Driver(Policy(head_ladder(), quiet()))
    drafted.serve(30, {HEAD: 1.0})
    assert drafted.switches


def test_governor_no_flapping() -> None:
    """AL 2.4, 1.1, 2.4, 1.1 … once a second for five minutes: at most one switch a dwell time, a reason each time."""
    for baseline, steps in ((2.4, ()), (None, (*readings(HEAD, 0.042, 4.0), *readings("off", 0.02, 4.0)))):
        driver = Driver(Policy(head_ladder(baseline)))
        driver.look(steps=steps)
        for second in range(300):
            driver.serve(1, {HEAD: (2.4, 1.1)[second % 2], "ngram": (1.3, 1.0)[second % 2]})
        moves = [at_s for at_s, *_ in driver.switches]
        assert all(later - sooner >= PolicySettings().dwell_s for sooner, later in pairwise(moves))
        assert all(one.reason and one.why for _, one in driver.decisions)
    assert driver.switches  # the second is under its break-even: the draft must move, and it did


def test_governor_broken_draft() -> None:
    """40 tokens drafted on probe prompts, 0 accepted: n-gram from the first request, an alert that stays. Not so with 1."""
    driver = Driver(Policy(head_ladder()))
    decision = driver.probe(HEAD, 40, 0)
    assert (decision.draft, decision.reason, decision.switched_from) == ("ngram", Reason.BROKEN, HEAD)
    assert head_alerts(driver, "broken") == ["trouble"]
    driver.serve(120, {HEAD: 1.0, "ngram": 1.6})
    assert driver.decision.draft == "ngram"
    assert head_alerts(driver, "broken") == ["trouble"]
    for proposed, accepted in ((40, 1), (39, 0)):
        sound = Driver(Policy(head_ladder()))
        assert sound.probe(HEAD, proposed, accepted).draft == HEAD
        assert head_alerts(sound, "broken") == []


def test_governor_exact_rates() -> None:
    """(a) exactly 0 or 1 for 60 s: numerical trouble. (b) AL exactly 5.00 at K = 4 on one copied text: a warning at most."""
    for length in (1.0, 4.0):
        driver = Driver(Policy(head_ladder(), quiet()))
        driver.serve(55, {HEAD: length, "ngram": 1.5})
        assert head_alerts(driver, "numerical") != ["trouble"]
        driver.serve(20, {HEAD: length, "ngram": 1.5})
        assert head_alerts(driver, "numerical") == ["trouble"]
    for draft in (HEAD, "ngram"):
        copied = Driver(Policy(head_ladder(5.0), quiet()))
        one = Credit(draft, 1.0, 91.0, drafts=450, proposed=1800, accepted=1800, steps=450)
        copied.look([one], passed_s=92.0)
        assert {(alert.kind, alert.level) for alert in copied.decision.alerts} == {("numerical", "warning")}
        assert one.accepted / one.drafts + 1 == 5.0
        assert copied.switches == []
    lookup = Driver(Policy(ladder_of(Rung("ngram"))))
    lookup.serve(120, {"ngram": 4.0})
    assert {(alert.kind, alert.level) for alert in lookup.decision.alerts} == {("numerical", "warning")}
    near = Driver(Policy(head_ladder(), quiet()))
    near.serve(120, {HEAD: 3.95})
    assert near.decision.alerts == ()

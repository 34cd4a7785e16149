"""When a trial without a draft is due, and what it tells."""

from __future__ import annotations

import pytest

from outrider.governor import trial as trials
from outrider.governor.estimator import Measured
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from outrider.governor.state import Trial
from tests.unit.governor.driver import Driver, credit, readings
from tests.unit.governor.traffic import HEAD, head_ladder


def served(seconds: int, *, running: float = 4.0, per_s: int = 2, driver: Driver | None = None) -> Driver:
    """A head of AL 1.6 (± 0.3 by turns) whose T at this batch is known, and nothing of steps without a draft."""
    driver = driver or Driver(Policy(head_ladder(None)))
    for _ in range(seconds):
        now_s = driver.at_s + 1
        draft = driver.decision.draft
        ended = [
            credit(draft, (1.3, 1.9)[number % 2] if draft == HEAD else 1.0, now_s) for number in range(per_s)
        ]
        steps = readings(HEAD, 0.03 + 0.002 * running, running, now_s, 1) if draft == HEAD else ()
        driver.look(ended, steps=steps, running=running)
    return driver


def test_a_trial_waits_for_requests_that_speak_for_all() -> None:
    """The first to end ran quickest: none before the dwell time and sixteen requests are over, whichever is later."""
    (began,) = served(20, per_s=4).switches
    assert began == (15.0, "off", "trial")
    slow = Driver(Policy(head_ladder(None)))
    for second in range(1, 60):
        now_s = float(second)
        ended = [credit(HEAD, (1.3, 1.9)[second // 2 % 2], now_s)] if second % 2 else []
        if slow.decision.draft == HEAD:
            slow.look(ended, steps=readings(HEAD, 0.04, 4.0, now_s, 1))
    assert slow.switches[0][0] == 31.0  # the sixteenth


def test_the_way_back_goes_before_a_trial() -> None:
    """N-gram that may cost, in force since the head was left: tried after five minutes, for nothing is probed meanwhile."""
    driver = Driver(Policy(head_ladder()))
    driver.serve_until(lambda now: now.draft == "ngram", {HEAD: 1.2})
    left_s = driver.at_s
    for second in range(400):
        now_s, draft = driver.at_s + 1, driver.decision.draft
        steps = readings("ngram", 0.04, 4.0, now_s, 1) if draft == "ngram" else ()
        driver.look([credit(draft, (1.1, 1.5)[second % 2], now_s)] * 2, steps=steps)
    assert [round(at_s - left_s) for at_s, _, why in driver.switches if why == "trial"] == [300]


def test_trials_keep_their_distance_at_whatever_batch() -> None:
    """Given up at 4 running, the load rises to 16, of which nothing is known either: not before five minutes have passed."""
    driver = served(80)
    assert [reason for *_, reason in driver.switches] == ["trial", "trial-over"]
    ended_s = driver.switches[-1][0]
    served(400, running=16.0, driver=driver)
    assert driver.switches[2][2] == "trial"
    assert driver.switches[2][0] == pytest.approx(ended_s + 300, abs=1)


def test_what_is_known_at_the_batch_of_now_goes_before_the_batch_of_then() -> None:
    """Begun at 32 running; now at 64, 1.55 just pay, and 1.6 ± 0.1 leaves that open: 32, where 1.1 pay, is not asked."""
    policy = Policy(head_ladder(None))
    steps = [
        *readings(HEAD, 0.022, 32.0),
        *readings("off", 0.02, 32.0),
        *readings(HEAD, 0.062, 64.0),
        *readings("off", 0.04, 64.0),
    ]
    for running, known in ((64.0, False), (32.0, True)):
        driver = Driver(policy)
        driver.look(steps=tuple(steps), running=running)
        begun = Trial(HEAD, driver.at_s, 32.0, Measured(1.6, 0.1))
        assert (trials.told(driver.turn.state, begun, policy.judge) is not None) is known
        over = Trial(HEAD, driver.at_s - PolicySettings().trial_s, 32.0, Measured(1.6, 0.1))
        told = trials.told(driver.turn.state, over, policy.judge)
        assert told is not None
        assert told.even.known is not None
        assert told.even.known.value == pytest.approx(1.55 if running == 64.0 else 1.1)
        assert (told.slower, told.faster) == (False, running == 32.0)


def test_where_nothing_is_known_of_now_the_batch_of_then_tells() -> None:
    """And where neither is known nothing is told, however long it lasted."""
    policy = Policy(head_ladder(None))
    for steps, known in (
        ((*readings(HEAD, 0.02, 4.0), *readings("off", 0.02, 4.0)), True),
        (readings(HEAD, 0.02, 4.0), False),
    ):
        driver = Driver(policy)
        driver.look(steps=steps, running=32.0)
        begun = Trial(HEAD, driver.at_s - 1000, 4.0, Measured(1.6, 0.01))
        assert (trials.told(driver.turn.state, begun, policy.judge) is not None) is known

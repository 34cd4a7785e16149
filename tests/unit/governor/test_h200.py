"""Over the step times measured on one H200, modelled: no batch at which the governor is slower than the better static choice.

Steps of the Llama-3.3-70B FP8 shape out of the project's measured table (tok/s without a draft, EAGLE-3 shape K = 3 at AL 3.06,
P-EAGLE shape K = 7 at AL 4.37; 128 tokens in, 256 out), interpolated between its batches. No engine runs here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from outrider.governor.costs import StepTimes, break_even
from outrider.governor.ladder import Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from tests.unit.governor import traffic
from tests.unit.governor.driver import readings
from tests.unit.governor.traffic import Load, Seen, Service, first

BATCHES = (1.0, 8.0, 32.0, 64.0, 128.0)
NONE = (48.3, 370.0, 1085.0, 2277.0, 3662.0)
HEADS = {
    "eagle3": (3, 3.06, (122.0, 740.0, 2680.0, 3815.0, 4239.0)),
    "p-eagle": (7, 4.37, (187.0, 1065.0, 2868.0, 3319.0, 3446.0)),
}


def steps(length: float, tok_s: tuple[float, ...]) -> Callable[[float, float], float]:
    """T(b, share of the batch with the draft): the table's, linear between batches and between no draft and all."""

    def at(made: tuple[float, ...], per_step: float, running: float) -> float:
        seconds = [per_step * batch / rate for batch, rate in zip(BATCHES, made, strict=True)]
        running = min(max(running, BATCHES[0]), BATCHES[-1])
        for (low, before), (high, after) in pairwise(zip(BATCHES, seconds, strict=True)):
            if low <= running <= high:
                return before + (running - low) / (high - low) * (after - before)
        raise AssertionError(running)

    def step_s(running: float, drafted: float) -> float:
        none, all_ = at(NONE, 1.0, running), at(tok_s, length, running)
        return none + drafted * (all_ - none)

    return step_s


def serve(head: str, load: Load, *, static: str = "", until_s: float = 400.0) -> list[Seen]:
    """Every second of a service that is governed, or keeps one draft."""
    k, length, tok_s = HEADS[head]
    assert k <= 7
    service = Service(
        Policy(ladder_of(Rung(head, length))),
        lambda draft, at_s: {head: length - 1, "ngram": 0.1}.get(draft, 0.0),
        load,
        step_s=steps(length, tok_s),
        governed=not static,
        static=static,
        scraped=True,
    )
    return list(service.seconds(until_s))


def tokens(seen: list[Seen]) -> float:
    """From the second minute on: before that nothing is known."""
    return sum(one.tokens for one in seen if one.at_s > 60)


@pytest.fixture(autouse=True)
def _longest_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "K", 7)


@pytest.mark.parametrize("batch", [1, 8, 32, 64, 128])
@pytest.mark.parametrize("head", list(HEADS))
def test_within_three_percent_of_the_better_static_choice(head: str, batch: int) -> None:
    """At every batch of the table; and never under 0.97 of no draft."""
    load = Load(at_once=lambda at_s: batch, tokens=256)
    governed = serve(head, load)
    always, never = (tokens(serve(head, load, static=draft)) for draft in (head, "off"))
    assert tokens(governed) >= 0.97 * max(always, never)
    assert governed[-1].decision.draft == (head if always > never else "off")


def test_load_that_comes_and_goes_takes_the_head_with_it() -> None:
    """P-EAGLE at 32, 128, 32 at once: a trial at 128, where it costs 6 %, off once that is sure, back within a minute at 32."""
    load = Load(at_once=lambda at_s: 128 if 200 <= at_s < 500 else 32, tokens=256)
    governed = serve("p-eagle", load, until_s=700.0)
    always, never = (
        tokens(serve("p-eagle", load, static=draft, until_s=700.0)) for draft in ("p-eagle", "off")
    )
    assert first(governed, "off", 200).at_s <= 230
    assert {one.decision.draft for one in governed if 400 < one.at_s < 500} == {"off"}
    assert first(governed, "p-eagle", 500).at_s <= 560
    assert tokens(governed) >= 0.99 * max(always, never)


@pytest.mark.parametrize("head", list(HEADS))
def test_what_the_heads_steps_verify_bounds_the_break_even_that_was_measured(head: str) -> None:
    """By the head's own steps and T(1, 0): no fewer tokens (but 4 %) than are needed at 16 to 128, at most 1.3 times as many."""
    k, length, tok_s = HEADS[head]
    step_s = steps(length, tok_s)
    of_head = [
        one for power in range(15) for one in readings(head, step_s(2 ** (power / 2), 1.0), 2 ** (power / 2))
    ]
    known = StepTimes().plus((*of_head, *readings("off", step_s(1.0, 0.0), 1.0)), 0.0, PolicySettings())
    ladder = ladder_of(Rung(head, draft_length=k))
    for batch in (16.0, 32.0, 64.0, 128.0):
        needed = step_s(batch, 1.0) / step_s(batch, 0.0)
        bound = break_even(known, ladder, head, batch)
        assert bound.known is None
        assert bound.at_most is not None
        assert needed / 1.04 <= bound.at_most <= 1.3 * needed

"""A session: what it keeps of what was asked for, before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.bench.arms import plan_arms
from outrider.bench.run import BenchPlan
from outrider.bench.session import Session, Wish, prepared, settings_of
from outrider.core.errors import MeasurementError
from outrider.engines.base import Install
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.load import load_stack

CPU = Install(version="0.32.0", distribution="vllm", device="cpu", python="python", plugin=False)


def _session(wish: Wish) -> Session:
    stack = load_stack(None)
    plan = BenchPlan(tuple(plan_arms(stack, wish.arms, 4)), (), settings_of(wish, "cpu"))
    return Session(stack, VllmEngine(), CPU, plan)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (0, {"1 at once": 2, "4 at once": 4, "16 at once": 16}),
        (5, {"1 at once": 5, "4 at once": 5, "16 at once": 5}),
    ],
)
def test_the_warm_up_that_is_sent_is_recorded(asked: int, said: dict[str, int]) -> None:
    """Left to the rule, the settings say 0, and so does the plan that a run resumes by; provenance says how many are sent."""
    session = _session(Wish(warmup=asked, concurrency=(1, 4, 16)))
    assert session.provenance("2026-11-29T00:00:00Z")["warmup_requests"] == said
    assert session.plan.fingerprint()["warmup"] == asked


def test_the_arithmetic_that_is_measured_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provenance says float32 where `auto` came to that; the arms' stacks stay as they were written, for any machine."""
    here = replace(CPU, plugin=True, bf16=False)
    monkeypatch.setattr(VllmEngine, "find", lambda self, stack: here)
    session = prepared(load_stack(None), VllmEngine(), (), Wish(), lambda line: None)
    assert session.provenance("2026-11-29T00:00:00Z")["dtype"] == "float32"
    assert {arm.stack.target.dtype for arm in session.plan.arms} == {"auto"}


def test_requests_for_a_load_that_is_not_measured() -> None:
    """Refused, with the loads that there are."""
    with pytest.raises(MeasurementError, match="8") as caught:
        settings_of(Wish(requests={8: 3}, concurrency=(1, 2)), "cpu")
    assert "1, 2" in caught.value.hint

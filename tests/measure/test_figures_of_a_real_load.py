"""The whole way once: the real load generator against a scripted engine, its records and counters, and the figures of them."""

from pathlib import Path

import pytest

from outrider.bench.figures import CellData, FigureRules, figures, verdict
from outrider.bench.window import SteadyRule
from outrider.engines.sim.adapter import SimEngine
from outrider.measure.aiperf import AiperfRunner
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
from outrider.measure.sampling import CounterSampler
from tests.front.harness import Bed
from tests.timing import Between, Late, in_time, measures_time


@measures_time
def test_figures_of_a_scripted_engine_are_its_script(bed: Bed, tmp_path: Path) -> None:
    """TTFT 50 ms, a step each 22.5 ms of 2 or 3 tokens (AL 2.5, TPOT 9.0 ms), four at once: found in a steady window."""
    sim = bed.sim(ttft_ms=50, step_ms=22.5, chunk_tokens="2,3", draft="ngram", draft_length=3)
    plan = LoadPlan(
        url=f"http://127.0.0.1:{sim.port}",
        model="sim",
        prompts=tuple(Prompt(f"set/{number}", (f"question {number}",)) for number in range(8)),
        concurrency=4,
        requests=32,
        warmup_requests=4,
        output_tokens=101,
        timeout_s=60.0,
    )
    engine = SimEngine()
    with CounterSampler(engine, f"http://127.0.0.1:{sim.port}/metrics") as sampler:
        load = AiperfRunner(engine.request_acceptance).run(plan, tmp_path / "cell", lambda done, of: None)
    cell = CellData(load, sampler.trace(), 4, 3)
    found = figures([cell], rules=FigureRules(steady=SteadyRule(3.0, 5.0)))
    assert verdict(found) == ""
    assert (found.requests, found.ok, found.output_tokens) == (32, 32, 3232)
    assert found.steady, found.steady_reason
    # A busy machine is late and reads chunks together, which lengthens all of this alike; how exact the harness is, is asked
    # in tests/measure/test_harness_truth.py. Here the figures must agree with each other and with the script from below.
    assert found.tpot_ms.p50 is not None
    assert found.tpot_ms.mean is not None
    assert found.step_ms is not None
    assert found.tokens_per_chunk is not None
    assert found.output_tok_s is not None
    assert found.peak_tok_s is not None
    in_time(
        {
            "TPOT": (found.tpot_ms.p50, Between(8.8, 25)),
            "tokens a chunk": (found.tokens_per_chunk, pytest.approx(2.5, rel=0.3)),
            "a step": (
                found.step_ms,
                pytest.approx(found.tpot_ms.mean * found.tokens_per_chunk, rel=0.25),
            ),
            "running": (found.running_mean, pytest.approx(4, abs=0.6)),
            # A request lasts 50 ms + 40 steps = 0.95 s at least; what the generator takes between two is not the engine's.
            "tok/s": (found.output_tok_s, Between(100, 4 * 101 / 0.95 * 1.1)),
        }
    )
    assert found.peak_tok_s >= found.output_tok_s
    assert found.acceptance.length == pytest.approx(2.5, rel=0.06)
    assert found.acceptance.tokens_per_step == pytest.approx(2.5, rel=0.06)
    assert found.acceptance.draft_coverage == pytest.approx(1.0, abs=0.02)
    if [warning for warning in found.warnings if "coarse" in warning]:
        raise Late(str(found.warnings))

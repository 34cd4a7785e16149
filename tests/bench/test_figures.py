"""Figures of a cell: percentiles beside n, failures beside them, throughput of the steady window, the peak above the mean."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.bench.assemble import CellName, TrialData, cell, natural_end, parting
from outrider.bench.document import Figures
from outrider.bench.figures import CellPrice, FigureRules, figures, peak_tok_s, verdict
from outrider.bench.quantiles import curve, of_histogram, of_values
from outrider.bench.window import CPU_RULE, GPU_RULE, SteadyRule, Window, running_mean, steady_window
from outrider.core.errors import MeasurementError
from outrider.core.latency import percentile
from outrider.measure.counters import CounterTrace
from outrider.measure.load import GpuUse
from outrider.measure.records import RequestRecord, TokenEvent
from tests.bench.records import cell_data, closed_loop, counters, record, trace


def test_failed_requests() -> None:
    """100 requests, 7 answered 500, 3 cut: percentiles over 90, 10 failures by kind, the cell invalid (guidellm#444)."""
    good = [record(n, started_s=n * 0.1) for n in range(90)]
    refused = [replace(record(n, started_s=n * 0.1, chunks=0), outcome="http-500") for n in range(90, 97)]
    cut = [
        replace(record(n, started_s=n * 0.1, ttft_s=3.0, chunks=2, gap_s=0.5), outcome="cut")
        for n in range(97, 100)
    ]
    found = figures([cell_data((*good, *refused, *cut))])
    assert found.requests == 100
    assert found.ok == 90
    assert found.failures == {"cut": 3, "http-500": 7}
    assert found.ttft_ms.n == found.e2e_ms.n == found.tpot_ms.n == 90
    assert found.ttft_ms.worst == pytest.approx(50)
    assert found.output_tokens == 900
    assert found.step_gap_ms.n == found.token_itl_ms.n == 90 * 9
    assert found.step_gap_ms.worst == pytest.approx(10)
    assert found.step_ms == pytest.approx(10)
    # The window goes from the first end to the first end after the last start; the first request's ten tokens lie before it.
    assert found.window_s == pytest.approx(13.2 - 0.14)
    assert found.output_tok_s == pytest.approx(890 / (13.2 - 0.14))
    reason = verdict(found)
    assert "10 of 100 requests failed (3 cut, 7 http-500)" in reason
    assert verdict(found, FigureRules(error_limit=0.1)) == ""
    made = cell(CellName("a", "s", 1), [TrialData(1, 1, "", cell_data((*good, *refused, *cut)))])
    assert (made.state, made.reason) == ("invalid", reason)
    assert made.pooled == found


@pytest.mark.parametrize(("failed", "stands"), [(1, True), (2, False)])
def test_one_failure_in_a_hundred_is_borne(failed: int, stands: bool) -> None:
    """The error limit is 1 %: one of a hundred stands beside the figures, two make the cell invalid."""
    records = [record(n, started_s=n * 0.1) for n in range(100)]
    records[:failed] = [replace(one, outcome="http-500") for one in records[:failed]]
    found = figures([cell_data(tuple(records))])
    assert found.failures == {"http-500": failed}
    assert (verdict(found) == "") is stands


def test_peak_below_mean() -> None:
    """Ten tokens a second, and 361 in one second of big chunks: the peak is 361 tok/s, not its 10 chunks; the mean is below.

    Source: sglang#33193 (a peak of 111 printed beside a mean of 414.75).
    """
    records = [
        replace(record(n, started_s=n * 1.0, gap_s=0.09, tokens=40 if n == 20 else 1), ended_s=n + 0.97)
        for n in range(40)
    ]
    found = figures([cell_data(tuple(records))])
    assert found.window_s == pytest.approx(39)
    assert found.output_tok_s == pytest.approx((38 * 10 + 361) / 39)
    assert found.peak_tok_s == pytest.approx(361)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 50)), min_size=1, max_size=60),
    st.floats(0.01, 40),
    st.floats(0, 1e6),
)
def test_the_peak_is_never_below_the_mean(
    parts: list[tuple[float, int]], length_s: float, began_s: float
) -> None:
    """For any events in any window: best bin ≥ tokens / length, by construction."""
    window = Window(began_s, began_s + length_s, True)
    events = [(began_s + share * window.length_s, tokens) for share, tokens in parts]
    mean = sum(tokens for _, tokens in events) / window.length_s
    assert peak_tok_s(events, window) >= mean * (1 - 1e-9)


@pytest.mark.parametrize(("tokens", "coarse"), [(1, False), (2, True), (20, True)])
def test_chunks_of_two_tokens_without_a_draft_are_coarse(tokens: int, coarse: bool) -> None:
    """A step without a draft makes one token: a chunk of two is two steps, whose gap is no step's."""
    records = tuple(record(n, started_s=n * 1.0, chunks=30, tokens=tokens) for n in range(4))
    found = figures([cell_data(records)])
    assert any("chunk gaps are coarse" in warning for warning in found.warnings) is coarse
    assert (found.step_ms is None) is coarse


def test_stream_interval_warns() -> None:
    """One chunk of 20 tokens each 749.75 ms: token ITL near 37 ms, a warning, and no step time (vllm#31014)."""
    records = tuple(
        record(n, started_s=n * 10.0, chunks=11, tokens=20, first_tokens=20, gap_s=0.74975) for n in range(4)
    )
    found = figures([cell_data(records)])
    assert found.token_itl_ms.p50 == pytest.approx(37.49, abs=0.01)
    assert found.step_gap_ms.p50 == pytest.approx(749.75)
    assert found.tpot_ms.p50 == pytest.approx(37.49, abs=0.01)
    assert found.step_ms is None
    assert found.tokens_per_chunk == 20
    assert any("chunk gaps are coarse: a chunk holds 20.0 tokens" in warning for warning in found.warnings)


def test_coarse_chunks_hide_the_edges_of_steps_not_their_mean() -> None:
    """Six tokens a chunk each 60 ms, two of them a step by the engine's count: steps of 20 ms, and the warning stands."""
    records = tuple(
        record(n, started_s=n * 1.0, chunks=11, tokens=6, first_tokens=6, gap_s=0.06) for n in range(4)
    )
    counted = trace(
        counters(steps=0, generation=0, first=0),
        counters(drafts=100, proposed=300, accepted=100, steps=100, generation=204, first=4),
    )
    found = figures([cell_data(records, counted=counted, draft_length=3)])
    assert found.acceptance.tokens_per_step == pytest.approx(2.0)
    assert found.step_ms == pytest.approx(20.0)
    assert any("coarse" in warning for warning in found.warnings)


def test_a_draft_of_four_is_not_coarse() -> None:
    """Three tokens a chunk with K = 4 are one step: no warning, and the step time is the gap."""
    records = tuple(record(n, started_s=n * 1.0, chunks=40, tokens=3, gap_s=0.02) for n in range(9))
    found = figures([cell_data(records, draft_length=4)])
    assert found.step_ms == pytest.approx(20)
    assert not [warning for warning in found.warnings if "coarse" in warning]


def test_a_request_without_a_token_is_counted_beside() -> None:
    """200 with no token at all: out of the percentiles, among the failures."""
    empty = record(5, started_s=2.0, chunks=0)
    found = figures([cell_data((record(1), empty))])
    assert (found.ok, found.failures, found.ttft_ms.n) == (1, {"no-output": 1}, 1)


def test_a_clock_that_jumps_is_named() -> None:
    """A record whose events run backwards is no latency: it is counted as clock-jumped."""
    jumped = replace(record(2, started_s=5.0), ended_s=1.0)
    found = figures([cell_data((record(1), jumped))])
    assert found.failures == {"clock-jumped": 1}
    assert found.e2e_ms.worst == pytest.approx(140)


def test_no_request_at_all_is_an_error_with_a_hint() -> None:
    """Nothing recorded: MeasurementError, not zeros."""
    with pytest.raises(MeasurementError, match="recorded no request") as caught:
        figures([cell_data(())])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("n", "p95", "p99"), [(71, False, False), (72, True, False), (367, True, False), (368, True, True)]
)
def test_a_tail_needs_its_n(n: int, p95: bool, p99: bool) -> None:
    """p95 from n = 72 and p99 from n = 368 on; n always, and the worst value."""
    found = of_values([float(value) for value in range(n)])
    assert (found.n, found.p95 is not None, found.p99 is not None) == (n, p95, p99)
    assert found.worst == n - 1


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=300))
def test_the_curve_is_the_percentiles(values: list[float]) -> None:
    """Below 2,000 values the curve is exactly the nearest-rank percentiles; it never falls."""
    found = curve(sorted(values))
    assert found == [percentile(values, percent) for percent in range(1, 100)]
    assert found == sorted(found)


def test_a_long_curve_is_sub_sampled_truly() -> None:
    """Of 100,000 values, 2,000 give the same percentiles within a thousandth of the rank."""
    found = curve([float(value) for value in range(100_000)])
    assert found == pytest.approx([1000 * percent for percent in range(1, 100)], abs=100)


def test_queue_waits_are_upper_bounds() -> None:
    """Buckets give upper bounds; a percentile in the unbounded bucket is None, and the cell says what they are."""
    waits = ((0.1, 60.0), (0.5, 38.0), (math.inf, 2.0))
    found = of_histogram([waits])
    assert (found.n, found.p50, found.p95, found.p99, found.worst) == (100, 100, 500, None, None)
    with_waits = figures([replace(cell_data((record(),)), counters=CounterTrace(queue_waits_s=waits))])
    assert any("upper bounds" in warning for warning in with_waits.warnings)


def test_the_steady_window_leaves_out_both_ends() -> None:
    """From the end of the first wave to the first end after the last start; C under way on average in it; throughput exact."""
    records = closed_loop(8, 12, length_s=5.0)
    window = steady_window(records, 8)
    assert window.steady
    assert window.began_s == pytest.approx(sorted(one.ended_s for one in records)[7])
    assert window.ended_s == pytest.approx(sorted(one.ended_s for one in records)[-8])
    assert running_mean(records, window) == pytest.approx(8, rel=0.01)
    found = figures([cell_data(records, 8)])
    assert found.output_tok_s == pytest.approx(8 * 100 / 5.0, rel=0.01)
    assert found.running_mean == pytest.approx(8, rel=0.01)


def test_a_short_cell_is_not_steady_but_its_ramps_are_off() -> None:
    """Too few seconds or requests: what lies between the first wave and the last, not steady, with its reason; less than two
    waves: the whole run."""
    short = steady_window(closed_loop(4, 4), 4)
    assert not short.steady
    assert short.began_s == max(one.ended_s for one in closed_loop(4, 4)[:4])
    assert steady_window(closed_loop(4, 1), 4).began_s == 0
    assert "3" in short.reason
    assert "requests" in short.reason
    assert "less than two waves" in steady_window(closed_loop(4, 1), 4).reason
    quick = steady_window(closed_loop(2, 12), 2, CPU_RULE)
    assert quick.steady
    assert "CPU" in quick.reason
    assert not steady_window(closed_loop(2, 12), 2, GPU_RULE).steady


def test_trials_are_pooled_by_samples_and_seconds() -> None:
    """Two trials: n adds up, throughput is all tokens over all seconds, the peak the best of both."""
    slow, quick = closed_loop(2, 10, length_s=5.0), closed_loop(2, 10, length_s=4.0)
    rules = FigureRules(steady=SteadyRule(10, 3))
    one, two = (figures([cell_data(part, 2)], rules=rules) for part in (slow, quick))
    both = figures([cell_data(slow, 2), cell_data(quick, 2)], CellPrice(3.6, 2), rules)
    assert both.requests == 40
    assert both.e2e_ms.n == 40
    assert both.window_s == pytest.approx(one.window_s + two.window_s)
    assert one.output_tok_s is not None
    assert two.output_tok_s is not None
    assert both.output_tok_s is not None
    assert one.output_tok_s < both.output_tok_s < two.output_tok_s
    assert both.peak_tok_s == max(one.peak_tok_s or 0, two.peak_tok_s or 0)
    assert both.usd_per_million_output_tokens == pytest.approx(7.2 / (both.output_tok_s * 3600) * 1e6)


def test_gpu_use_is_carried_over() -> None:
    """Mean utilisation, highest memory; none without an accelerator."""
    data = cell_data((record(),))
    assert figures([data]).gpu is None
    used = [
        replace(data, load=replace(data.load, gpu=GpuUse("H200", share, memory, 600.0)))
        for share, memory in ((0.5, 10), (0.9, 7))
    ]
    gpu = figures(used).gpu
    assert gpu is not None
    assert (gpu.utilisation_mean, gpu.memory_peak_bytes, gpu.power_mean_w) == (pytest.approx(0.7), 10, 600.0)


def test_cell_states() -> None:
    """Missing without trials, failed without records, invalid after a restart, ok with one trial lost and said."""
    name = CellName("a", "s", 1)
    assert cell(name, []).state == "missing"
    failed = cell(name, [TrialData(1, 1, "", failed="the engine ended: out of memory")])
    assert (failed.state, failed.reason) == ("failed", "the engine ended: out of memory")
    good = cell_data((record(),))
    again = replace(good, counters=trace(counters(), counters(), restarted=True))
    dead = cell(name, [TrialData(1, 1, "", again)])
    assert (dead.state, dead.reason) == ("invalid", "the engine restarted")
    half = cell(name, [TrialData(1, 1, "", good), TrialData(2, 2, "", again)])
    assert half.state == "ok"
    assert "trial 2: the engine restarted" in half.reason
    assert half.pooled == figures([good])


def test_natural_end_finds_the_first_difference() -> None:
    """Greedy texts are compared with the baseline's by prompt and turn; the place where they part is told."""
    records = (replace(record(1, prompt="x"), text="abcd"), replace(record(2, prompt="y"), text="same"))
    base = (replace(records[0], text="abXd"), replace(records[1], text="same"))
    found = natural_end(CellName("eagle3", "s", 0), cell_data(records, 0), base, {"x": 7})
    assert found.compared_texts == 2
    assert [(one.prompt_id, one.at_character, one.at_token) for one in found.different] == [("x", 2, 7)]
    assert parting("ab", "abc") == 2
    assert parting("ab", "ab") is None


def test_a_trial_whose_clock_jumped_back_takes_no_time_from_the_others() -> None:
    """A window that ends before it begins has no length: the mean stays a mean of what was seen."""
    jumped = replace(record(1), started_s=26.0, ended_s=0.0, events=())
    whole = figures([cell_data((record(1),), 0)])
    both = figures([cell_data((jumped,), 0), cell_data((record(1),), 0)])
    assert both.window_s == whole.window_s
    assert both.output_tok_s == whole.output_tok_s


moments = st.floats(0, 100, allow_nan=False)


@st.composite
def any_record(draw: st.DrawFn) -> RequestRecord:
    """A request as bad as it gets: failed, without tokens, with a clock that jumps, without a token count."""
    started, ended = draw(moments), draw(moments)
    at = draw(st.lists(moments, max_size=6))
    events = tuple(
        TokenEvent(moment, draw(st.integers(1, 9))) for moment in (at if draw(st.booleans()) else sorted(at))
    )
    told = draw(st.sampled_from([None, sum(event.tokens for event in events)]))
    outcome = draw(st.sampled_from(["ok", "ok", "ok", "cut", "http-429"]))
    return RequestRecord("r", "p", 0, started, ended, events, output_tokens=told, outcome=outcome)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(any_record(), min_size=1, max_size=12), min_size=1, max_size=3), st.integers(0, 6))
def test_no_records_break_the_figures(trials: list[list[RequestRecord]], concurrency: int) -> None:
    """Whatever was recorded: every request is ok or a failure of one kind, the peak is not below the mean."""
    found = figures([cell_data(tuple(records), concurrency) for records in trials])
    assert found.ok + sum(found.failures.values()) == found.requests == sum(map(len, trials))
    if found.output_tok_s is not None:
        assert found.peak_tok_s is not None
        assert found.peak_tok_s >= found.output_tok_s * (1 - 1e-9)
    for quantiles in (found.ttft_ms, found.tpot_ms, found.step_gap_ms, found.token_itl_ms, found.e2e_ms):
        assert not quantiles.n or (quantiles.p50 is not None and quantiles.p50 >= -1)
    assert Figures.model_validate_json(found.model_dump_json()) == found


def test_step_time_is_the_mean_so_that_waits_for_prefills_count() -> None:
    """Speed-up = tokens per step × T(b, 0) ÷ T(b, K) holds of the mean; a median hides one long gap in ten."""
    gaps = [0.010] * 9 + [0.110]
    at, events = 1.0, [TokenEvent(1.0, 1)]
    for gap in gaps:
        at += gap
        events.append(TokenEvent(at, 1))
    one = RequestRecord("1", "p", 0, 0.9, at, tuple(events), output_tokens=11)
    found = figures([cell_data([one, replace(one, id="2")], 1)])
    assert found.step_ms == pytest.approx(20.0)
    assert found.step_gap_ms.p50 == pytest.approx(10.0)

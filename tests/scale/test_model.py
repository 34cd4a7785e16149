"""The model on its virtual clock: declared windows in minutes, measured times kept, nothing lost unseen."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from outrider.core.errors import MeasurementError
from outrider.deploy.scale_model import Fleet, Phase, Site, arrivals
from outrider.deploy.scale_plan import Cpu, Outcome, plan, settled_s
from outrider.deploy.scaling_policy import declared, on_cpu, with_settings
from outrider.deploy.service_times import Point, ServiceTimes, built_in, built_in_text, read_times
from outrider.front.settings import LaneRule

RESULTS = Path(__file__).parents[2] / "results" / "h200"
# One request takes 1 s alone (0.1 + 9 × 0.1), 2 s with ten at once: easy to reckon with.
TIMES = ServiceTimes(
    "made up", "none", "nothing", True, 10, (Point(1, 100.0, 100.0, 100.0, 1.0), Point(10, 200.0, 200.0, 200.0, 1.0))
)  # fmt: skip
BUSY = Phase(30.0, 3600.0)


def site(times: ServiceTimes = TIMES, places: int = 10, queue: int = 10_000, wait_s: float = 3600.0) -> Site:
    """A front that loses nothing, engines that take two minutes to start."""
    return Site(times, places, times.output_tokens, 120.0, LaneRule(queue, wait_s))


def test_the_built_in_times_are_those_of_the_results() -> None:
    """The table in the package says what the committed runs say; `benchmarks` of another day do not creep in."""
    runs = {
        path.stem: RunDocument.model_validate_json(path.read_bytes())
        for path in sorted(RESULTS.glob("*.json"))
    }
    package = Path(__file__).parents[2] / "src" / "outrider" / "deploy" / "h200_times.json"
    assert package.read_text(encoding="utf-8") == built_in_text(runs)
    assert {one.hardware for arms in built_in().values() for one in arms.values()} == {"NVIDIA H200"}


@pytest.mark.parametrize("run", ["llama-3.3-70b", "qwen3-coder-30b-a3b"])
@pytest.mark.parametrize("load", [8, 64, 128])
def test_an_engine_serves_what_was_measured(run: str, load: int) -> None:
    """As many requests at once as in the bench: the model's tokens a second are the run's within a tenth."""
    document = RunDocument.model_validate_json((RESULTS / f"{run}.json").read_bytes())
    cell = document.cell("eagle3-k3", "forecast-128", load)
    assert cell
    assert cell.pooled
    assert cell.pooled.peak_tok_s
    assert cell.pooled.output_tok_s
    times = read_times(run, "eagle3-k3")
    fleet = Fleet(site(times, load), 1)
    for number in range(20 * load):
        fleet.arrive(number * 1e-6)
    while fleet.waiting:
        fleet.advance(fleet.now_s + 0.05)
    found = fleet.served * times.output_tokens / fleet.now_s
    # The mean of a short cell holds its start and end, the best second does not: the model lies between them.
    assert 0.9 * cell.pooled.output_tok_s < found < 1.05 * cell.pooled.peak_tok_s


def test_alone_and_in_company() -> None:
    """A request alone takes TTFT(1) and nine tokens of TPOT(1); ten that come together take those of ten."""
    fleet = Fleet(site(), 1)
    fleet.arrive(0.0)
    fleet.advance(0.999)
    assert fleet.served == 0
    fleet.advance(1.001)
    assert fleet.served == 1
    for _ in range(10):
        fleet.arrive(2.0)
    fleet.advance(2.0 + 0.1 + 9 * 0.2 - 0.01)
    assert fleet.served == 1
    fleet.advance(5.0)
    assert fleet.served == 11


def test_a_replica_that_drains_ends_what_it_has() -> None:
    """It takes nothing new, and is gone with its last request; starting ones go first."""
    fleet = Fleet(site(), 2)
    for _ in range(4):
        fleet.arrive(0.0)
    fleet.scale(3)
    fleet.scale(2)
    assert [one.state for one in fleet.replicas] == ["ready", "ready"]
    fleet.scale(1)
    assert (fleet.ready, len(fleet.replicas), fleet.running) == (1, 2, 4)
    fleet.arrive(0.1)
    assert sorted(one.upstream.in_flight for one in fleet.replicas) == [2, 3]
    fleet.advance(10.0)
    assert (len(fleet.replicas), fleet.served) == (1, 5)


def test_declared_windows_in_minutes() -> None:
    """Load × 6 for an hour on the declared policy: 1 pod per 3 minutes up after 30 s, 1 per 5 minutes down after 10."""
    phases = (Phase(2.0, 600.0), Phase(12.0, 3600.0), Phase(2.0, 3600.0))
    # Kept a little longer than by default: at 8 the load of this test swings between two counts, and a scale-down in a period
    # lets one more come in it.
    policy = with_settings(declared(10), {"running_per_replica": 7.5})
    found = plan(phases, site(), policy, 500.0)
    ups = [change for change in found.changes if change.after > change.before]
    downs = [change for change in found.changes if change.at_s > 4200.0]
    assert ups[0].at_s >= 630.0, "not before the load stood for the up window"
    assert all(later.at_s - sooner.at_s >= 180.0 for sooner, later in itertools.pairwise(ups))
    assert min(one.at_s for one in downs if one.after < 3) >= 4200.0 + 585.0, "not before ten minutes of less"
    assert all(later.at_s - sooner.at_s >= 300.0 for sooner, later in itertools.pairwise(downs))
    assert all(abs(change.after - change.before) == 1 for change in found.changes)
    assert found.moments[-1].declared == 1
    back = settled_s(found, 600.0, 4200.0)
    assert back is not None, "the queue wait returns under target"
    assert back < 600.0 + 3 * 180.0 + 120.0 + 180.0
    assert (found.lost, found.served + found.under_way) == (0, found.arrived)


def test_a_full_queue_and_long_waits_are_counted() -> None:
    """One replica that may not grow under six times its load: every request is accounted for, most are lost."""
    alone = with_settings(declared(10), {"max_replicas": 1})
    full = plan((BUSY,), site(queue=50), alone, 500.0)
    late = plan((BUSY,), site(wait_s=20.0), alone, 500.0)
    assert full.queue_full > full.arrived / 2
    assert full.queue_timeout == 0
    assert late.queue_timeout > late.arrived / 2
    for found in (full, late):
        assert found.arrived == found.served + found.lost + found.under_way
    assert settled_s(full, 0.0, 3600.0) is None


def test_scaling_down_is_not_blind() -> None:
    """Two replicas, well used, no queue: the queue wait alone would take one away, the running requests keep it."""
    phases = (Phase(7.5, 5400.0),)
    both = with_settings(declared(10), {"min_replicas": 1, "running_per_replica": 7.5})
    found = plan(phases, site(), both, 500.0)
    assert {moment.declared for moment in found.moments if moment.at_s > 1200.0} == {3}
    wait_alone = plan(phases, site(), replace(both, metrics=both.metrics[:1]), 500.0)
    assert len([one for one in wait_alone.changes if one.after < one.before]) > 1, "it swings"
    assert wait_alone.over_target_s > 2 * found.over_target_s


def test_a_lane_at_zero_is_woken_by_its_queue() -> None:
    """The front holds the queue while the first replica starts, and the lane sleeps again after the cool-down."""
    lane = with_settings(declared(10), {"min_replicas": 0, "cooldown_s": 300})
    found = plan((Phase(0.0, 300.0), Phase(1.0, 600.0), Phase(0.0, 1200.0)), site(), lane, 500.0)
    assert [moment.declared for moment in found.moments][299] == 0
    assert found.changes[0].reason == "a trigger is active"
    assert found.moments[-1].declared == 0
    assert (found.lost, found.served) == (0, found.arrived)


def test_cpu_hardly_moves() -> None:
    """On CPU, as assumed, a full engine stays under its target: nothing scales. With another assumption it does."""
    phases = (Phase(12.0, 1800.0),)
    still = plan(phases, site(), on_cpu(declared(10), 0.8), 500.0, cpu=Cpu(0.5, 0.7))
    moved = plan(phases, site(), on_cpu(declared(10), 0.5), 500.0, cpu=Cpu(0.1, 0.9))
    assert still.most_replicas == 1
    assert moved.most_replicas > 1


def test_the_same_seed_is_the_same_day() -> None:
    """Arrivals are drawn, not random: a plan can be repeated; another seed is another day of the same mean."""

    def day(seed: int) -> Outcome:
        return plan((Phase(5.0, 600.0),), site(), declared(10), 500.0, seed=seed)

    assert day(1) == day(1)
    assert day(1) != day(2)
    count = len(list(arrivals((Phase(5.0, 10_000.0),), 3)))
    assert 49_000 < count < 51_000


def test_a_load_too_large_is_refused() -> None:
    """Nobody waits an hour for a model."""
    with pytest.raises(ValueError, match="400,000 requests"):
        plan((Phase(1000.0, 3600.0),), site(), declared(10), 500.0)


def test_times_that_are_not_there() -> None:
    """Another arm, or a file that is no run: refused with what there is."""
    with pytest.raises(MeasurementError) as caught:
        read_times("llama-3.3-70b", "medusa")
    assert caught.value.hint == "It has: baseline, eagle3-k3."
    with pytest.raises(MeasurementError, match=r"^gone/run\.json cannot be read"):
        read_times("gone/run.json", None)

"""Fixtures: processes of one test, and a load runner."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.engines.sim.adapter import SimEngine
from outrider.measure.aiperf import AiperfRunner
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
from tests.front.harness import Bed, bed

PROMPTS = tuple(Prompt(f"set/{number}", (f"question {number}",)) for number in range(5))


@pytest.fixture(name="bed")
def fixture_bed() -> Iterator[Bed]:
    """Processes of one test."""
    with bed() as made:
        yield made


@pytest.fixture(scope="session")
def runner() -> AiperfRunner:
    """The real load generator (`make bench-env`); without it the tests that need it fail, they are not skipped."""
    return AiperfRunner(SimEngine().request_acceptance)


@pytest.fixture
def plan() -> Callable[..., LoadPlan]:
    """A small plan against a port, with changes."""

    def made(port: int, **changes: object) -> LoadPlan:
        members: dict[str, object] = {
            "url": f"http://127.0.0.1:{port}",
            "model": "sim",
            "prompts": PROMPTS,
            "concurrency": 2,
            "requests": 6,
            "warmup_requests": 2,
            "output_tokens": 11,
            "timeout_s": 30.0,
        }
        return LoadPlan(**{**members, **changes})  # type: ignore[arg-type]  # a test's own members

    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cell's folder."""
    return tmp_path / "cell"

"""Fixtures: a bed for tests that start their own processes, and one quiet pair that most tests share."""

from collections.abc import Iterator

import pytest

from tests.front.harness import Bed, Front, Sim, bed


@pytest.fixture(name="bed")
def fixture_bed() -> Iterator[Bed]:
    """Processes of one test."""
    with bed() as made:
        yield made


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Front, Sim]]:
    """A front before one engine, shared by the tests of a module; they leave it as they found it."""
    with bed() as made:
        sim = made.sim(ttft_ms=2, step_ms=1, chunks=4)
        yield (
            made.front(
                sim, settings={"body_timeout_s": 2.0, "max_body_bytes": 65536, "max_context_tokens": 4096}
            ),
            sim,
        )

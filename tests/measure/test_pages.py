"""Pages of a server that is not to be trusted: bounded in size and time."""

import os
import time

import httpx
import pytest

from outrider.engines.sim.adapter import SimEngine
from outrider.measure.bounds import MIB, resident_bytes
from outrider.measure.pages import read_body
from outrider.measure.sampling import CounterSampler
from outrider.measure.texts import count_tokens
from tests.front.harness import Bed
from tests.measure.flooding import Flood


def fetched(url: str, **bounds: float) -> bytes | None:
    """The page at this address."""
    with httpx.Client(trust_env=False, timeout=2.0) as client:
        return read_body(client, client.build_request("GET", url), **{"within_s": 2.0, **bounds})  # type: ignore[arg-type]


def test_a_page_is_its_body_and_a_bound_is_a_bound(bed: Bed) -> None:
    """What is there comes whole; one byte more than is allowed, another status or nobody there is None."""
    sim = bed.sim()
    url = f"http://127.0.0.1:{sim.port}/v1/models"
    body = fetched(url)
    assert body is not None
    assert body.startswith(b"{")
    assert fetched(url, most_bytes=len(body)) == body
    assert fetched(url, most_bytes=len(body) - 1) is None
    assert fetched(f"http://127.0.0.1:{sim.port}/nothing") is None
    assert fetched("http://127.0.0.1:9/") is None


@pytest.mark.parametrize("way", ["no-line-end", "trickle"])
def test_a_metrics_page_without_end_costs_its_readings_only(way: str) -> None:
    """A page that floods or never ends: no readings, little memory, and the sampler ends soon; so with the tokenizer's route."""
    flood = Flood(way)
    before = resident_bytes(os.getpid())
    begin = time.monotonic()
    url = f"http://127.0.0.1:{flood.port}"
    with CounterSampler(SimEngine(), f"{url}/metrics", f"{url}/metrics", interval_s=0.02) as sampler:
        pass
    assert sampler.trace().readings == ()
    assert time.monotonic() - begin < 60
    if way != "trickle":
        assert count_tokens(url, "sim", "text") is None
    assert resident_bytes(os.getpid()) - before < 64 * MIB
    flood.close()

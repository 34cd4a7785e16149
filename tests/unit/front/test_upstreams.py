"""The engines behind the front, and what the front takes from a stack."""

import pytest

from outrider.control.upstreams import DraftInForce, Upstream, UpstreamSet
from outrider.core.errors import StackError
from outrider.front.server import refuse_open_door
from outrider.front.settings import FrontSettings, settings_from
from outrider.stack.models import Stack


def test_the_least_busy_ready_engine_with_room_is_picked() -> None:
    """Neither one that is not ready, nor full, nor suspended."""
    upstreams = UpstreamSet()
    for name, ready, in_flight in (("a", True, 2), ("b", True, 1), ("c", False, 0), ("d", True, 3)):
        upstream = Upstream(name, "127.0.0.1", 1, 3, ready=ready)
        for _ in range(in_flight):
            upstream.begin(0.0)
        upstreams.add(upstream)
    picked = upstreams.pick(0.0, "batch")
    assert picked is not None
    assert picked.name == "b"
    picked.suspended_until_s = 5.0
    assert getattr(upstreams.pick(0.0, "batch"), "name", None) == "a"
    assert upstreams.pick(5.0, "batch") is picked
    upstreams.remove("a")
    upstreams.remove("b")
    assert upstreams.pick(9.0, "batch") is None


def test_a_lane_gets_its_own_engines_and_those_of_all_lanes() -> None:
    """An engine that names no lanes serves every lane; one that names some, those alone."""
    upstreams = UpstreamSet()
    upstreams.add(Upstream("batch", "h", 1, 1, ready=True, lanes=frozenset({"batch"})))
    assert upstreams.pick(0.0, "interactive") is None
    assert getattr(upstreams.pick(0.0, "batch"), "name", None) == "batch"
    upstreams.add(Upstream("all", "h", 1, 1, ready=True))
    assert getattr(upstreams.pick(0.0, "interactive"), "name", None) == "all"


def test_changes_are_told() -> None:
    """Add, remove and a change of readiness wake whoever subscribed; saying the same again does not."""
    upstreams, told = UpstreamSet(), []
    upstreams.subscribe(lambda: told.append(len(upstreams)))
    upstreams.add(Upstream("a", "127.0.0.1", 1, 1))
    upstreams.set_ready("a", True)
    upstreams.set_ready("a", True)
    upstreams.remove("a")
    upstreams.remove("a")
    assert told == [1, 1, 0]
    with pytest.raises(KeyError):
        upstreams.set_ready("a", True)


def test_busy_time_gives_the_mean_batch() -> None:
    """One request for 10 s, a second for half of it: 1.5 on average."""
    upstream = Upstream("a", "127.0.0.1", 1, 4)
    upstream.begin(100.0)
    begun = upstream.busy_s(100.0)
    upstream.begin(105.0)
    assert (upstream.busy_s(110.0) - begun) / 10.0 == 1.5
    upstream.end(110.0)
    assert upstream.in_flight == 1


def test_an_engines_key_is_not_shown() -> None:
    """Not in a repr that ends up in a log."""
    assert "secret" not in repr(Upstream("a", "h", 1, 1, api_key="secret"))


def test_the_draft_in_force_has_a_reason() -> None:
    """Both change together."""
    draft = DraftInForce("eagle3")
    draft.set("off", "it did not pay")
    assert (draft.draft, draft.reason) == ("off", "it did not pay")


def test_settings_come_from_the_stack() -> None:
    """Every limit of `serve` arrives; interactive stands before batch."""
    stack = Stack.model_validate(
        {
            "apiVersion": "outrider/v1alpha1",
            "target": {"model": "org/m", "max_context_tokens": 4096},
            "serve": {
                "port": 0,
                "keys": [{"name": "k", "sha256": "0" * 64, "lane": "batch", "max_concurrency": 2}],
                "lanes": {"interactive": {"max_queue": 7, "queue_timeout_s": 8.0}},
                "max_body_bytes": 2048,
                "extra_routes": ["/tokenize"],
                "log": "json",
            },
        }
    )
    settings = settings_from(stack)
    assert settings.models == ("m",)
    assert list(settings.lanes) == ["interactive", "batch"]
    assert (settings.lanes["interactive"].max_queue, settings.lanes["interactive"].queue_timeout_s) == (
        7,
        8.0,
    )
    assert (settings.keys[0].name, settings.keys[0].lane, settings.keys[0].max_concurrency) == (
        "k",
        "batch",
        2,
    )
    assert (settings.max_body_bytes, settings.extra_routes, settings.log) == (2048, ("/tokenize",), "json")
    assert settings.max_context_tokens == 4096


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])  # noqa: S104  # must be refused
def test_an_open_door_is_refused(host: str) -> None:
    """Every address that is not certainly loopback needs keys."""
    with pytest.raises(StackError) as caught:
        refuse_open_door(FrontSettings(models=("m",), host=host))
    assert "serve.keys" in caught.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    """A newcomer's first run works without any."""
    refuse_open_door(FrontSettings(models=("m",), host=host))

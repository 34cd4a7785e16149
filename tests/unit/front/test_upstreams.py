"""The engines behind the front, and what the front takes from a stack."""

import pytest

from outrider.control.upstreams import Busy, DraftInForce, Upstream, UpstreamSet
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


def pool(*engines: Upstream) -> UpstreamSet:
    """These engines, all ready."""
    upstreams = UpstreamSet()
    for one in engines:
        one.ready = True
        upstreams.add(one)
    return upstreams


def picked(upstreams: UpstreamSet, *drafts: str, lane: str = "interactive") -> str | None:
    """The name of the engine that a request gets."""
    found = upstreams.pick(10.0, lane, drafts)
    return found and found.name


def test_a_request_goes_to_an_engine_that_runs_its_draft() -> None:
    """The least busy of its pool, though another pool is idle; a probe of the other pool goes there."""
    a, b, plain = (
        Upstream(name, "h", 1, 2, draft="off" if name == "plain" else "eagle3")
        for name in ("a", "b", "plain")
    )
    upstreams = pool(a, b, plain)
    a.begin(0.0)
    assert picked(upstreams, "eagle3") == "b"
    assert picked(upstreams, "off") == "plain"
    assert picked(upstreams, "off", "eagle3") == "plain"
    assert picked(upstreams, "eagle3", "off") == "b"


def test_a_full_pool_is_waited_for_and_a_missing_one_is_not() -> None:
    """Full: nothing is picked, unless nothing particular is asked for. Not ready, refusing or gone: the other pool."""
    own, plain = Upstream("own", "h", 1, 1, draft="eagle3"), Upstream("plain", "h", 1, 1, draft="off")
    upstreams = pool(own, plain)
    own.begin(0.0)
    assert picked(upstreams, "eagle3") is None
    assert picked(upstreams) == "plain"
    own.suspended_until_s = 11.0
    assert picked(upstreams, "eagle3") == "plain"
    own.suspended_until_s = 0.0
    own.ready = False
    assert picked(upstreams, "eagle3") == "plain"
    upstreams.remove("own")
    assert picked(upstreams, "eagle3") == "plain"
    plain.begin(0.0)
    assert picked(upstreams, "eagle3") is None


def test_a_probe_does_not_wait_for_its_pool() -> None:
    """Where the probed pool is full or away, the request runs with the draft in force."""
    own, plain = Upstream("own", "h", 1, 1, draft="eagle3"), Upstream("plain", "h", 1, 1, draft="off")
    upstreams = pool(own, plain)
    own.begin(0.0)
    assert picked(upstreams, "eagle3", "off") == "plain"
    own.ready = False
    assert picked(upstreams, "eagle3", "off") == "plain"
    plain.begin(0.0)
    own.end(0.0)
    own.ready = True
    assert picked(upstreams, "eagle3", "off") == "own"


def test_a_lane_without_that_pool_takes_what_it_has() -> None:
    """The batch lane's engines run no draft, whatever is in force."""
    upstreams = pool(
        Upstream("own", "h", 1, 1, lanes=frozenset({"interactive"}), draft="eagle3"),
        Upstream("batch", "h", 1, 1, lanes=frozenset({"batch"}), draft="none"),
    )
    assert picked(upstreams, "eagle3", lane="batch") == "batch"
    assert picked(upstreams, "off") == "own"


def test_an_engine_that_switches_itself_runs_any_draft() -> None:
    """There is one pool then, and a full engine is full."""
    engine = Upstream("a", "h", 1, 1)
    upstreams = pool(engine)
    assert [picked(upstreams, draft) for draft in ("eagle3", "ngram", "off")] == ["a"] * 3
    engine.begin(0.0)
    assert picked(upstreams, "off") is None


def test_engines_of_one_device_share_its_places() -> None:
    """What runs on either counts; each has its own batch, and the device the sum of both."""
    device = Busy()
    own = Upstream("own", "h", 1, 3, draft="eagle3", device=device)
    plain = Upstream("plain", "h", 1, 3, draft="off", device=device)
    upstreams = pool(own, plain)
    own.begin(0.0, "eagle3")
    own.begin(0.0, "eagle3")
    assert picked(upstreams, "off") == "plain"
    plain.begin(5.0, "off")
    assert picked(upstreams, "off") is None
    assert picked(upstreams) is None
    assert (own.in_flight, plain.in_flight, device.in_flight) == (2, 1, 3)
    assert (own.busy_s(10.0), plain.busy_s(10.0), device.so_far_s(10.0)) == (20.0, 5.0, 25.0)
    own.end(10.0, "eagle3")
    assert picked(upstreams, "off") == "plain"


def test_the_coming_draft_is_the_next_one() -> None:
    """Whoever looks before it dispatches sees what it will dispatch, and looking counts nothing."""
    draft = DraftInForce("off")
    draft.set("off", "it did not pay", "eagle3", 0.3)
    seen = []
    for _ in range(200):
        assert draft.coming == draft.coming
        coming = draft.coming
        assert coming[-1] == "off"
        seen.append(draft.next())
        assert seen[-1] == coming[0]
    assert 55 <= seen.count("eagle3") <= 65
    draft.set("eagle3", "good again", pinned=True)
    assert (draft.coming, draft.pinned) == (("eagle3",), True)


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
            "slo": {"queue_wait_p90_ms": 250.0},
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
    assert settings.patience_s == 0.25


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

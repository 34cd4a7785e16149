"""The routes the front answers or passes on, and who may use them."""

import hashlib

import pytest

from tests.front.harness import CHAT, Bed, Front, Sim, ask, chat

Pair = tuple[Front, Sim]
ANYWHERE = "0.0.0.0"  # noqa: S104  # that this is refused without keys is what is tested


def key_rule(name: str, key: str, **members: object) -> dict[str, object]:
    """A configured key."""
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **members}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("POST", "/v1/load_lora_adapter", 404, "not_found"),
        ("POST", "/v1/unload_lora_adapter", 404, "not_found"),
        ("POST", "/sleep", 404, "not_found"),
        ("POST", "/tokenize", 404, "not_found"),
        ("GET", "/sim/last", 404, "not_found"),
        ("GET", "/v1/chat/completions/../../metrics", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", CHAT, 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
    ],
)
def test_the_allow_list(pair: Pair, method: str, path: str, status: int, code: str) -> None:
    """What is not listed is 404, a wrong method 405, each in OpenAI's form."""
    answer = ask(pair[0].port, method, path, b"{}" if method == "POST" else None)
    assert (answer.status, answer.error["code"]) == (status, code)


def test_extra_routes_are_passed_on(bed: Bed) -> None:
    """A route the stack names reaches the engine, without a stamp and without engine-only members."""
    sim = bed.sim()
    front = bed.front(sim, settings={"extra_routes": ["/tokenize"]})
    answer = ask(front.port, "POST", "/tokenize", b'{"model":"sim","prompt":"x"}')
    assert (answer.status, answer.error["message"]) == (404, "Not Found")


def test_models_stand_without_an_engine(bed: Bed) -> None:
    """The model list is the front's own knowledge, so that it answers while an engine restarts."""
    front = bed.front(settings={"models": ["sim", "org/other"], "max_context_tokens": 4096})
    models = ask(front.port, "GET", "/v1/models").json()["data"]
    assert [(m["id"], m["object"], m["max_model_len"]) for m in models] == [
        ("sim", "model", 4096),
        ("org/other", "model", 4096),
    ]
    assert ask(front.port, "GET", "/v1/models/org/other").json()["id"] == "org/other"
    assert "version" in ask(front.port, "GET", "/version").json()


def test_readiness(bed: Bed) -> None:
    """/healthz is good while the process lives; /readyz says why not until an engine is ready."""
    front = bed.front()
    assert ask(front.port, "GET", "/healthz").status == 200
    answer = ask(front.port, "GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"ready": False, "reason": "no engine is ready"})
    assert front.metric("outrider_ready") == 0
    assert ask(bed.front(bed.sim()).port, "GET", "/readyz").status == 200


def test_head_has_no_body(pair: Pair) -> None:
    """HEAD on a GET route is its head alone."""
    answer = ask(pair[0].port, "HEAD", "/healthz")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_an_unknown_model_is_not_found(pair: Pair) -> None:
    """OpenAI's model_not_found, with the name that is served."""
    answer = ask(pair[0].port, "POST", CHAT, chat(model="gpt-4"))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
    assert "sim" in answer.error["message"]


def test_keys(bed: Bed) -> None:
    """Without or with a wrong key nothing but health and metrics answers; a key's name is logged and counted, the key never."""
    sim = bed.sim()
    front = bed.front(
        sim, settings={"host": ANYWHERE, "keys": [key_rule("one", "sk-one"), key_rule("two", "sk-two")]}
    )
    for headers in ({}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Basic sk-one"}):
        for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/version")):
            answer = ask(front.port, method, path, chat() if method == "POST" else None, **headers)
            assert (answer.status, answer.error["type"]) == (401, "authentication_error")
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert ask(front.port, "GET", path).status == 200
    for key in ("sk-one", "sk-two"):
        assert ask(front.port, "POST", CHAT, chat(), Authorization=f"Bearer {key}").status == 200
    assert front.metric('outrider_key_output_tokens_total{key="two"}') > 0
    front.end()
    assert [f"key={name}" in front.log() for name in ("one", "two", "anonymous")] == [True, True, False]
    assert not any(secret in front.log() for secret in ("sk-one", "sk-two", "sk-wrong", "hello"))


def test_an_open_door_is_refused(bed: Bed) -> None:
    """Listening where other machines reach needs keys, and the error says what to do."""
    with pytest.raises(AssertionError, match=r"without API keys[\s\S]*serve\.keys"):
        bed.front(settings={"host": ANYWHERE})


def test_a_taken_port_is_told(bed: Bed, pair: Pair) -> None:
    """The error names the port and what to do next."""
    with pytest.raises(AssertionError, match=rf"Port {pair[0].port}.*is taken[\s\S]*serve\.port"):
        bed.front(settings={"port": pair[0].port})

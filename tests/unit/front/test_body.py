"""The edit of a request's body: validated, ours set, engine-only members gone, all other bytes kept."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import RequestError
from outrider.front.body import ENGINE_ONLY, Rules, edit, member_texts
from outrider.front.routes import Routes

CHAT, _ = Routes(()).find("POST", "/v1/chat/completions")
RESPONSES, _ = Routes(("/v1/responses",)).find("POST", "/v1/responses")
RULES = Rules(frozenset({"m"}))
STAMP = member_texts({"vllm_xargs": {"outrider_draft": "ngram"}})
STAMP_TEXT = '"vllm_xargs":{"outrider_draft":"ngram"}'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
blanks = st.text(alphabet=" \t\n\r", max_size=3)
other_keys = st.text(max_size=8).filter(
    lambda key: (
        key not in ENGINE_ONLY | {"model", "stream", "stream_options", "n", "messages", "prompt", "input"}
    )
)


def sent(body: str | bytes, rules: Rules = RULES) -> str:
    """What would be sent for a chat body."""
    raw = body if isinstance(body, bytes) else body.encode()
    return edit(raw, CHAT, rules).stamped(STAMP).decode()


@st.composite
def objects(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> list[str]:
    """Texts of members, with blanks wherever JSON allows them and keys in any spelling."""
    members = draw(st.dictionaries(keys, json_values, max_size=5))
    texts = []
    for key, value in members.items():
        spelt = json.dumps(key, ensure_ascii=draw(st.booleans()))
        valued = json.dumps(value, ensure_ascii=draw(st.booleans()))
        texts.append(f"{draw(blanks)}{spelt}{draw(blanks)}:{draw(blanks)}{valued}{draw(blanks)}")
    return texts


def encodable(text: str) -> bool:
    """Whether a text has no lone surrogate, which UTF-8 cannot hold."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


@given(objects(other_keys), blanks, blanks)
def test_all_other_bytes_stay(texts: list[str], before: str, after: str) -> None:
    """Without members that concern us, the body is the client's own with our stamp set in front, byte for byte."""
    inner = ",".join(texts)
    if not encodable(inner):
        return
    comma = "," if texts else ""
    assert sent(f"{before}{{{inner}}}{after}") == f"{before}{{{STAMP_TEXT}{comma}{inner}}}{after}"


@given(objects(other_keys), objects(st.sampled_from(sorted(ENGINE_ONLY))), st.randoms())
def test_engine_only_members_are_cut_out(texts: list[str], forbidden: list[str], random: Any) -> None:
    """Wherever engine-only members stand and however their values look, what is left is the others, byte for byte."""
    if not encodable(",".join(texts + forbidden)):
        return
    places = [True] * len(texts) + [False] * len(forbidden)
    random.shuffle(places)
    ours, theirs = iter(texts), iter(forbidden)
    mixed = [next(ours) if mine else next(theirs) for mine in places]
    assert sent("{" + ",".join(mixed) + "}") == "{" + ",".join([STAMP_TEXT, *texts]) + "}"


@given(st.sampled_from(sorted(ENGINE_ONLY)), st.data())
def test_no_spelling_smuggles_a_stamp(key: str, data: st.DataObject) -> None:
    """A forbidden member written with escapes, once or several times, does not come through."""
    spellings = [
        "".join(f"\\u{ord(c):04x}" if data.draw(st.booleans()) else c for c in key)
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    body = (
        "{" + ",".join(f'"{spelling}":{{"outrider_draft":"eagle3"}}' for spelling in spellings) + ',"seed":1}'
    )
    assert sent(body) == "{" + STAMP_TEXT + ',"seed":1}'


def test_client_fields_that_only_look_forbidden_stay() -> None:
    """Nested members of a forbidden name, and texts that hold one, are the client's own business."""
    body = '{"metadata":{"vllm_xargs":1},"user":"\\"priority\\":1"}'
    assert sent(body) == "{" + STAMP_TEXT + "," + body[1:]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", '"stream_options":{"include_usage":true},'),
        (',"stream_options":null', '"stream_options":{"include_usage":true},'),
        (',"stream_options":{"include_usage":false}', '"stream_options":{"include_usage":true},'),
        (',"stream_options":{"continuous_usage_stats":true}', '"stream_options":{"include_usage":true},'),
        (
            ',"stream_options":{"include_obfuscation":false}',
            '"stream_options":{"include_obfuscation":false,"include_usage":true},',
        ),
    ],
)
def test_usage_is_asked_for(options: str, expected: str) -> None:
    """A stream whose client did not ask for usage asks for it, and we know to take it out again."""
    edited = edit(f'{{"stream":true{options}}}'.encode(), CHAT, RULES)
    assert edited.usage_is_ours
    assert edited.stamped(()).decode() == "{" + expected + '"stream":true}'


@pytest.mark.parametrize(
    "body",
    [
        '{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}',
        '{"stream":true,"stream_options":"x"}',
        '{"stream":false}',
        '{"stream":null}',
        "{}",
    ],
)
def test_usage_is_not_ours(body: str) -> None:
    """A client that asked itself keeps its options and its usage chunk; without a stream nothing is asked."""
    edited = edit(body.encode(), CHAT, RULES)
    assert not edited.usage_is_ours
    assert edited.stamped(()).decode() == body


def test_other_routes_get_no_usage_option() -> None:
    """`stream_options` is only set where the route knows it."""
    assert not edit(b'{"stream":true}', RESPONSES, RULES).usage_is_ours


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"a"', "invalid_json"),
        (b'{"a":1', "invalid_json"),
        (b'{"a":1,}', "invalid_json"),
        (b'{"a":1}x', "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b'{"a":NaN}', "invalid_json"),
        (b'{"a":-Infinity}', "invalid_json"),
        (b'{"a":"\n"}', "invalid_json"),
        (b'{"a":' + b"9" * 5000 + b"}", "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b'{"a":"\xff"}', "invalid_utf8"),
        (b'{"a":"\xed\xa0\x80"}', "invalid_utf8"),
        ('{"a":1}'.encode("utf-16"), "invalid_utf8"),
        (b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}", "invalid_json"),
        (b'{"stream":true,"stream":false}', "duplicate_member"),
        (b'{"model":"m","\\u006dodel":"m"}', "duplicate_member"),
        (b'{"stream":1}', "invalid_type"),
        (b'{"stream":"true"}', "invalid_type"),
        (b'{"model":7}', "invalid_type"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(257)) + b"}", "too_many_members"),
        (b'{"messages":["_url"' + b",[]" * 100_001 + b"]}", "too_many_parts"),
        (b'{"n":129}', "too_many_answers"),
        (b'{"n":' + b"9" * 4000 + b"}", "too_many_answers"),
        (b'{"n":"129"}', "invalid_type"),
        (b'{"n":true}', "invalid_type"),
        (b'{"n":43,"prompt":["a","b","c"]}', "too_many_answers"),
        (b'{"prompt":[' + b",".join([b"[1]"] * 129) + b"]}", "too_many_answers"),
    ],
)
def test_bad_bodies_are_refused(body: bytes, code: str) -> None:
    """Whatever is not one strict JSON object in UTF-8 is a 400 that says why, and never an exception of another kind."""
    with pytest.raises(RequestError) as caught:
        edit(body, CHAT, RULES)
    assert (caught.value.status, caught.value.code) == (400, code)


@given(st.binary(max_size=60))
def test_any_bytes_are_answered(body: bytes) -> None:
    """No body makes the edit fail in any other way than a RequestError; what passes, Python's own parser takes too."""
    status, edited = 200, None
    try:
        edited = edit(body, CHAT, Rules(()))
    except RequestError as error:
        status = error.status
    assert status == 400 if edited is None else isinstance(json.loads(edited.stamped(STAMP)), dict)


@pytest.mark.parametrize("depth", range(950, 1000))
def test_options_nested_too_deeply(depth: int) -> None:
    """What can be read but not written again is a 400, too."""
    body = b'{"stream":true,"stream_options":{"a":' + b"[" * depth + b"]" * depth + b"}}"
    codes = set()
    try:
        edit(body, CHAT, RULES)
    except RequestError as error:
        codes.add(error.code)
    assert codes <= {"invalid_json"}


def test_limits_leave_room() -> None:
    """A long list of token ids is one prompt; as many members and answers as the limits say pass."""
    edit(b'{"n":128,"prompt":[' + b",".join([b"1"] * 4000) + b"]}", CHAT, RULES)
    edit(b"{" + b",".join(b'"%d":0' % n for n in range(256)) + b"}", CHAT, RULES)
    edit(b'{"user":"' + b'[{\\"' * 200_000 + b'"}', CHAT, RULES)


def test_errors_do_not_quote_the_body() -> None:
    """What a client sent does not come back, or into a log, by way of an error."""
    with pytest.raises(RequestError) as caught:
        edit(b'{"messages": secret}', CHAT, RULES)
    assert "secret" not in str(caught.value)


def test_unknown_model_is_404() -> None:
    """A model that is not served is model_not_found, in OpenAI's terms; no model at all is the engine's to judge."""
    with pytest.raises(RequestError) as caught:
        edit(b'{"model":"gpt-4"}', CHAT, RULES)
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")
    edit(b"{}", CHAT, RULES)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
        {"type": "image_url", "image_url": {"url": "HTTPS://example.com/x.png"}},
        {"type": "image_url", "image_url": "file:///etc/passwd"},
        {"image_url": " http://example.com"},
        {"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
        {"type": "input_audio", "input_audio": {"data": "https://example.com/a.wav", "format": "wav"}},
        {"type": "input_image", "file_url": "https://example.com"},
    ],
)
@pytest.mark.parametrize("escape", [False, True])
def test_remote_media_is_refused(part: dict[str, Any], escape: bool) -> None:
    """The engine is never made to fetch what a client names, in any spelling; where the stack allows it, it is."""
    body = json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]})
    if escape:
        body = body.replace("_url", "_\\u0075rl").replace("_audio", "_a\\u0075dio")
    with pytest.raises(RequestError) as caught:
        edit(body.encode(), CHAT, RULES)
    assert caught.value.code == "remote_media_refused"
    edit(body.encode(), CHAT, Rules((), allow_remote_media=True))


def test_data_urls_pass() -> None:
    """Media that the request carries itself is not remote."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA//==", "format": "wav"}}
    body = json.dumps({"messages": [{"role": "user", "content": [part, audio]}]})
    assert sent(body).endswith(body[1:])


@pytest.mark.parametrize(
    ("body", "single"),
    [
        ('{"n":1}', True),
        ('{"n":2}', False),
        ('{"prompt":"x"}', True),
        ('{"prompt":["x"]}', True),
        ('{"prompt":["x","y"]}', False),
        ('{"prompt":[1,2,3]}', True),
        ('{"prompt":[[1],[2]]}', False),
    ],
)
def test_single_answers_are_known(body: str, single: bool) -> None:
    """A time per token is only told of requests that have one answer to one prompt."""
    assert edit(body.encode(), CHAT, RULES).single is single

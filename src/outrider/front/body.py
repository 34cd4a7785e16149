"""The one edit of a request's body, on its text: what is not touched keeps its bytes.

The body is read once, member by member, which validates it; members that only we may set are cut out under every
spelling (escaped keys, duplicates), and ours are put in front. Pure functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # the C scanner of the standard library; typeshed omits it
from typing import NamedTuple

from outrider.core.errors import RequestError
from outrider.front.errors import bad_request
from outrider.front.routes import Route

# Members that clients must not set, because they reach past the client's own request: into other tenants' cache entries
# and turns, into other hosts, into the scheduler, into ids of other requests.
# Source: vllm/entrypoints/openai/{chat_completion,completion,responses}/protocol.py, 0.32.0
ENGINE_ONLY = frozenset(
    {"cache_salt", "priority", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "request_id"}
)
_READ = frozenset({"model", "stream", "stream_options", "n", "prompt"})
_PROMPTS = frozenset({"messages", "prompt", "input"})
MAX_MEMBERS = 256
MAX_SEQUENCES = 128
# Lists and objects in all: the scanner builds them in one go, during which no other thread has its turn.
MAX_PARTS = 100_000
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_ASK_USAGE = '"stream_options":{"include_usage":true}'


# A top-level member: decoded key and value, and the text between its commas, whitespace included.
Member = tuple[str, object, str]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the body may and must hold: `models` (empty: any), and the members that are `dropped`."""

    models: Collection[str]
    dropped: Collection[str] = ENGINE_ONLY
    allow_remote_media: bool = False


class EditedBody(NamedTuple):
    """An edited body without its stamp, and what the front must know of it.

    `members` are the texts between the commas, joined, `before` and `after` what stands around them: bytes, because many
    of them wait in memory. `usage_is_ours`: usage was asked for by us, so its chunk is taken out again. `single`: one
    answer to one prompt, so that a time per token has a meaning.
    """

    before: bytes
    members: bytes
    after: bytes
    usage_is_ours: bool
    single: bool

    def stamped(self, stamp: Sequence[str]) -> bytes:
        """The bytes to send, with these members (`member_texts`) first."""
        ours = [text.encode() for text in stamp]
        members = b",".join([*ours, self.members] if self.members else ours)
        return b"%b%b%b" % (self.before, members, self.after)


def member_texts(members: Mapping[str, object]) -> tuple[str, ...]:
    """Members as they are written into a body."""
    return tuple(f"{json.dumps(key)}:{_compact(value)}" for key, value in members.items())


def edit(body: bytes, route: Route, rules: Rules) -> EditedBody:
    """Check a body and cut out what clients must not set. Raises RequestError 400, or 404 for an unknown model."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise bad_request(
            f"The body is not UTF-8: {error.reason} at byte {error.start}.", code="invalid_utf8"
        ) from None
    # Brackets inside of strings count only where there are too many at all.
    if _brackets(text) > MAX_PARTS and _brackets(_STRING.sub("", text)) > MAX_PARTS:
        raise bad_request(f"The body holds more than {MAX_PARTS} lists and objects.", code="too_many_parts")
    before, members, after = _members(text)
    # Without these letters no key names media, however it is spelt.
    may_hold_media = not rules.allow_remote_media and ("_url" in text or "_audio" in text or "\\u" in text)
    read: dict[str, object] = {}
    for key, value, _ in members:
        if key in _READ:
            if key in read:
                raise bad_request(f"The body sets {key!r} twice.", code="duplicate_member", param=key)
            read[key] = value
        if may_hold_media and key in _PROMPTS:
            _refuse_remote_media(value, key)
    _check_model(read.get("model"), rules)
    stream = read.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise bad_request("`stream` must be true or false.", code="invalid_type", param="stream")
    ours = _usage_options(read.get("stream_options")) if route.usage_chunk and stream else None
    replaced = "stream_options" if ours is not None else None
    kept = [piece for key, _, piece in members if key not in rules.dropped and key != replaced]
    if ours is not None:
        kept.insert(0, ours)
    return EditedBody(
        before.encode(),
        ",".join(kept).encode(),
        after.encode(),
        ours is not None,
        _sequences(read.get("n"), read.get("prompt")) == 1,
    )


def _sequences(n: object, prompts: object) -> int:
    """How many answers are asked for: one place in the queue must not buy an engine full of them."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, int)):
        raise bad_request("`n` must be a whole number.", code="invalid_type", param="n")
    lists = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
    sequences = (1 if n is None else n) * (len(prompts) if lists and isinstance(prompts, list) else 1)
    if sequences > MAX_SEQUENCES:
        message = (
            f"n × prompts is {sequences}; this server takes at most {MAX_SEQUENCES} answers per request."
        )
        raise bad_request(message[:200], code="too_many_answers", param="n")
    return sequences


def _usage_options(options: object) -> str | None:
    """`stream_options` with usage asked for; None where the client asked itself, or sent what the engine must refuse."""
    if options is None:
        return _ASK_USAGE
    if not isinstance(options, dict) or options.get("include_usage"):
        return None
    # Running usage only counts together with include_usage: a client that left that off has asked for neither.
    others = {key: value for key, value in options.items() if key != "continuous_usage_stats"}
    try:
        return member_texts({"stream_options": {**others, "include_usage": True}})[0]
    except RecursionError:
        raise bad_request(
            "`stream_options` is nested too deeply.", code="invalid_json", param="stream_options"
        ) from None


def _check_model(model: object, rules: Rules) -> None:
    if model is None or not rules.models:
        return
    if not isinstance(model, str):
        raise bad_request("`model` must be a string.", code="invalid_type", param="model")
    if model not in rules.models:
        names = ", ".join(sorted(rules.models))
        message = f"The model {model[:200]!r} is not served here; this is: {names}."
        raise RequestError(404, message, code="model_not_found", param="model")


def _refuse_remote_media(value: object, place: str) -> None:
    """Refuse every `…_url` in messages that is not a data: URL: the engine would fetch it. No recursion."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(inner for inner in item if isinstance(inner, (list, dict)))
        elif isinstance(item, dict):
            for key, inner in item.items():
                if _is_remote(key, inner):
                    message = f"`{key}` must be a data: URL; this server fetches nothing for its clients."
                    raise bad_request(message, code="remote_media_refused", param=place)
                if isinstance(inner, (dict, list)):
                    waiting.append(inner)


def _is_remote(key: str, value: object) -> bool:
    if key.endswith("_url"):
        url = value.get("url") if isinstance(value, dict) else value
        return isinstance(url, str) and not url.startswith("data:")
    if key == "input_audio" and isinstance(value, dict):
        # Base64 by the API's rules; an engine might take an address there.
        return any(isinstance(part, str) and "://" in part for part in value.values())
    return False


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_BLANK = " \t\n\r"


def _members(text: str) -> tuple[str, list[Member], str]:
    """The text up to and with the brace, the members, the text from the closing brace on. Raises RequestError 400."""
    try:
        return _scan(text)
    except RecursionError:
        raise bad_request("The body is nested too deeply.", code="invalid_json") from None
    except IndexError:
        raise bad_request("The body ends in the middle of its JSON.", code="invalid_json") from None
    except ValueError as error:
        # The text of json's own message names a place and never shows what stands there.
        message = getattr(error, "msg", None) or str(error)
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise bad_request(f"The body is not JSON: {message}{place}.", code="invalid_json") from None


def _scan(text: str) -> tuple[str, list[Member], str]:
    at = _skip(text, 0)
    if text[at] != "{":
        raise bad_request("The body must be a JSON object.", code="invalid_json")
    opened = at = at + 1
    members: list[Member] = []
    at = _skip(text, at)
    if text[at] == "}":
        _expect_end(text, at + 1)
        return text[:opened], members, text[opened:]
    start = opened
    while True:
        at = _skip(text, at)
        if text[at] != '"':
            raise json.JSONDecodeError("Expecting a member's name", text, at)
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise json.JSONDecodeError("Expecting ':'", text, at)
        value, at = _decoder.raw_decode(text, _skip(text, at + 1))
        at = _skip(text, at)
        members.append((key, value, text[start:at]))
        if len(members) > MAX_MEMBERS:
            message = f"The body has more than {MAX_MEMBERS} members."
            raise bad_request(message, code="too_many_members")
        if text[at] == "}":
            _expect_end(text, at + 1)
            return text[:opened], members, text[at:]
        if text[at] != ",":
            raise json.JSONDecodeError("Expecting ',' or '}'", text, at)
        start = at = at + 1


def _brackets(text: str) -> int:
    return text.count("[") + text.count("{")


def _skip(text: str, at: int) -> int:
    while text[at] in _BLANK:
        at += 1
    return at


def _expect_end(text: str, at: int) -> None:
    if text[at:].strip(_BLANK):
        raise json.JSONDecodeError("Extra data", text, at)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

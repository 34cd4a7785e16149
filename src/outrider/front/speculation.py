"""`/v1/speculation`: which draft is in force and why; pinning and releasing one."""

from __future__ import annotations

import json
import math
from urllib.parse import parse_qs

from outrider.control.governing import Governing, Speculation
from outrider.core.errors import RequestError
from outrider.front.errors import bad_request

MAX_PIN_BYTES = 4096
_HOW = 'Send {"pin": "DRAFT"}, or {"release": true}.'


def answer(speculation: Speculation, target: bytes) -> bytes:
    """How speculation stands, as JSON; with ``?since=SECONDS`` (since 1970) samples that are newer. Raises RequestError 400."""
    governing = speculation.governing
    if governing is None:
        off = {"policy": "off", "draft": speculation.draft.draft, "why": speculation.draft.reason}
        return json.dumps(off).encode()
    try:
        query = parse_qs(target.decode("latin-1").partition("?")[2], max_num_fields=16)
        since = float(query["since"][-1]) if "since" in query else None
    except ValueError:
        since = math.nan
    if since is None:
        return json.dumps(governing.status()).encode()
    if not math.isfinite(since):
        raise bad_request(
            "`since` must be a number of seconds since 1970.", code="invalid_type", param="since"
        )
    status = json.dumps(governing.status())
    return f'{status[:-1]}, "samples": {governing.past.samples(since)}}}'.encode()


def pin(governing: Governing | None, body: bytes) -> None:
    """Do as the body says. Raises RequestError: 400, or 409 where nothing governs."""
    if governing is None:
        message = (
            "Nothing switches drafts here: the stack says `policy: off`, this engine cannot, or no lane has engines with and "
            "without the draft."
        )
        raise RequestError(409, message, code="policy_off")
    if len(body) > MAX_PIN_BYTES:
        raise RequestError(413, f"The body is larger than {MAX_PIN_BYTES} bytes.", code="body_too_large")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise bad_request(f"The body is not JSON. {_HOW}", code="invalid_json") from None
    if isinstance(asked, dict) and list(asked) == ["release"] and asked["release"] is True:
        governing.pin(None)
        return
    if not isinstance(asked, dict) or list(asked) != ["pin"] or not isinstance(asked["pin"], str):
        raise bad_request(_HOW, code="invalid_pin", param="pin")
    try:
        governing.pin(asked["pin"])
    except ValueError as error:
        raise bad_request(f"{error}.", code="unknown_draft", param="pin") from None

"""Who asks: API keys, known by their hashes alone.

Every configured hash is compared, in constant time each, so that the time of an answer tells nothing about which key
was near. Keys are neither kept nor logged; the client's Authorization header ends here.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from outrider.core.errors import RequestError
from outrider.front.settings import KeyRule


@dataclass(frozen=True, slots=True)
class Caller:
    """A client as admission and the logs know it: the key's name, its lane, its own limit, and whether it may pin drafts."""

    name: str
    lane: str
    max_concurrency: int | None
    admin: bool = False


# Without keys only this machine is served, and whoever is on it may do what its operator may.
ANYBODY = Caller("anonymous", "interactive", None, admin=True)


class Keyring:
    """The configured keys; without any, everybody is `ANYBODY`."""

    def __init__(self, rules: Sequence[KeyRule]) -> None:
        self._callers = [
            (bytes.fromhex(rule.sha256), Caller(rule.name, rule.lane, rule.max_concurrency, rule.admin))
            for rule in rules
        ]

    def identify(self, authorization: bytes) -> Caller:
        """The caller of an Authorization header's value. Raises RequestError 401."""
        if not self._callers:
            return ANYBODY
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not key.strip():
            message = "No API key: send it as `Authorization: Bearer KEY`."
            raise RequestError(401, message, kind="authentication_error", code="missing_api_key")
        digest = hashlib.sha256(key.strip()).digest()
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise RequestError(
                401, "This API key is not known.", kind="authentication_error", code="invalid_api_key"
            )
        return found


def refuse_foreign(host: bytes, origin: bytes) -> None:
    """Without keys, refuse what another site's page sends by way of this machine's browser. Raises RequestError 403.

    Such a page gives itself away by its Origin, or, where its own name was made to point here, by the Host.
    """
    for header, value, place in (("Host", host, host), ("Origin", origin, origin.partition(b"://")[2])):
        if value and not _is_loopback(place):
            message = f"This {header} is not this machine. Without API keys only http://127.0.0.1 and localhost are served."
            raise RequestError(403, message, kind="permission_error", code=f"foreign_{header.lower()}")


@lru_cache(64)
def _is_loopback(place: bytes) -> bool:
    """Whether `host`, `host:port` or `[host]:port` names this machine."""
    text = place.decode("latin-1").lower()
    name, _, port = text[1:].partition("]") if text.startswith("[") else text.partition(":")
    if port.lstrip(":") and not port.lstrip(":").isdigit():
        return False
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

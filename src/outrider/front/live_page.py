"""`/ui`: one page without outside resources; it asks `/v1/speculation` for everything it shows."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from outrider.front.http import Header


@cache
def page() -> bytes:
    """The page's bytes."""
    return resources.files("outrider.data").joinpath("ui/index.html").read_bytes()


def _hash(tag: str) -> str:
    """The Content-Security-Policy source of the page's one inline element of this kind."""
    found = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), page(), re.DOTALL)
    digest = hashlib.sha256(found[1] if found else b"").digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


HEADERS: list[Header] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        f"default-src 'none'; connect-src 'self'; script-src {_hash('script')}; style-src {_hash('style')}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'".encode(),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]

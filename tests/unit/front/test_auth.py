"""API keys: who is who, and who is nobody."""

import hashlib

import pytest

from outrider.core.errors import RequestError
from outrider.front.auth import ANYBODY, Keyring
from outrider.front.settings import KeyRule


def rule(name: str, key: str, lane: str = "interactive") -> KeyRule:
    """A configured key."""
    return KeyRule(name, hashlib.sha256(key.encode()).hexdigest(), lane, 3)


RING = Keyring([rule("first", "sk-1"), rule("second", "sk-2", "batch")])


def test_a_known_key_names_its_caller() -> None:
    """Name, lane and limit come from the key's rule; the scheme's case does not matter."""
    caller = RING.identify(b"bearer sk-2")
    assert (caller.name, caller.lane, caller.max_concurrency) == ("second", "batch", 3)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"", "missing_api_key"),
        (b"Bearer", "missing_api_key"),
        (b"Bearer  ", "missing_api_key"),
        (b"Basic sk-1", "missing_api_key"),
        (b"Bearer sk-3", "invalid_api_key"),
        (b"Bearer sk-1 sk-2", "invalid_api_key"),
        (b"Bearer \xff\x00", "invalid_api_key"),
    ],
)
def test_everybody_else_is_refused(header: bytes, code: str) -> None:
    """401, and the key is not part of what is said."""
    with pytest.raises(RequestError) as caught:
        RING.identify(header)
    assert (caught.value.status, caught.value.code) == (401, code)
    assert "sk-" not in str(caught.value)


def test_without_keys_everybody_is_welcome() -> None:
    """No configured keys: one anonymous caller, whatever the header says."""
    assert Keyring([]).identify(b"Bearer anything") is ANYBODY

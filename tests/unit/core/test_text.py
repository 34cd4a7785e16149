"""Texts of others on a terminal."""

import pytest

from outrider.core.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AL 2.31 … é", "AL 2.31 … é"),
        ("\x1b[2Ja\nb\r", "\\x1b[2Ja\\nb\\r"),
        ("\x9b1m\x7f", "\\x9b1m\\x7f"),
        ("\u202egpj", "\\u202egpj"),
    ],
)
def test_what_is_no_visible_sign_is_escaped(text: str, shown: str) -> None:
    """Escape sequences, line ends, and signs that turn the writing around; letters stay."""
    assert printable(text) == shown

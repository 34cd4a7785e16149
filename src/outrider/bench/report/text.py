"""Numbers and untrusted words as the report prints them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from pydantic import JsonValue

from outrider.bench.document import Quantiles

NONE = "–"
TOO_FEW = "n too small"
# Invisible characters that change how a line is read (ESC sequences in a terminal, text direction): never printed.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: object) -> str:
    """One printable line: control, direction and unassigned characters become spaces, spaces are joined."""
    shown = "".join(" " if unicodedata.category(mark) in _HIDDEN else mark for mark in str(text))
    return " ".join(shown.split())


def number(value: float | None) -> str:
    """Three figures or so: ``0.042``, ``8.31``, ``48.3``, ``1,085``; a dash where there is none."""
    if value is None:
        return NONE
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.0995 or size == 0 else f"{value:.3f}"


def signed(value: float | None) -> str:
    """`number` with its sign, a true minus."""
    return NONE if value is None else ("+" if value >= 0 else "−") + number(abs(value))


def ratio(value: float | None) -> str:
    """Two decimals: speed-ups, acceptance rates and lengths."""
    return NONE if value is None else f"{value:.2f}"


def usd(value: float | None) -> str:
    """``0.91``, ``15.00``; three decimals below ten cents."""
    if value is None:
        return NONE
    return f"{value:.3f}" if value < 0.0995 else f"{value:,.2f}"


def percent(value: float | None) -> str:
    """A ratio 0 to 1 as ``97 %``: for shares and utilisation, never for acceptance."""
    return NONE if value is None else f"{100 * value:.0f} %"


def gibibytes(value: float | None) -> str:
    """``117.2 GiB``."""
    return NONE if value is None else f"{value / 2**30:.1f} GiB"


def count(value: float) -> str:
    """``1,085``."""
    return f"{value:,.0f}"


def percentile(quantiles: Quantiles, name: str) -> str:
    """p50, p95 or p99 of the values: a dash where nothing was seen, `n too small` where too little was."""
    value: float | None = getattr(quantiles, name)
    if value is None:
        return TOO_FEW if quantiles.n else NONE
    return number(value)


def counts(pairs: Mapping[str, int]) -> str:
    """``2 × cut stream, 1 × 500``; ``0`` for none."""
    return ", ".join(f"{number} × {clean(kind)}" for kind, number in pairs.items() if number) or "0"


def flatten(value: JsonValue, path: str = "") -> list[tuple[str, str]]:
    """(dotted name, text) of every leaf, in order; lists of plain values stay on one line."""
    if isinstance(value, dict):
        return [
            leaf for key, inner in value.items() for leaf in flatten(inner, f"{path}.{key}" if path else key)
        ]
    if isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        return [leaf for place, inner in enumerate(value) for leaf in flatten(inner, f"{path}[{place}]")]
    if isinstance(value, list):
        return [(path, " ".join(clean(inner) for inner in value) or NONE)]
    return [(path, NONE if value is None or value == "" else clean(value))]

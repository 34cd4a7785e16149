"""List prices of commercial models: one dated, sourced file that the user can replace.

Source: `prices.toml` beside this module names, for each price, where and when it was read.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from outrider.core.errors import MeasurementError

SCHEMA = "outrider/prices/v1"
VARIABLE = "OUTRIDER_PRICES"
_NUMBERS = ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
_TEXTS = ("name", "source", "dated")
_LARGEST_FILE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ListPrice:
    """What one commercial model asks, USD per 1M tokens in and out; `dated` (``2026-04``) is when `source` was read."""

    name: str
    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    source: str
    dated: str

    def usd_per_million_output(self, input_tokens: float, output_tokens: float) -> float:
        """USD for 1M output tokens together with the input that goes with them in this mix.

        output price + input price × input/output: what is comparable with a machine's price per output token, which pays for
        reading the input too. Raises ValueError without output tokens.
        """
        if output_tokens <= 0:
            raise ValueError("a mix without output tokens")
        share = input_tokens / output_tokens
        return self.usd_per_million_output_tokens + self.usd_per_million_input_tokens * share


def read_prices(
    path: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[ListPrice, ...]:
    """The prices of `path`, else of the file that OUTRIDER_PRICES names, else those that come with Outrider.

    `environment` is the process's unless given. Raises MeasurementError that names file, entry and key.
    """
    named = (os.environ if environment is None else environment).get(VARIABLE)
    path = path or (Path(named) if named else None)
    place = path.name if path else "prices.toml"
    try:
        if path is None:
            text = resources.files("outrider.cost").joinpath("prices.toml").read_text(encoding="utf-8")
        elif path.stat().st_size > _LARGEST_FILE_BYTES:
            raise _wrong(place, f"is larger than {_LARGEST_FILE_BYTES} bytes")
        else:
            text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise _wrong(place, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _wrong(place, f"is not TOML: {error}") from error
    if found.get("schema") != SCHEMA:
        raise _wrong(place, f"has schema {found.get('schema')!r}, not {SCHEMA!r}")
    if extra := sorted(found.keys() - {"schema", "price"}):
        raise _wrong(place, f"has unknown keys: {', '.join(extra)}")
    entries = found.get("price")
    if not isinstance(entries, list) or not entries:
        raise _wrong(place, "has no [[price]]")
    prices = tuple(_price(place, number, entry) for number, entry in enumerate(entries, 1))
    names = [price.name for price in prices]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _wrong(place, f"names {', '.join(twice)} twice")
    return prices


def _price(place: str, number: int, entry: object) -> ListPrice:
    if not isinstance(entry, Mapping):
        raise _wrong(place, f"price {number} is not a table")
    keys = {*_NUMBERS, *_TEXTS}
    if missing := sorted(keys - entry.keys()):
        raise _wrong(place, f"price {number} lacks {', '.join(missing)}")
    if extra := sorted(entry.keys() - keys):
        raise _wrong(place, f"price {number} has unknown keys: {', '.join(extra)}")
    for key in _NUMBERS:
        value = entry[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise _wrong(place, f"price {number}: {key} is {value!r}, not USD from 0 to 1,000,000")
    for key in _TEXTS:
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise _wrong(place, f"price {number}: {key} must be a text that says something")
    return ListPrice(
        name=entry["name"],
        usd_per_million_input_tokens=float(entry["usd_per_million_input_tokens"]),
        usd_per_million_output_tokens=float(entry["usd_per_million_output_tokens"]),
        source=entry["source"],
        dated=entry["dated"],
    )


def _wrong(place: str, what: str) -> MeasurementError:
    return MeasurementError(
        f"the price file {place} {what}", hint="docs/report.md shows its form; without one, ours is used."
    )

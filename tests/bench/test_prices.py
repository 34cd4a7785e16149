"""The price file: dated, sourced, replaceable, and refused with a reason when it is wrong."""

from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.cost.prices import ListPrice, read_prices

GOOD = """schema = "outrider/prices/v1"
[[price]]
name = "X"
usd_per_million_input_tokens = 1
usd_per_million_output_tokens = 2.5
source = "contract"
dated = "2026-11"
"""


def test_ours_say_where_and_when() -> None:
    """Every price that comes with Outrider has a source and a date; the tier is labelled as such."""
    found = {price.name: price for price in read_prices(environment={})}
    assert {"GPT-5.4", "Claude Sonnet tier"} == found.keys()
    assert found["GPT-5.4"].usd_per_million_output_tokens == 15.0
    assert all(price.source and price.dated.startswith("20") for price in found.values())
    assert "tier's price" in found["Claude Sonnet tier"].source


def test_a_mix_pays_for_its_input() -> None:
    """1M out with 2M in: output price + 2 × input price; no output is no mix."""
    price = ListPrice("x", 3.0, 15.0, "s", "2026-01")
    assert price.usd_per_million_output(2000, 1000) == 21.0
    with pytest.raises(ValueError, match="without output"):
        price.usd_per_million_output(1, 0)


def test_the_user_s_file_is_read(tmp_path: Path) -> None:
    """A file of the same form replaces ours."""
    (tmp_path / "p.toml").write_text(GOOD)
    assert read_prices(tmp_path / "p.toml") == (ListPrice("X", 1.0, 2.5, "contract", "2026-11"),)


def test_the_environment_names_the_file_for_every_command(tmp_path: Path) -> None:
    """OUTRIDER_PRICES replaces ours; a path given in code goes first; a wrong name is an error, not ours in silence."""
    (tmp_path / "p.toml").write_text(GOOD)
    (tmp_path / "q.toml").write_text(GOOD.replace('"X"', '"Y"'))
    named = {"OUTRIDER_PRICES": str(tmp_path / "p.toml")}
    assert [price.name for price in read_prices(environment=named)] == ["X"]
    assert [price.name for price in read_prices(tmp_path / "q.toml", named)] == ["Y"]
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_prices(environment={"OUTRIDER_PRICES": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "is not TOML"),
        (GOOD.replace("prices/v1", "prices/v9"), "has schema"),
        (GOOD.replace("= 2.5", "= -1"), "usd_per_million_output_tokens is -1"),
        (GOOD.replace("= 2.5", "= nan"), "usd_per_million_output_tokens is nan"),
        (GOOD.replace("= 2.5", "= true"), "usd_per_million_output_tokens is True"),
        (GOOD.replace("= 2.5", '= "2"'), "usd_per_million_output_tokens is '2'"),
        (GOOD.replace('dated = "2026-11"', ""), "price 1 lacks dated"),
        (GOOD.replace('"contract"', '" "'), "source must be a text"),
        (GOOD + 'note = "x"\n', "price 1 has unknown keys: note"),
        ("more = 1\n" + GOOD, "unknown keys: more"),
        ('schema = "outrider/prices/v1"\n', "has no"),
        ('schema = "outrider/prices/v1"\nprice = [3]\n', "is not a table"),
        (GOOD + GOOD.partition("\n")[2], "names X twice"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, text: str, words: str) -> None:
    """File, entry and key in the message; where to look in the hint."""
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(MeasurementError, match=words) as caught:
        read_prices(tmp_path / "p.toml")
    assert "p.toml" in str(caught.value)
    assert caught.value.hint


def test_a_missing_or_binary_file_is_an_error(tmp_path: Path) -> None:
    """Not found, and not text."""
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_prices(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MeasurementError, match="is not TOML"):
        read_prices(tmp_path / "b.toml")

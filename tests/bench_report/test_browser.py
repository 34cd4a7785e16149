"""The report in a real headless Chromium: what a reader sees is what the document says."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from outrider.bench.document import RunDocument
from tests.chromium import Page, browse

OVERFLOWING = """
[...document.querySelectorAll('main *')].filter(one => !one.closest('.scroll') && !one.closest('svg') && !one.closest('pre')
  && one.getBoundingClientRect().right > WIDTH + 1).map(one => one.tagName + '#' + one.id)
"""
CUT = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2);
  }).map(text => text.textContent);
})
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """One browser for the tests of this module."""
    with browse() as found:
        yield found


def _open(page: Page, folder: Path) -> None:
    page.size(1240, 1400)
    page.media()
    page.open(folder / "report.html")


def _brightness(png: bytes) -> float:
    return ImageStat.Stat(Image.open(io.BytesIO(png)).convert("L")).mean[0]


def test_headline_numbers_are_read_back_from_the_page(
    page: Page, large: RunDocument, large_folder: Path
) -> None:
    """Answers and speed-ups in the rendered page are the document's, and the cells show the rounded numbers."""
    _open(page, large_folder)
    shown = page.js(
        "Object.fromEntries([...document.querySelectorAll('[data-answer]')]"
        ".map(one => [one.dataset.answer, [one.dataset.values, one.textContent]]))"
    )
    assert len(shown) == len(large.answers) > 50
    for answer in large.answers:
        values, text = shown[answer.id]
        assert json.loads(values) == answer.values
        assert answer.text in text
    cells = page.js(
        "[...document.querySelectorAll('[data-figure=speedup]')].map(one => [one.closest('tr').dataset.arm, "
        "one.closest('tr').dataset.set, +one.dataset.concurrency, +one.dataset.value, one.innerText])"
    )
    expected = {(one.arm, one.prompt_set, one.concurrency): one for one in large.speedups}
    assert len(cells) == len(expected)
    for arm, prompt_set, concurrency, value, text in cells:
        one = expected[(arm, prompt_set, concurrency)]
        assert value == one.ratio.value
        assert f"{one.ratio.value:.2f}" in text
        assert ("not steady" in text) is not one.steady


def test_no_request_leaves_and_nothing_is_blocked(page: Page, large_folder: Path) -> None:
    """The browser asks for this one file alone, and its policy has nothing to refuse."""
    _open(page, large_folder)
    page.js("1")
    asked = {
        one["params"]["request"]["url"]
        for one in page.events
        if one.get("method") == "Network.requestWillBeSent"
    }
    assert asked == {(large_folder / "report.html").resolve().as_uri()}
    spoken = [
        one
        for one in page.events
        if one.get("method") in {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
    ]
    assert not spoken


@pytest.mark.parametrize("width", [390, 768, 1240])
def test_no_sideways_scroll_of_the_page(
    page: Page, large_folder: Path, demo_folder: Path, width: int
) -> None:
    """On a phone, a tablet and a desk only tables scroll, inside their own box."""
    for folder in (large_folder, demo_folder):
        _open(page, folder)
        page.size(width, 844, phone=width < 500)
        assert page.js("document.documentElement.scrollWidth") <= width
        assert page.js(OVERFLOWING.replace("WIDTH", str(width))) == []


def test_a_phone_shows_speed_ups_and_that_there_is_more(
    page: Page, large_folder: Path, demo_folder: Path
) -> None:
    """The first speed-up is on the screen, not behind the names; a wide table has a shaded edge, and a line says so."""
    for folder in (large_folder, demo_folder):
        _open(page, folder)
        assert page.js("getComputedStyle(document.querySelector('.narrow')).display") == "none"
        page.size(390, 844, phone=True)
        assert page.js("document.querySelector('[data-figure=speedup]').getBoundingClientRect().right") <= 390
        assert page.js("getComputedStyle(document.querySelector('.narrow')).display") == "block"
    wide = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1)"
    assert page.js(f"{wide}.length") > 0
    assert (
        page.js(f"{wide}.every(one => getComputedStyle(one).backgroundAttachment.includes('local'))") is True
    )


def test_labels_are_inside_their_pictures(page: Page, large_folder: Path) -> None:
    """No axis label or number is cut off by its picture's edge in the page's own font."""
    _open(page, large_folder)
    assert page.js("document.querySelectorAll('figure svg text').length") > 1000
    assert page.js(CUT) == []


def test_light_dark_and_print(page: Page, large_folder: Path, tmp_path: Path) -> None:
    """Screenshots: light is light, dark is dark and its lines change with it; print is light, with every folded part open."""
    _open(page, large_folder)
    colour = "getComputedStyle(document.querySelector('#speedup figure svg path[style], #speedup figure svg path[class]')).stroke"
    light, light_ink = page.screenshot(tmp_path / "light.png"), page.js(colour)
    page.media(scheme="dark")
    dark, dark_ink = page.screenshot(tmp_path / "dark.png"), page.js(colour)
    assert _brightness(light) > 200
    assert _brightness(dark) < 80
    assert light_ink != dark_ink
    page.media(scheme="dark", kind="print")
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.media(kind="print")
    hidden = "[...document.querySelectorAll('details figure')].filter(one => one.getBoundingClientRect().height < 40).length"
    assert page.js(hidden) == 0
    page.media()
    assert page.pdf(tmp_path / "report.pdf").startswith(b"%PDF")


def test_tables_fit_a_printed_page(page: Page, large_folder: Path) -> None:
    """At the width of A4 less its margins no printed table passes the paper's edge."""
    _open(page, large_folder)
    page.media(kind="print")
    page.size(703, 1000)  # 210 mm − 2 × 12 mm at 96 dpi
    wide = (
        "[...document.querySelectorAll('table')]"
        ".filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.id)"
    )
    assert page.js(wide) == []

"""report.html as text: structure, numbers, hostile words, documents with little in them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from outrider.bench.document import RunDocument
from outrider.bench.report import render_html, render_markdown, write_report
from outrider.core.errors import MeasurementError
from tests.bench_report import documents
from tests.bench_report.reading import Tag, markdown_tables, read

ORDER = [
    "answers",
    "run",
    "speedup",
    "map",
    "acceptance",
    "latency",
    "cost",
    "cells",
    "natural",
    "prompts",
    "fallen",
    "provenance",
    "settings",
    "glossary",
    "again",
]
HOSTILE = "<script>alert(1)</script>\"' onload=x |`*[a](javascript:b)* $x^{2}$ \x1b[31m\u202e {{ 7*7 }}"


@pytest.fixture(scope="module")
def page(large_folder: Path) -> Tag:
    """The large report, parsed."""
    return read((large_folder / "report.html").read_text(encoding="utf-8"))


def test_sections_stand_in_the_order_in_which_they_are_read(page: Tag) -> None:
    """Answers at the top, then what was run, then pictures, then tables: the same in every report."""
    assert [one.attributes["id"] for one in page.every("section")] == ORDER


def test_nothing_from_outside_and_no_script(large_folder: Path, page: Tag) -> None:
    """The file opens offline: no script, link, image, import or address of another place."""
    text = (large_folder / "report.html").read_text(encoding="utf-8")
    names = {
        one.name
        for kind in ("script", "link", "img", "iframe", "object", "base", "form")
        for one in page.every(kind)
    }
    assert not names
    assert not re.search(r"@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\"'<> ]+", text)) == {"http://www.w3.org/2000/svg"}
    policy = [
        one for one in page.every("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy[0].attributes["content"].startswith("default-src 'none'")
    assert not [key for one in page.every("td") for key in one.attributes if key.startswith("on")]


def test_size_stays_below_one_and_a_half_megabytes(large_folder: Path) -> None:
    """5 arms × 3 sets × 7 concurrencies fit into a mail."""
    assert (large_folder / "report.html").stat().st_size < 1_500_000


def test_headings_captions_scopes_and_ids(page: Tag) -> None:
    """Headings never skip a level, every table has a caption and scoped heads, no id is used twice, every link has its place."""
    levels = [int(one.name[1]) for one in _in_order(page, {"h1", "h2", "h3", "h4"})]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for table in page.every("table"):
        assert len(table.every("caption")) == 1
        assert all(one.attributes.get("scope") in {"col", "row", "colgroup"} for one in table.every("th"))
    ids = [one.attributes["id"] for one in _in_order(page, None) if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    targets = {one.attributes["href"][1:] for kind in ("a", "use") for one in page.every(kind)}
    assert targets <= set(ids)


def test_every_picture_is_named_and_its_section_has_a_table(page: Tag) -> None:
    """A picture has a title and a description for those who do not see it, and its numbers stand in a table."""
    for section in page.every("section"):
        figures = section.every("figure")
        for figure in figures:
            assert figure.every("figcaption")[0].text
            assert figure.every("title")[0].text
            assert figure.every("desc")[0].text
        assert not figures or section.every("table")
    assert len(page.every("figure")) > 90


def test_numbers_of_the_cells_are_the_documents(large: RunDocument, page: Tag) -> None:
    """Every data-value of the per-cell tables is the document's figure, and the text beside it is that number rounded."""
    seen = 0
    cells = next(one for one in page.every("section") if one.attributes["id"] == "cells")
    for row in cells.every("tr"):
        where = [row.attributes.get(key) for key in ("data-arm", "data-set", "data-concurrency")]
        if None in where:
            continue
        cell = large.cell(str(where[0]), str(where[1]), int(str(where[2])))
        assert cell is not None
        for item in row.every("td"):
            if "data-figure" not in item.attributes:
                continue
            value: object = cell.pooled
            for part in item.attributes["data-figure"].split("."):
                value = getattr(value, part)
            shown = item.attributes["data-value"]
            assert (float(shown) if shown else None) == value
            number = re.match(r"[\d,.]+", item.text)
            if (
                isinstance(value, float)
                and number
                and "%" not in item.text
                and "GiB" not in item.text
                and " W" not in item.text
            ):
                assert float(number[0].rstrip(".").replace(",", "")) == pytest.approx(
                    value, rel=0.06, abs=0.006
                )
            seen += 1
    assert seen > 2000


def test_a_p99_of_too_few_values_is_never_a_number(large: RunDocument, page: Tag) -> None:
    """Where the document has no p99, the page says so in words, everywhere."""
    small = [
        one
        for one in page.every("td")
        if one.attributes.get("data-figure", "").endswith("p99") and not one.attributes["data-value"]
    ]
    assert small
    assert {one.text for one in small} <= {"n too small", "–"}
    assert any(cell.pooled and cell.pooled.e2e_ms.p99 is None for cell in large.cells)


def test_failed_invalid_and_unmeasured_things_are_said(large: RunDocument, page: Tag) -> None:
    """A failed and an invalid cell show their reason, not numbers; an arm without accelerator figures says none."""
    rows = {
        (
            one.attributes.get("data-arm"),
            one.attributes.get("data-set"),
            one.attributes.get("data-concurrency"),
        ): one.text
        for one in page.every("section")[7].every("tr")
    }
    assert "failed: the engine ended" in rows[("eagle3-k7", "gsm8k", "64")]
    assert "invalid: the engine restarted" in rows[("ngram-k3", "mt-bench", "8")]
    assert "none" in rows[("p-eagle-k5", "gsm8k", "8")]
    fallen = page.every("section")[10].text
    assert "CUDA out of memory" in fallen
    assert "restarted during trial 2" in fallen


def test_answers_carry_mark_and_values(large: RunDocument, page: Tag) -> None:
    """Each answer says in words whether it is good or bad, leans or is a caveat, and its values can be read back."""
    items = {
        one.attributes["data-answer"]: one for one in page.every("li") if "data-answer" in one.attributes
    }
    assert sorted(items) == sorted(one.id for one in large.answers)
    for one in large.answers:
        sure = "Good" if one.good else "Bad"
        lean = "Undecided" if one.leans is None else "Leans on" if one.leans else "Leans off"
        word = "Caveat" if one.id.startswith("caveat") else lean if one.good is None else sure
        assert json.loads(items[one.id].attributes["data-values"]) == one.values
        assert word in items[one.id].text
        assert one.text in items[one.id].text
    assert next(iter(items)) == "recommendation"


def test_the_same_document_gives_the_same_bytes(demo: RunDocument, demo_folder: Path) -> None:
    """No time, machine or chance gets into the report."""
    assert render_html(demo) == (demo_folder / "report.html").read_text(encoding="utf-8")
    assert render_markdown(demo) == (demo_folder / "report.md").read_text(encoding="utf-8")


def test_hostile_words_stay_words(demo: RunDocument) -> None:
    """Names and reasons of a document are text: no tag, attribute, link, formula or escape sequence comes of them."""
    dumped = demo.model_dump_json(by_alias=True)
    word = json.dumps(HOSTILE)[1:-1]
    for name in (
        "ngram-k3",
        "gsm8k",
        "bench demo",
        "SmolLM2-135M-Instruct",
        "longer than 2048 tokens",
        "vLLM",
    ):
        dumped = dumped.replace(name, word)
    document = RunDocument.model_validate_json(dumped)
    html = render_html(document)
    page = read(html)
    assert not page.every("script")
    assert not [key for one in _in_order(page, None) for key in one.attributes if key.startswith("on")]
    assert "alert(1)" in page.text
    assert "{{ 7*7 }}" in page.text
    text = render_markdown(document)
    for written in (html, text):
        assert "\x1b" not in written
        assert "\u202e" not in written
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<|(?<!\\)\[a", outside)
    assert all(len({len(row) for row in table}) == 1 for table in markdown_tables(text))


def test_a_cpu_run_shows_ratios_first(demo_folder: Path) -> None:
    """On a CPU no milliseconds or tokens a second stand before the tables that warn of them."""
    page = read((demo_folder / "report.html").read_text(encoding="utf-8"))
    assert "absolute times are not to be quoted" in page.every("header")[0].text
    sections = {one.attributes["id"]: one for one in page.every("section")}
    for name in ORDER[: ORDER.index("cells")]:
        assert not re.search(r"\d\s*(ms\b|tok/s)", sections[name].text), name
    assert "not to be quoted" in sections["cells"].text
    assert "No cost" in sections["cost"].text


def test_an_interrupted_run_says_so_and_keeps_what_stands() -> None:
    """Failed baseline, one trial, missing cells: a banner, no intervals, and the cells that stand."""
    page = read(render_html(documents.partial()))
    assert "This run is not complete. 1 of 8 cells are missing" in page.every("header")[0].text
    assert "not interleaved" in page.every("header")[0].text
    sections = {one.attributes["id"]: one for one in page.every("section")}
    assert "No intervals" in sections["speedup"].text
    assert "server died half way" in sections["fallen"].text
    assert "eagle3-k3" in sections["cells"].text


def test_an_empty_document_still_reads() -> None:
    """No cells, no arms but one, no provenance: every section says what it lacks."""
    page = read(render_html(documents.bare()))
    assert [one.attributes["id"] for one in page.every("section")] == ORDER
    assert not page.every("figure")
    sections = {one.attributes["id"]: one.text for one in page.every("section")}
    assert "No answers" in sections["answers"]
    assert "No speed-up" in sections["speedup"]
    assert "No cost" in sections["cost"]
    assert "not recorded" in sections["run"]
    assert render_markdown(documents.bare()).count("\n## ") == len(ORDER)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path, demo: RunDocument) -> None:
    """The error names the file and says what to do; no half file is left."""
    (tmp_path / "taken").write_text("a file where a folder should be")
    with pytest.raises(MeasurementError, match=r"cannot write report\.html") as caught:
        write_report(demo, tmp_path / "taken")
    assert caught.value.hint
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def _in_order(tag: Tag, names: set[str] | None) -> list[Tag]:
    found = []
    for one in tag.inside:
        found += [one] if names is None or one.name in names else []
        found += _in_order(one, names)
    return found


def test_a_modelled_forecast_says_so_where_its_numbers_stand(demo: RunDocument) -> None:
    """Reckoned speed-ups are called so in a bar at the top, in the heading and in the first line."""
    labels = demo.labels.model_copy(update={"modelled": True, "acceptance": "synthetic", "weights": "dummy"})
    text = render_html(demo.model_copy(update={"labels": labels}))
    assert "Modelled: speed-ups are reckoned" in text
    assert "Speed-up, reckoned" in text
    assert "Reckoned, not measured" in text
    assert "Reckoned" not in render_html(demo)

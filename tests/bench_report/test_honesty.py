"""What a report marks and says: nothing that its intervals do not bear, nothing twice, nothing that was not asked for."""

from __future__ import annotations

from functools import cache

from outrider.bench.document import Cost, Interval, RunDocument
from outrider.bench.report.background import banners, fallen_section, what_was_run
from outrider.bench.report.compose import grouped
from outrider.bench.report.content import Item, Section
from outrider.bench.report.findings import map_section, speedup_section
from outrider.bench.report.look import looks
from outrider.bench.report.money import cost_section
from outrider.bench.report.tables import notes
from outrider.bench.steps import earned, steps_of_set
from tests.bench_report import documents


@cache
def _demo() -> RunDocument:
    return documents.demo()


def _items(section: Section) -> list[Item]:
    return [
        item for block in section.blocks for table in block.tables for row in table.rows for item in row.items
    ]


def _speedups(ratio: Interval) -> Section:
    document = _demo()
    first = document.speedups[0].model_copy(update={"ratio": ratio})
    drawn = document.model_copy(update={"speedups": [first], "crossovers": []})
    return speedup_section(drawn, looks([arm.name for arm in document.arms]))


def test_a_ratio_without_an_interval_has_no_mark() -> None:
    """One trial, or a forecast's reckoned ratio: the number, how many trials it is of, and no ▲; three sure trials have one."""
    for n, words in ((1, "1 trial"), (0, "reckoned")):
        (item,) = [one for one in _items(_speedups(Interval(value=1.29, n=n))) if one.figure == "speedup"]
        assert item.mark == ""
        assert words in item.note
    (wide,) = [
        one
        for one in _items(_speedups(Interval(value=1.49, low=0.13, high=17.6, n=2)))
        if one.figure == "speedup"
    ]
    assert wide.mark == ""
    assert "2 trials" in wide.note
    (sure,) = [
        one
        for one in _items(_speedups(Interval(value=1.49, low=1.4, high=1.6, n=3)))
        if one.figure == "speedup"
    ]
    assert sure.mark == "good"


def test_break_even_is_compared_with_tokens_per_step_set_by_set() -> None:
    """An n-gram draft is silent on most steps: what its steps made stands beside what they need, on each set, without a mark."""
    document = _demo()
    section = map_section(document, looks([arm.name for arm in document.arms]))
    rows = section.blocks[0].tables[0].rows
    assert [row.prompt_set for row in rows] == ["humaneval", "gsm8k"]
    for row in rows:
        for one in steps_of_set(document, row.prompt_set):
            item = next(found for found in row.items if found.concurrency == one.concurrency)
            made = earned(one)
            assert made is not None
            assert f"made {made:.2f}" in item.note
            assert item.mark == ""


def test_a_forecast_is_never_good() -> None:
    """Reckoned from what was stated: a caveat, however large."""
    said = _demo().answers[0].model_copy(update={"id": "forecast/1", "good": True})
    assert grouped([said])[0].items[0].mark == "caveat"


def test_notes_that_differ_in_numbers_are_one() -> None:
    """6 % here and 29 % there are one sentence; the label is not repeated in its reason; other trials' notes are left out."""
    document = _demo()
    reasons = ("CPU run: less asked; not steady: the window holds 4.5 s of 5 s", "")
    cells = [
        cell.model_copy(
            update={
                "pooled": cell.pooled.model_copy(
                    update={
                        "steady": bool(place),
                        "steady_reason": reasons[min(place, 1)],
                        "warnings": [f"{6 + place} % of the chunks were late"],
                    }
                )
            }
        )
        for place, cell in enumerate(document.cells)
        if cell.pooled and cell.prompt_set == "humaneval"
    ]
    found = notes(document.model_copy(update={"cells": cells}), "humaneval")
    assert len([one for one in found if "late" in one]) == 1
    assert any(one.startswith("6 to 9 % of the chunks were late (") for one in found)
    assert any(one.startswith("not steady: the window holds 4.5 s of 5 s (") for one in found)


def test_list_prices_alone_are_no_cost_section() -> None:
    """Without a price of one's own there is nothing to compare them with: no bars, and how to give one."""
    alone = Cost(name="GPT-5.4", prompt_set="gsm8k", usd_per_million_output_tokens=15, commercial=True)
    section = cost_section(_demo().model_copy(update={"costs": [alone]}), {})
    assert not section.blocks
    assert "price" in section.lines[0]


def test_what_is_left_of_an_unfinished_run_is_counted() -> None:
    """Runs to the natural end that are missing stand in the banner and among what does not stand."""
    document = _demo()
    ends = [one.model_copy(update={"state": "missing", "reason": ""}) for one in document.natural_end]
    left = document.model_copy(update={"complete": False, "natural_end": ends})
    assert f"{len(ends)} of {len(ends)} runs to the natural end are missing" in banners(left)[0][1]
    assert len(fallen_section(left).blocks[0].tables[0].rows) >= len(ends)


def test_a_natural_end_that_is_not_run_is_not_promised() -> None:
    """With no prompts for it, the length of natural ends is not told."""
    document = _demo()
    assert "natural end" in dict(what_was_run(document))["output"]
    settings = document.settings.model_copy(update={"natural_end_prompts": 0})
    without = document.model_copy(update={"settings": settings})
    assert "natural end" not in dict(what_was_run(without))["output"]

"""What a report marks and says: nothing that its intervals do not bear, nothing twice, nothing that was not asked for."""

from __future__ import annotations

from functools import cache

from outrider.bench.answers import answers
from outrider.bench.document import Answer, Cost, Interval, RunDocument
from outrider.bench.report import render_markdown
from outrider.bench.report.background import GLOSSARY, banners, fallen_section, what_was_run
from outrider.bench.report.compose import compose, grouped, verdicts
from outrider.bench.report.content import VERDICTS, Item, Section, Table
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
    first = document.speedups[0].model_copy(update={"ratio": ratio, "steady": True})
    drawn = document.model_copy(update={"speedups": [first], "crossovers": []})
    return speedup_section(drawn, looks([arm.name for arm in document.arms]))


def test_a_ratio_without_an_interval_has_no_mark() -> None:
    """One trial, or a forecast's reckoned ratio: the number, how many trials it is of, and no ▲; three sure trials have one."""
    (two,) = [
        one
        for one in _items(_speedups(Interval(value=1.49, low=1.4, high=1.6, n=2)))
        if one.figure == "speedup"
    ]
    assert two.mark == ""
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
    """Reckoned from what was stated: it leans on or off, or is undecided, however large."""
    for good, mark in ((True, "on"), (False, "off"), (None, "open")):
        said = _demo().answers[0].model_copy(update={"id": "forecast/1", "good": good})
        assert grouped([said])[0].items[0].mark == mark


def test_what_is_not_sure_says_which_way_it_points() -> None:
    """Three marks for what decides nothing, in the words of a legend that names only the marks that stand in the report."""
    on, off, nowhere, sure = (
        Answer(id="speedup/a/b", text="x", good=good, leans=leans)
        for good, leans in ((None, True), (None, False), (None, None), (True, True))
    )
    aside = [Answer(id=name, text="x", good=False) for name in ("no-baseline", "caveat/x")]
    groups = grouped([on, off, nowhere, sure, *aside])
    marks = [said.mark for group in groups for said in group.items]
    assert marks == ["caveat", "caveat", "on", "off", "open", "good"]
    assert verdicts(groups) == ("good", "on", "off", "open", "caveat")
    assert len({sign for sign, _, _ in VERDICTS.values()}) == len(VERDICTS)
    assert not {"▲", "▼"} & {sign for sign, _, _ in VERDICTS.values()}


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


def _tables(document: RunDocument) -> dict[str, Table]:
    report = compose(document)
    return {
        table.id: table for section in report.sections for block in section.blocks for table in block.tables
    }


def test_one_prompt_set_is_no_column() -> None:
    """Its name stands in the captions: on a phone the speed-ups come first. Two sets keep the column."""
    document = _demo()
    assert _tables(document)["speedups"].columns[0].head == "prompt set"
    name = document.prompt_sets[0].name
    one = document.model_copy(
        update={
            "prompt_sets": document.prompt_sets[:1],
            "cells": [cell for cell in document.cells if cell.prompt_set == name],
            "speedups": [found for found in document.speedups if found.prompt_set == name],
        }
    )
    table = _tables(one)["speedups"]
    assert table.columns[0].head == "arm"
    assert table.heads == 1
    assert table.caption.startswith(f"{name}: ")
    assert all(len(row.items) == len(table.columns) for row in table.rows)
    assert _tables(one)["prompt-sets"].columns[0].head == "prompt set"


def test_steps_that_disagree_with_the_speed_up_are_marked() -> None:
    """A measured 3× where the steps say less is ringed and has ≠ with the figure; what agrees has neither."""
    document = _demo()
    steps = {one.concurrency: one.predicted_speedup for one in steps_of_set(document, "gsm8k")}
    seen = looks([arm.name for arm in document.arms])

    def told(ratio: float) -> tuple[str, Section]:
        ratios = [
            one.model_copy(update={"ratio": Interval(value=ratio)})
            for one in document.speedups
            if (one.prompt_set, one.concurrency) == ("gsm8k", 4)
        ]
        section = map_section(document.model_copy(update={"speedups": ratios}), seen)
        (item,) = [
            item
            for row in section.blocks[0].tables[0].rows
            if row.prompt_set == "gsm8k"
            for item in row.items
            if item.concurrency == 4
        ]
        return item.note, section

    note, section = told(3.0)
    assert "≠ Speed-up 3.00" in note
    assert "Ringed" in section.seen[0]
    assert section.blocks[0].tables[0].notes[0].startswith("≠: ")
    said = steps[4]
    assert said is not None
    note, section = told(said * 1.01 if said > 1 else said / 1.01)
    assert "≠" not in note
    assert "Ringed" not in section.seen[0]


def test_arms_that_were_not_run_have_no_crossover() -> None:
    """Nothing was measured of them: no row that says undecided, no swatch in the legend."""
    document = _demo()
    nothing = document.crossovers[0].model_copy(
        update={"arm": "never-run", "kind": "undecided", "up_to": None, "running": None}
    )
    known = [*document.crossovers, nothing]
    section = speedup_section(
        document.model_copy(update={"crossovers": known}), looks(["ngram-k3", "never-run"])
    )
    table = section.blocks[1].tables[0]
    assert len(table.rows) == len(document.crossovers)
    assert section.legend == ("ngram-k3",)


def test_the_source_of_a_stated_acceptance_stands_once() -> None:
    """In the bar at the top, where it is read before any number; the caveat and the labels point there."""
    labels = _demo().labels.model_copy(
        update={"acceptance": "synthetic", "acceptance_source": "a model card"}
    )
    document = _demo().model_copy(update={"labels": labels})
    document = document.model_copy(update={"answers": answers(document)})
    assert render_markdown(document).count("a model card") == 1


def test_words_that_the_report_uses_are_explained() -> None:
    """Arm, cell, made, objective and shape are no everyday words here."""
    terms = {term for term, _ in GLOSSARY}
    assert {"arm", "cell", "made", "objective", "shape", "trial"} <= terms

"""Traces: what is written can be read, and what comes from outside is bounded and refused with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.errors import MeasurementError
from outrider.governor import trace as trace_module
from outrider.governor.ladder import Ladder, Rung
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider.governor.trace import MAX_LINE_BYTES, Look, Trace, header_line, look_lines

LADDER = Ladder((Rung("eagle3", 2.6, ((1.0, 1.2), (8.0, 1.6))), Rung("ngram", scheduled=True), Rung("off")))
HEADER = header_line(LADDER, "a note")
CREDIT = Credit("eagle3", 0.5, 1.5, 40, 120, 60, 44, 0.9, 3.5, 1.0, True, 2)
FULL = Snapshot(
    2.0,
    4.0,
    3,
    0.25,
    (CREDIT, Credit("off", 0.0, 1.0)),
    (StepReading("eagle3", 2.0, 4.0, 0.02, 40, 0.99),),
    (StartProbe("eagle3", 120, 60),),
    "ngram",
    7,
)


def read(text: str) -> list[Look]:
    """All looks of a trace."""
    return list(Trace(text.encode().splitlines(keepends=True), "a.jsonl").looks())


def test_what_is_written_can_be_read() -> None:
    """Every field of every record; the header's ladder and note."""
    trace = Trace((HEADER + look_lines(FULL)).encode().splitlines(keepends=True))
    assert (trace.ladder, trace.note) == (LADDER, "a note")
    assert list(trace.looks()) == [Look(FULL)]
    assert trace.left_out == []


def test_a_line_is_a_request_or_a_snapshot() -> None:
    """As docs/replay.md shows them: what is as by default is left out."""
    assert look_lines(Snapshot(2.0, 1.0, finished=(Credit("ngram", 0.5, 1.5, 4, 12, 6),))).splitlines() == [
        '{"request":{"draft":"ngram","started_s":0.5,"ended_s":1.5,"drafts":4,"proposed":12,"accepted":6}}',
        '{"snapshot":{"at_s":2.0,"running":1.0}}',
    ]


def request(**more: object) -> str:
    """A line of a request."""
    plain = {"draft": "ngram", "started_s": 0.0, "ended_s": 1.0}
    return json.dumps({"request": plain | more}) + "\n"


def snapshot(**more: object) -> str:
    """A line of a snapshot."""
    return json.dumps({"snapshot": {"at_s": 1.0} | more}) + "\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "1: no"),
        ("{}\n", "a.jsonl:1: the first line is not the header"),
        ("[]\n", "a.jsonl:1: the first line is not the header"),
        ("null\n", "a.jsonl:1: the first line is not the header"),
        ("\x00\n", "a.jsonl:1: no JSON"),
        (HEADER.replace('"version":1', '"version":2'), "its version is 2, and 1 is read here"),
        (HEADER.replace('"note"', '"notes"'), "'notes' is no key here"),
        (HEADER.replace("eagle3", "eagle"), "'eagle' is no draft"),
        (HEADER.replace("[[1.0,1.2],[8.0,1.6]]", "[[1.0]]"), "pairs of"),
        (HEADER.replace("[[1.0,1.2],[8.0,1.6]]", "[[8,1.6],[1,1.2]]"), "by rising batch"),
        (header_line(LADDER, "x" * 2000), "note: a text of at most 1024"),
        (HEADER + "{}\n", 'a.jsonl:2: a line is {"request": {…}} or {"snapshot": {…}}'),
        (HEADER + "3\n", "a.jsonl:2: an object was expected"),
        (HEADER + "not json\n" + snapshot(), "a.jsonl:2: no JSON"),
        (HEADER + "[" * 100_000 + "\n", "a.jsonl:2: a line of more than 64 KiB"),
        (HEADER + "[" * 60_000 + "\n", "a.jsonl:2: no JSON"),
        (HEADER + '{"snapshot":{"at_s":1},"snapshot":{"at_s":1}}\n', "a key stands there twice"),
        (HEADER + '{"snapshot":{"at_s":NaN}}\n', "NaN is no number"),
        (HEADER + '{"snapshot":{"at_s":1e999}}\n', "at_s is out of bounds"),
        (HEADER + '{"snapshot":{"at_s":1' + "0" * 4000 + "}}\n", "at_s is out of bounds"),
        (HEADER + '{"snapshot":{"at_s":1' + "0" * 5000 + "}}\n", "a.jsonl:2: no JSON"),
        (HEADER + '{"snapshot":{}}\n', "at_s is missing"),
        (HEADER + snapshot(speed=3), "'speed' is no key here"),
        (HEADER + snapshot(finished=[]), "requests on lines of their own"),
        (HEADER + snapshot(running="4"), "running is a number"),
        (HEADER + snapshot(running=True), "running is a number"),
        (HEADER + snapshot(waiting=1.5), "waiting is a whole number"),
        (HEADER + snapshot(running=-1), "running cannot be -1.0"),
        (HEADER + snapshot(pinned="suffix"), "'suffix' is pinned, but stands on no rung"),
        (HEADER + snapshot(steps=[{}] * 1001), "steps: a list of at most 1000"),
        (HEADER + snapshot(steps=[{"draft": "ngram"}]), "at_s is missing"),
        (HEADER + request(draft="x" * 65), "draft: a text of at most 64"),
        (HEADER + request(draft="a\x1b[31m"), "draft: a text of at most 64"),
        (HEADER + request(drafts=4, proposed=3), "do not fit each other"),
        (HEADER + request(ended_s=-1.0), "ended before it started"),
        (HEADER + request(draftable="yes"), "draftable is true or false"),
        (HEADER + '{"request":{},"decided":{}}\n', "'decided' is no key here: request"),
        (
            HEADER + '{"snapshot":{"at_s":1},"decided":{"draft":"suffix","reason":"load"}}\n',
            "a draft of the ladder",
        ),
        (HEADER + '{"snapshot":{"at_s":1},"decided":{"draft":"off","reason":"whim"}}\n', "and its reason"),
        (HEADER + snapshot(at_s=2.0) + snapshot(at_s=1.0), "a.jsonl:3: the clock went back from 2 s to 1 s"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(lines: str, words: str) -> None:
    """And a hint where the form is described."""
    with pytest.raises(MeasurementError) as caught:
        read(lines)
    assert words in str(caught.value) or lines == ""
    assert "docs/replay.md" in caught.value.hint


def test_a_recording_may_stop_at_any_moment() -> None:
    """A last line that was cut, and requests behind the last snapshot, are left out and told; no whole line is."""
    text = HEADER + snapshot() + request() + request()[:30]
    trace = Trace(text.encode().splitlines(keepends=True))
    assert len(list(trace.looks())) == 1
    assert trace.left_out == ["the last line, which is cut", "1 requests behind the last snapshot"]


def test_there_is_no_end_of_requests_without_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of snapshots: what is held in memory is bounded."""
    monkeypatch.setattr(trace_module, "MAX_REQUESTS", 10)
    with pytest.raises(MeasurementError, match="more than 10 requests without a snapshot"):
        read(HEADER + request() * 11)
    monkeypatch.setattr(trace_module, "MAX_LOOKS", 10)
    with pytest.raises(MeasurementError, match="more than 10 snapshots"):
        read(HEADER + snapshot() * 11)


def test_lines_are_asked_for_as_they_are_needed() -> None:
    """A trace of any length is read look by look: the second is not touched before the first was taken."""
    asked = 0

    def lines() -> Iterator[bytes]:
        nonlocal asked
        for line in (HEADER, snapshot(), snapshot(), snapshot()):
            asked += 1
            yield line.encode()

    looks = Trace(lines()).looks()
    next(looks)
    assert asked == 2


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=400), st.integers(0, 2))
def test_nothing_that_can_stand_in_a_file_crashes(noise: bytes, place: int) -> None:
    """It is read, or refused in words."""
    lines = [HEADER.encode(), snapshot().encode()]
    lines.insert(place, noise + b"\n")
    with suppress(MeasurementError):
        list(Trace(lines).looks())


@settings(deadline=None, max_examples=150)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ("snapshot", "request", "at_s", "draft", "steps", "ladder", "decided", "format")
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    )
)
def test_no_value_crashes_it(value: object) -> None:
    """Any JSON as a line, and as the members of a snapshot."""
    for line in (json.dumps(value), json.dumps({"snapshot": value}), json.dumps({"request": value})):
        with suppress(MeasurementError):
            list(Trace([HEADER.encode(), line.encode() + b"\n"]).looks())


def test_lines_of_the_longest_records_fit() -> None:
    """A snapshot with as many step readings as control sends (one a rung and second) stays far below the limit."""
    rows = tuple(
        StepReading("draft-model", 1e9 + 0.123456, 127.123456, 0.0123456789, 10**6, 0.987654321)
        for _ in range(100)
    )
    assert len(look_lines(Snapshot(1e9, 128.0, steps=rows))) < MAX_LINE_BYTES

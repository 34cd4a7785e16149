"""Record files: what is written comes back, and half a file is an error."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import MeasurementError
from outrider.measure.record_files import read_records, write_records
from outrider.measure.records import RequestRecord, TokenEvent

NS = st.integers(0, 10**15)
COUNT = st.none() | st.integers(0, 10**6)


@st.composite
def record(draw: st.DrawFn) -> RequestRecord:
    """A record whose times are whole nanoseconds, as clocks give them."""
    start = draw(NS)
    moments = sorted(draw(st.lists(st.integers(start, start + 10**12), max_size=5)))
    return RequestRecord(
        id=draw(st.text()),
        prompt_id=draw(st.text()),
        turn=draw(st.integers(0, 9)),
        started_s=start / 1e9,
        ended_s=(start + draw(st.integers(0, 10**12))) / 1e9,
        events=tuple(TokenEvent(at / 1e9, draw(st.integers(1, 99))) for at in moments),
        first_text_s=moments[0] / 1e9 if moments and draw(st.booleans()) else None,
        prompt_tokens=draw(COUNT),
        output_tokens=draw(COUNT),
        outcome=draw(st.sampled_from(["ok", "cut", "http-429"])),
        reason=draw(st.text()),
        text=draw(st.text()),
        drafts=draw(COUNT),
        accepted=draw(COUNT),
    )


@given(st.lists(record(), max_size=4))
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[RequestRecord]
) -> None:
    """Every field of every record, times to the nanosecond, texts of any characters; the same records are the same bytes."""
    path = tmp_path_factory.mktemp("records") / "cell" / "records.jsonl.gz"
    write_records(path, records)
    assert list(read_records(path)) == records
    before = path.read_bytes()
    write_records(path, records)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_half_a_character_comes_back(tmp_path: Path) -> None:
    """A model that answers with a lone surrogate does not cost the cell its records."""
    record = RequestRecord("a", "p", 0, 1.0, 2.0, text="half \ud83d")
    write_records(tmp_path / "r.jsonl.gz", [record])
    assert read_records(tmp_path / "r.jsonl.gz") == (record,)


@pytest.mark.parametrize("content", [b"", b"no gzip", None])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Empty, foreign or cut: an error with what to do next."""
    path = tmp_path / "records.jsonl.gz"
    write_records(path, [RequestRecord("a", "p", 0, 1.0, 2.0, text="x" * 5000)])
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(MeasurementError, match=r"records\.jsonl\.gz cannot be read") as refused:
        read_records(path)
    assert refused.value.hint


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """No file is the same kind of error."""
    with pytest.raises(MeasurementError):
        read_records(tmp_path / "none.jsonl.gz")

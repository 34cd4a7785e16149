"""Files that come from outside: limits that hold before the memory is used, and refusals that say what to do."""

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets import PromptOptions, load_prompt_set

CHAT = {"id": "c1", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]}


def refused(spec: object, **limits: int) -> MeasurementError:
    """The refusal of this file."""
    with pytest.raises(MeasurementError) as caught:
        load_prompt_set(str(spec), options=PromptOptions(**limits))
    assert caught.value.hint
    return caught.value


def test_a_small_file_that_unpacks_to_a_large_one(tmp_path: Path) -> None:
    """A gzip bomb is left at the limit: 400 MB of it take less than 40 MB of memory here."""
    file = tmp_path / "bomb.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as out:
        for _ in range(400):
            out.write(b" " * 10**6)
    tracemalloc.start()
    try:
        error = refused(file, max_unpacked_bytes=300 * 10**6)
        assert tracemalloc.get_traced_memory()[1] < 40 * 10**6
    finally:
        tracemalloc.stop()
    assert "larger than 300,000,000 bytes unpacked" in str(error)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """Its size alone refuses it."""
    file = tmp_path / "large.jsonl"
    with file.open("wb") as out:
        out.truncate(2**31)
    assert "larger than 1,073,741,824 bytes" in str(refused(file))


def test_too_many_records(tmp_path: Path) -> None:
    """The number of records has a limit of its own; blank lines do not count."""
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'"{i}"\n\n' for i in range(11)))
    assert len(load_prompt_set(str(file), options=PromptOptions(max_records=11)).prompts) == 11
    assert "more than 10 records" in str(refused(file, max_records=10))


def test_a_line_longer_than_the_limit_does_not_end_the_file(tmp_path: Path) -> None:
    """Exactly the limit is read, one byte more is dropped, a long blank line is no record."""
    file = tmp_path / "long.jsonl"
    file.write_bytes(
        b"\n".join([b'"%s"' % (b"a" * 98), b'"%s"' % (b"b" * 99), b" " * 500, b'"c"', b'"%s"' % (b"d" * 999)])
    )
    found = load_prompt_set(str(file), options=PromptOptions(max_record_bytes=100))
    assert {len(prompt.turns[0]) for prompt in found.prompts} == {98, 1}
    assert dict(found.dropped) == {"line longer than 100 bytes": 2}


@pytest.mark.parametrize("cut", [5, 40, -4])
def test_a_gzip_file_cut_short(tmp_path: Path, cut: int) -> None:
    """Half a file is refused, not taken for a smaller set."""
    whole = gzip.compress(b"".join(b'"%d %s"\n' % (i, os.urandom(9).hex().encode()) for i in range(500)))
    file = tmp_path / "cut.jsonl.gz"
    file.write_bytes(whole[:cut])
    assert "cannot be read" in str(refused(file))


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    """A flipped byte is noticed by its checksum or its codes."""
    whole = bytearray(gzip.compress(b"".join(b'"%d"\n' % i for i in range(5000))))
    whole[len(whole) // 2] ^= 0xFF
    file = tmp_path / "bad.jsonl.gz"
    file.write_bytes(whole)
    assert "cannot be read" in str(refused(file))


def test_packing_is_told_by_content(tmp_path: Path) -> None:
    """A packed file without .gz is read, and one with .gz that is plain as well."""
    for name, content in (("a.jsonl", gzip.compress(b'"x"')), ("b.jsonl.gz", b'"x"')):
        (tmp_path / name).write_bytes(content)
        assert load_prompt_set(str(tmp_path / name)).prompts[0].turns == ("x",)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would wait for ever and a device never end; a folder is no file."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    assert "is not a file" in str(refused(pipe))
    assert "is not a file" in str(refused("jsonl=/dev/zero"))
    assert "is a folder" in str(refused(f"jsonl={tmp_path}"))


@pytest.mark.parametrize("form", ["array", "lines", "one line of array"])
def test_sharegpt_as_array_and_as_lines(tmp_path: Path, form: str) -> None:
    """Both forms give the same prompts: the first user turn, conversations without one dropped."""
    long = {"id": "c2", "conversations": [{"from": "human", "value": t} for t in ("Why?", "Really?")]}
    begun = {"id": "c3", "conversations": [{"from": "gpt", "value": "As I said"}]}
    records = [CHAT, long, begun, {"id": "c4", "conversations": []}]
    file = tmp_path / ("chats.jsonl" if form == "lines" else "chats.json")
    lines = "\n".join(map(json.dumps, records))
    file.write_text(lines if form == "lines" else json.dumps(records, indent=2 if form == "array" else None))
    found = load_prompt_set(f"sharegpt={file}")
    assert [(p.id, p.turns) for p in found.prompts] == [("sharegpt/c1", ("Hi",)), ("sharegpt/c2", ("Why?",))]
    assert dict(found.dropped) == {"begins with an answer": 1, "no user turn": 1}
    assert found.license == "not stated"
    assert found.notes == ("1 of 2 usable conversations go on after the turns that are sent.",)


def test_a_large_array_is_read_in_pieces(tmp_path: Path) -> None:
    """60 MB of conversations, elements across every window, in a fraction of that memory."""
    file = tmp_path / "chats.json"
    answer = "é" * 30_000
    with file.open("w", encoding="utf-8") as out:
        out.write("[")
        for i in range(1000):
            one = {"conversations": [{"from": "human", "value": str(i)}, {"from": "gpt", "value": answer}]}
            out.write((", \n" if i else "") + json.dumps(one, ensure_ascii=False))
        out.write("]\n")
    tracemalloc.start()
    try:
        found = load_prompt_set(f"sharegpt={file}")
        assert tracemalloc.get_traced_memory()[1] < 15 * 10**6
    finally:
        tracemalloc.stop()
    assert {prompt.turns[0] for prompt in found.prompts} == {str(i) for i in range(1000)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('["a", "b"', "']' is missing .after 2 elements"),
        ('["a" "b"]', "']' is missing .after 1 elements"),
        ('["a",]', "bad JSON .after 1 elements"),
        ('["a", {"prompt": }]', "bad JSON .after 1 elements"),
        ('["a"] trailing', "something follows"),
        ("[" * 100_000, "nested too deep"),
        ("[", "']' is missing|bad JSON"),
        ('["' + "x" * 9_000_000 + '"]', "too large"),
        ('["a", "\udcff"]', "not UTF-8"),
    ],
)
def test_a_broken_array_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """After a fault inside an array nothing can be trusted; the refusal says how far it came and what form bears faults."""
    file = tmp_path / "broken.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(MeasurementError, match=message) as caught:
        load_prompt_set(f"jsonl={file}", options=PromptOptions(max_record_bytes=4 * 10**6))
    assert ".jsonl" in caught.value.hint


def test_numbers_at_the_edge_of_a_window(tmp_path: Path) -> None:
    """A value cut by the window's end is read on, never taken for a shorter one."""
    file = tmp_path / "numbers.json"
    file.write_text("[" + ",".join(f'{{"id": {10**30 + i}, "text": "{i}"}}' for i in range(60_000)) + "]")
    found = load_prompt_set(f"jsonl={file}")
    assert {prompt.id for prompt in found.prompts} == {f"numbers/{10**30 + i}" for i in range(60_000)}


def test_a_number_is_not_cut_in_two(tmp_path: Path) -> None:
    """Bare numbers over several windows are counted as exactly as many unusable records."""
    file = tmp_path / "bare.json"
    file.write_text("[" + ",".join(str(10**9 + i) for i in range(150_000)) + ', "a"]')
    found = load_prompt_set(f"jsonl={file}")
    assert dict(found.dropped) == {"not an object or a string": 150_000}

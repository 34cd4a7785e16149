"""The user's files, folders and hub data, read one conversation at a time."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from outrider.core.errors import TrainingError
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.measure.prompt_sets.shape import Unusable
from outrider.train.conversations import Conversation
from outrider.train.sources import find_source, read_source, refuse_useless


def read(spec: object, limits: PromptOptions | None = None) -> tuple[list[tuple[str, ...]], Counter[str]]:
    """The turns of what a source holds, and its drops."""
    found = list(read_source(find_source(str(spec)), limits=limits or PromptOptions()))
    turns = [one.turns for one in found if isinstance(one, Conversation)]
    return turns, Counter(str(one) for one in found if isinstance(one, Unusable))


def test_one_bad_line_costs_one_line(tmp_path: Path) -> None:
    """Broken, too long, not UTF-8: counted, and the rest is read."""
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b'"a"\n{"broken\n\xff\xfe\n"%s"\n\n{"prompt": "b"}' % (b"x" * 200))
    turns, dropped = read(file, PromptOptions(max_record_bytes=100))
    assert turns == [("a",), ("b",)]
    assert dropped == {"bad JSON": 1, "not UTF-8": 1, "line longer than 100 bytes": 1}


def test_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    """By name, packed or not; what is no data is left alone."""
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'"second"\n'))
    (tmp_path / "a.json").write_text('["first", {"turns": ["one", "two"]}]')
    (tmp_path / "README.md").write_text("no data")
    (tmp_path / ".hidden.jsonl").write_text('"hidden"')
    assert read(tmp_path)[0] == [("first",), ("one", "two"), ("second",)]
    assert [file.source for file in find_source(str(tmp_path))] == ["a.json", "b.jsonl.gz"]


def test_a_source_is_named_without_this_machine(tmp_path: Path) -> None:
    """What a manifest may say of it: the file's name and its hash."""
    file = tmp_path / "mine.jsonl"
    file.write_text('"a"\n')
    (found,) = find_source(str(file))
    assert found.source == "mine.jsonl"
    assert found.sha256() == hashlib.sha256(b'"a"\n').hexdigest()


def test_hub_data_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of the hub by its id, offline where it was fetched before; its name holds the commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "prompts" / "acme--chats"
    (folder / commit).mkdir(parents=True)
    (folder / "revisions").mkdir()
    (folder / "revisions" / "main").write_text(commit)
    (folder / commit / "train.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": "hi there"}]})
    )
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert read("acme/chats")[0] == [("hi there",)]
    assert find_source("acme/chats")[0].source == "acme/chats@0123456789ab:train.jsonl"
    with pytest.raises(TrainingError, match="not in the cache"):
        find_source("acme/others")


def test_what_is_no_source_says_what_one_is(tmp_path: Path) -> None:
    """No such path, an empty folder, a pipe, a packed file cut short: refused with a hint."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'"a"\n' * 999)[:-9])
    for spec, message in (
        (tmp_path / "none.jsonl", "no file"),
        (tmp_path / "empty", "holds no data"),
        (tmp_path / "pipe.jsonl", "is not a file"),
        (tmp_path / "cut.jsonl.gz", "cannot be read"),
    ):
        with pytest.raises(TrainingError, match=message) as caught:
            read(spec)
        assert caught.value.hint


def test_a_source_of_which_nothing_is_usable_is_refused_with_the_reasons(tmp_path: Path) -> None:
    """Counted; one conversation is enough to pass, and no more than that is read."""
    file = tmp_path / "mine.jsonl"
    file.write_text('{"label": 1}\n' * 3 + "{\n")
    with pytest.raises(TrainingError, match=r"nothing in .* is a conversation: 3 × ") as refused:
        refuse_useless(str(file))
    assert "docs/train.md" in refused.value.hint
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(TrainingError):
        refuse_useless(str(tmp_path / "empty.jsonl"))
    with file.open("a") as out:
        out.write('{"prompt": "What is a draft?"}\n')
    refuse_useless(str(file))


def test_a_large_file_is_not_held(tmp_path: Path) -> None:
    """40 MB of conversations in a fraction of that memory."""
    file = tmp_path / "large.jsonl"
    with file.open("w") as out:
        for number in range(400):
            out.write(json.dumps({"prompt": f"{number} " + "x" * 100_000}) + "\n")
    files = find_source(str(file))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_source(files)) == 400
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**6
    finally:
        tracemalloc.stop()

"""Prompts that the target writes itself, and prompts of the user's data, in one file that a stopped run adds to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.core.errors import TrainingError
from outrider.train import prompts
from outrider.train.held_out import HeldOut
from outrider.train.openings import DEFAULT_OPENINGS
from outrider.train.prompts import PromptSettings, write_prompts
from outrider.train.rows import DropCounts
from outrider.train.selfplay import SelfPlay, UserTurns
from tests.train.scripted_engine import (
    Script,
    ScriptedEngine,
    bare,
    chatml,
    deaf,
    decode,
    one_turn,
    scripted,
    strict,
    thoughtless,
    trimming,
)

pytestmark = pytest.mark.usefixtures("soon")
PLAIN = SelfPlay(opening_share=0.0, two_turns_share=0.0)


def write(
    engine: ScriptedEngine, folder: Path, wanted: int, settings: PromptSettings | None = None
) -> tuple[DropCounts, list[dict[str, Any]]]:
    """Write prompts; the counts, and the file's lines."""
    out = folder / "prompts.jsonl"
    settings = settings or PromptSettings(play=PLAIN)
    counts = asyncio.run(write_prompts(engine.access, wanted, out, settings, lambda done, total, note: None))
    return counts, [json.loads(line) for line in out.read_text().splitlines()]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """The last user turn of each."""
    return [row["messages"][-1]["content"] for row in rows]


@pytest.mark.parametrize("template", [chatml, trimming, thoughtless, bare, one_turn, strict])
def test_the_target_is_asked_at_the_users_turn(tmp_path: Path, template: Any) -> None:
    """Whatever the template, it writes from where the user's text begins, and the text alone is the prompt."""
    with scripted(Script(template=template, end="</s>" if template is bare else "<|im_end|>")) as engine:
        counts, rows = write(engine, tmp_path, 20)
        (asked,) = engine.prompts
        start = template([{"role": "user", "content": "<here>"}], False).partition("<here>")[0]
    assert decode(asked) == start.rstrip(" ")  # the space belongs to the first word
    assert (counts.kept, len(rows), len(set(texts(rows)))) == (20, 20, 20)
    assert all(text.startswith("Tell me about") for text in texts(rows))
    assert {row["kind"] for row in rows} == {"selfplay"}
    assert "turns" not in rows[0]


def test_sampling_is_plain_and_ends_with_the_turn(tmp_path: Path) -> None:
    """Temperature 1, none of the model's own sampling settings, the template's own end; several prompts a request."""
    with scripted() as engine:
        write(engine, tmp_path, 20)
        bodies = [body for path, body, _ in engine.requests if path == "/v1/completions"]
    assert {(body["temperature"], body["top_p"], body["max_tokens"]) for body in bodies} == {(1.0, 1.0, 160)}
    assert all(decode(body["stop_token_ids"]) == "<|im_end|>" for body in bodies)
    assert len(bodies) < 12
    with scripted(Script(template=bare, end="</s>")) as engine:
        write(engine, tmp_path / "bare", 3)
        (_, body, _) = engine.requests[-1]
    assert body["stop"] == ["Assistant:"]
    assert "stop_token_ids" not in body


def test_what_is_not_kept_is_counted(tmp_path: Path) -> None:
    """Not finished, too short, written before, broken, held out: each by its reason, until enough are kept."""
    wrote = {
        1: "x" * 500,
        2: "Hm.",
        3: "Tell me about cats.",
        4: "tell me  about CATS.",
        5: "Broken \ufffd text here.",
    }
    wrote[6] = "What is the largest number that fits into one byte of memory, Sir?"
    held = ("Question 7: what is the largest number that fits into one byte?",)
    script = Script(user_text=lambda number: wrote.get(number, f"A good prompt, number {number}."))
    with scripted(script) as engine:
        counts, rows = write(
            engine, tmp_path, 30, PromptSettings(play=replace(PLAIN, user=UserTurns(held_out=held)))
        )
    assert counts.dropped == {
        "user turn not finished within 160 tokens": 1,
        "user turn shorter than 13 characters": 1,
        "user turn written before": 1,
        "user turn with broken characters": 1,
        "too near a held-out prompt": 1,
    }
    assert len(rows) == counts.kept == 30
    assert json.loads((tmp_path / "prompts.done.json").read_text())["dropped"] == counts.dropped


def test_openings_begin_their_share(tmp_path: Path) -> None:
    """About the asked share of prompts begins with one of them, drawn by the seed; the opening is part of the prompt."""
    play = SelfPlay(
        openings=("Write a poem on", "Count to", "Count to"), opening_share=0.5, two_turns_share=0.0
    )
    with scripted(Script(user_text=lambda number: f" the number {number}.")) as engine:
        _, rows = write(engine, tmp_path, 200, PromptSettings(play=play))
        asked = Counter(decode(ids).rpartition("user\n")[2] for ids in engine.prompts.elements())
    begun = Counter(text.partition(" the")[0] for text in texts(rows))
    assert set(asked) == {"", "Write a poem on", "Count to"}
    assert 70 < begun["Write a poem on"] + begun["Count to"] < 130
    assert begun["Count to"] > begun["Write a poem on"] > 10


def test_a_block_of_code_is_closed(tmp_path: Path) -> None:
    """An opening that begins a block makes a prompt that ends it; one that adds nothing is dropped."""
    play = SelfPlay(openings=("Finish it.\n\n```python\ndef",), opening_share=1.0, two_turns_share=0.0)
    script = Script(user_text=lambda number: " x" if number == 1 else f" f{number}(x: int) -> int:")
    with scripted(script) as engine:
        counts, rows = write(engine, tmp_path, 5, PromptSettings(play=play))
    assert counts.dropped == {"user turn adds nothing to its opening": 1}
    assert all(
        text.startswith("Finish it.\n\n```python\ndef f") and text.endswith(":\n```") for text in texts(rows)
    )


def test_the_default_openings_can_be_gone_on_with() -> None:
    """None ends in a space, which a tokenizer joins to the next word; none is there to repeat a test set's prompts."""
    assert all(opening == opening.rstrip(" ") and opening for opening in DEFAULT_OPENINGS)
    assert sum("```python" in opening for opening in DEFAULT_OPENINGS) > 5


def test_a_share_gets_a_second_turn(tmp_path: Path) -> None:
    """Marked for the answers' step, about the asked share; the same ones for the same seed."""
    play = replace(PLAIN, two_turns_share=0.3)
    with scripted() as engine:
        _, rows = write(engine, tmp_path, 200, PromptSettings(play=play))
    assert 35 < sum(row.get("turns") == 2 for row in rows) < 85


def test_a_system_text_is_asked_with_and_kept(tmp_path: Path) -> None:
    """It stands before the user's turn for the target, and in the prompt for the answer."""
    play = replace(PLAIN, system="You write SQL.")
    with scripted() as engine:
        _, rows = write(engine, tmp_path, 4, PromptSettings(play=play))
        (asked,) = engine.prompts
    assert decode(asked) == "<|im_start|>system\nYou write SQL.<|im_end|>\n<|im_start|>user\n"
    assert rows[0]["messages"][0] == {"role": "system", "content": "You write SQL."}


@pytest.mark.parametrize(
    ("template", "system", "message"),
    [
        (deaf, None, "chat template of toy: the user's text cannot be found"),
        (strict, "Be good.", "System role not supported"),
    ],
)
def test_a_template_that_cannot_be_used_is_named(
    tmp_path: Path, template: Any, system: str | None, message: str
) -> None:
    """A template that leaves the user's text out, or refuses the system text: an error that names it, and a hint."""
    with scripted(Script(template=template)) as engine, pytest.raises(TrainingError, match=message) as caught:
        write(engine, tmp_path, 4, PromptSettings(play=replace(PLAIN, system=system)))
    assert "chat_template" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("The same prompt again.", "user turn written before"),
        ("x" * 900, "user turn not finished within 160 tokens"),
    ],
)
def test_a_target_that_writes_no_prompts_is_given_up(tmp_path: Path, text: str, most: str) -> None:
    """Not asked for ever: when hardly any is usable the run ends, with the commonest reason."""
    with (
        scripted(Script(user_text=lambda number: text)) as engine,
        pytest.raises(TrainingError, match=most) as caught,
    ):
        write(engine, tmp_path, 50)
    assert "instruct model" in caught.value.hint
    assert engine.users < 1000


def test_data_comes_first_and_the_target_fills_up(tmp_path: Path) -> None:
    """The user's conversations in their order, their drops counted, then self-written prompts up to the number wanted."""
    file = tmp_path / "mine.jsonl"
    records = [
        {"turns": ["one", "two", "three"]},
        "four",
        {"turns": []},
        "Four",
        {"prompt": "five", "system": "S"},
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = PromptSettings(sources=(str(file),), max_turns=2, play=replace(PLAIN, system="D"))
    with scripted() as engine:
        counts, rows = write(engine, tmp_path / "filled", 6, settings)
        alone, data = write(engine, tmp_path / "alone", 6, replace(settings, fill=False))
        first, _ = write(engine, tmp_path / "first", 1, settings)
    assert [row["kind"] for row in rows] == ["data"] * 3 + ["selfplay"] * 3
    assert data == rows[:3]
    assert [[m["content"] for m in row["messages"]] for row in data] == [
        ["D", "one", "two"],
        ["D", "four"],
        ["S", "five"],
    ]
    assert counts.dropped == {"empty conversation": 1, "the same prompt again": 1}
    assert alone.cut == {"conversation longer than 2 user turns": 1}
    assert alone.sources[0].startswith("mine.jsonl sha256:")
    assert (alone.kept, first.kept) == (3, 1)


def test_data_alone_needs_no_engine_and_data_without_prompts_is_refused(tmp_path: Path) -> None:
    """No request for the user's own data; when none of it can be used the reasons are told."""
    file = tmp_path / "mine.jsonl"
    file.write_text('{"turns": []}\n{"messages": 3}\n')
    settings = PromptSettings(sources=(str(file),), fill=False)
    with scripted() as engine:
        with pytest.raises(TrainingError, match=r"no prompt to train on: 1 dropped: .*; 1 dropped: "):
            write(engine, tmp_path, 5, settings)
        assert engine.requests == []


def test_held_out_prompts_never_come_in(tmp_path: Path) -> None:
    """A test prompt in the user's data, copied, in other clothes or as a later turn, is dropped and counted."""
    test = "Return the list of all prime factors of the given number in ascending order."
    near = "Please " + test.lower().replace(" ", "  ").rstrip(".") + " and hurry"
    file = tmp_path / "mine.jsonl"
    file.write_text(
        "".join(
            json.dumps(r) + "\n" for r in (test, near, {"turns": ["Hello you", test.upper()]}, "Hello me")
        )
    )
    play = SelfPlay(user=UserTurns(held_out=(test,)))
    with scripted() as engine:
        counts, rows = write(engine, tmp_path, 9, PromptSettings((str(file),), fill=False, play=play))
    assert texts(rows) == ["Hello me"]
    assert counts.dropped == {"too near a held-out prompt": 3}


def test_near_means_the_words_or_eight_of_them_in_a_row() -> None:
    """Case and signs aside; seven words in a row are chance; a frame that many held-out prompts share says nothing."""
    held = HeldOut(["One two three four five six seven eight nine.", "Short, but held!", "..."])
    assert held.is_near("short BUT held")
    assert held.is_near("zero two three four five six seven, eight nine ten")
    assert not held.is_near("one two three four five six seven and eight")
    assert not held.is_near("!!")
    frame = "Complete the Python function below and answer with the whole function: "
    framed = HeldOut(
        [f"{frame}def f{n}(a, b, c): return the {n}th of the three values given here" for n in range(9)]
    )
    assert not framed.is_near(f"{frame}def other(x): pass")
    assert framed.is_near("What does def f3(a, b, c): return the 3th of the three values given here do?")
    assert not HeldOut().is_near("")


class _Stop(Exception):
    """Where a run is stopped."""


@pytest.mark.parametrize("with_data", [False, True])
def test_a_stopped_run_goes_on(tmp_path: Path, with_data: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped anywhere, its last line torn: the next run adds what is missing, nothing twice, and none is lost."""
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f'"data prompt {n}"\n' for n in range(10)) + "{}\n")
    settings = PromptSettings((str(file),) if with_data else (), play=PLAIN)
    out = tmp_path / "prompts.jsonl"
    monkeypatch.setattr(prompts, "SAY_EVERY_S", 0.0)

    def stop(done: int, total: int, note: str) -> None:
        if done >= 12:
            raise _Stop

    with scripted(Script(user_text=lambda n: f"A good prompt, number {n}." if n % 5 else "Hm.")) as engine:
        with pytest.raises(_Stop):
            asyncio.run(write_prompts(engine.access, 60, out, settings, stop))
        before = out.read_text().splitlines()
        assert 12 <= len(before) < 60
        out.write_text("\n".join(before) + '\n{"messages": [{"ro')
        counts, rows = write(engine, tmp_path, 60, settings)
        asked = len(engine.requests)
        again, same = write(engine, tmp_path, 60, settings)
        assert len(engine.requests) == asked
    assert [json.dumps(row, separators=(",", ":")) for row in rows[: len(before)]] == before
    assert len(rows) == len(set(texts(rows))) == counts.kept == 60
    assert [row["kind"] for row in rows].count("data") == 10 * with_data
    assert (again, same) == (counts, rows)
    assert counts.dropped.get("no prompt field", 0) == with_data
    assert set(counts.dropped) <= {"no prompt field", "user turn shorter than 13 characters"}


def test_data_that_was_half_read_is_read_anew(tmp_path: Path) -> None:
    """Stopped among the user's data: read again from the begin, each prompt and each drop once, as if never stopped."""
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f'"data prompt {n}"\n' for n in range(10)) + "{}\n")
    settings = PromptSettings((str(file),), fill=False)
    with scripted() as engine:
        counts, rows = write(engine, tmp_path / "whole", 60, settings)
        (tmp_path / "half").mkdir()
        (tmp_path / "half" / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
        (tmp_path / "half" / "prompts.dropped.jsonl").write_text(
            '{"reason": "no prompt field", "count": 1}\n'
        )
        assert write(engine, tmp_path / "half", 60, settings) == (counts, rows)
    assert counts.dropped == {"no prompt field": 1}


def test_what_was_written_is_kept_when_the_engine_dies(tmp_path: Path) -> None:
    """The run ends with a training error that says to repeat the command, and the repeated one goes on."""
    script = Script()
    with scripted(script) as engine:
        script.fault = lambda path, number: -1 if path == "/v1/completions" and engine.users > 30 else 0
        with pytest.raises(TrainingError, match="does not answer any more") as caught:
            write(engine, tmp_path, 100)
        assert "goes on" in caught.value.hint
        kept = len((tmp_path / "prompts.jsonl").read_text().splitlines())
        assert kept > 0
        script.fault = lambda path, number: 0
        counts, rows = write(engine, tmp_path, 100)
    assert len(set(texts(rows))) == len(rows) == counts.kept == 100

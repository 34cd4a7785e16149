"""Answers of the target: its own tokens, a loss on exactly these, each conversation once whatever stops the run."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outrider.core.errors import TrainingError
from outrider.train import answers
from outrider.train.answers import AnswerSettings, write_answers
from outrider.train.generation import EngineAccess
from outrider.train.rows import DropCounts, Row, RowWriter, read_rows
from outrider.train.selfplay import UserTurns
from tests.train.scripted_engine import (
    AN,
    END,
    Script,
    ScriptedEngine,
    bare,
    chatml,
    decode,
    one_turn,
    scripted,
    thoughtless,
)

pytestmark = pytest.mark.usefixtures("soon")
SHORT = AnswerSettings(max_answer_tokens=100, min_answer_tokens=4)


def quiet(done: int, total: int, note: str) -> None:
    """Say nothing."""


def prompt(*turns: str, system: str = "", **more: object) -> dict[str, Any]:
    """A line of prompts."""
    given = [{"role": "system", "content": system}] if system else []
    return {
        "messages": [*given, *({"role": "user", "content": turn} for turn in turns)],
        "kind": "data",
        **more,
    }


def put(folder: Path, prompts: Sequence[dict[str, Any]]) -> Path:
    """The file of prompts."""
    folder.mkdir(exist_ok=True)
    (folder / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts))
    return folder / "prompts.jsonl"


def answer(
    engine: ScriptedEngine, folder: Path, prompts: Sequence[dict[str, Any]], settings: AnswerSettings = SHORT
) -> tuple[DropCounts, list[Row]]:
    """Answer prompts; the counts, and the rows in the order of the prompts."""
    out = folder / "rows.jsonl"
    counts = asyncio.run(write_answers(engine.access, put(folder, prompts), out, settings, quiet))
    return counts, sorted(read_rows(out), key=lambda row: row.index)


def with_loss(row: Row) -> str:
    """The text of the tokens with a loss."""
    return decode([one for one, loss in zip(row.input_ids, row.loss_mask, strict=True) if loss])


@pytest.mark.parametrize("template", [chatml, thoughtless, one_turn, bare])
def test_the_loss_is_on_the_answer_and_its_end(tmp_path: Path, template: Any) -> None:
    """Every token of the answer, its end token, and no other; before it stands what the template makes of the question."""
    end = "</s>" if template is bare else "<|im_end|>"
    with scripted(Script(template=template, answer=lambda asked: "An apple.", end=end)) as engine:
        counts, (row,) = answer(engine, tmp_path, [prompt("What is red?")])
        question = engine.render([{"role": "user", "content": "What is red?"}])
    assert with_loss(row) == f"An apple.{end}"
    assert list(row.input_ids[: len(question)]) == question
    assert row.loss_mask == (0,) * len(question) + (1,) * (len(row.input_ids) - len(question))
    assert row.messages[-1] == {"role": "assistant", "content": "An apple."}
    assert (row.finish_reason, row.kind, row.index, row.cut) == ("stop", "data", 0, "")
    assert (counts.kept, counts.tokens, counts.answer_tokens) == (1, len(row.input_ids), sum(row.loss_mask))


def test_later_turns_see_the_answers_as_they_were_written(tmp_path: Path) -> None:
    """Turn 2 is asked after the regenerated answer of turn 1, its very tokens; both answers have a loss; all is one ChatML."""
    with scripted(Script(answer=lambda asked: f"An answer of {asked.count('|>user')} users.")) as engine:
        _, (row,) = answer(engine, tmp_path, [prompt("One?", "Two?", "Three?", system="Be kind.")])
        first, second, third = sorted(engine.prompts, key=len)
    texts = [f"An answer of {n} users." for n in (1, 2, 3)]
    assert decode(row.input_ids) + "\n" == chatml(row.messages, False)
    assert with_loss(row) == "".join(f"{text}<|im_end|>" for text in texts)
    assert [m["content"] for m in row.messages] == [
        "Be kind.",
        "One?",
        texts[0],
        "Two?",
        texts[1],
        "Three?",
        texts[2],
    ]
    assert second[: len(first)] == first
    assert (first[-1], second[len(first)]) == (
        ord("\n"),
        AN,
    )  # not the bytes that a tokenizer would make of it
    assert row.input_ids[: len(third)] == third
    assert row.input_ids.count(AN) == 3


def test_a_cut_answer_has_no_end_of_its_own(tmp_path: Path) -> None:
    """An answer at its limit is kept, without an end token; the template ends it before another turn, without a loss."""
    with scripted(Script(answer=lambda asked: "An" + "a" * 300)) as engine:
        _, (one, two) = answer(engine, tmp_path, [prompt("One?"), prompt("One?", "Two?")])
    assert one.finish_reason == two.finish_reason == "length"
    assert with_loss(one) == "An" + "a" * 99
    assert with_loss(two) == 2 * ("An" + "a" * 99)
    at = len(one.input_ids)
    assert two.input_ids[:at] == one.input_ids
    assert (two.input_ids[at], two.loss_mask[at]) == (END, 0)


def test_thoughts_are_not_carried_on(tmp_path: Path) -> None:
    """Where the template takes thoughts out of earlier answers, the row is what serving sees, with a loss on the last answer."""
    script = Script(
        template=thoughtless, answer=lambda asked: f"<think>Hm, {asked.count('|>user')}.</think>An answer."
    )
    with scripted(script) as engine:
        _, (row,) = answer(engine, tmp_path, [prompt("One?", "Two?")])
    assert with_loss(row) == "<think>Hm, 2.</think>An answer.<|im_end|>"
    assert "Hm, 1" not in decode(row.input_ids)
    assert decode(row.input_ids).count("An answer.") == 2


def test_a_template_without_a_way_on_gives_first_turns(tmp_path: Path) -> None:
    """Pieces that cannot be found are not guessed: the first turn is kept, and the count says why the rest is not."""
    with scripted(Script(template=one_turn)) as engine:
        counts, (row,) = answer(engine, tmp_path, [prompt("One?", "Two?")])
    assert len(row.messages) == 2
    assert counts.cut == {"the chat template shows no way to another turn": 1} == {row.cut: 1}


def test_an_answer_that_ends_otherwise_ends_the_conversation(tmp_path: Path) -> None:
    """A model with several end tokens: another than the template's is kept as written, and no turn is glued to it."""
    with scripted(Script(end="<other_end>")) as engine:
        counts, (row,) = answer(engine, tmp_path, [prompt("One?", "Two?")])
    assert with_loss(row).endswith("<other_end>")
    assert "Two?" not in decode(row.input_ids)
    assert counts.cut == {"the answer ended otherwise than the chat template ends one": 1}


def test_the_target_writes_a_second_user_turn(tmp_path: Path) -> None:
    """Asked where the user's text begins after its own answer; sampled; answered; a turn that is no use leaves the first."""
    texts = {1: "And what of the number seven?", 2: "Ok."}
    with scripted(Script(user_text=lambda number: texts[number])) as engine:
        engine.access = replace(engine.access, concurrency=1)
        prompts = [prompt("One?", turns=2, kind="selfplay"), prompt("Two?", turns=2, kind="selfplay")]
        counts, (row, short) = answer(engine, tmp_path, prompts)
        bodies = [body for path, body, _ in engine.requests if path == "/v1/completions"]
    assert [m["content"] for m in row.messages][2] == "And what of the number seven?"
    assert decode(row.input_ids) + "\n" == chatml(row.messages, False)
    assert decode(bodies[1]["prompt"]).endswith("<|im_end|>\n<|im_start|>user\n")
    assert [body["temperature"] for body in bodies] == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert "seven" not in with_loss(row)
    assert len(short.messages) == 2
    assert counts.cut == {"second user turn shorter than 13 characters": 1}
    assert (row.kind, counts.kept) == ("selfplay", 2)


def test_a_second_user_turn_is_held_out_too(tmp_path: Path) -> None:
    """The target may come upon a test prompt in its second turn: not taken."""
    held = "What is the sum of the first seven prime numbers then?"
    settings = replace(SHORT, user=UserTurns(held_out=(held,)))
    with scripted(Script(user_text=lambda number: held.upper())) as engine:
        counts, _ = answer(engine, tmp_path, [prompt("One?", turns=2)], settings)
    assert counts.cut == {"second user turn too near a held-out prompt": 1}


def test_what_makes_no_row_is_counted_by_reason(tmp_path: Path) -> None:
    """Too short, no room, refused by the template: each prompt is a row or a count, and never an error."""
    script = Script(template=chatml, answer=lambda asked: "No" if "short" in asked else "An answer.")
    odd = {
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "boom"}],
        "kind": "data",
    }

    def template(messages: Sequence[dict[str, str]], generate: bool) -> str:
        if any(m["content"] == "boom" for m in messages):
            raise ValueError("Conversation roles must alternate")
        return chatml(messages, generate)

    script.template = template
    with scripted(script) as engine:
        counts, rows = answer(
            engine, tmp_path, [prompt("short?"), prompt("x" * 2040), odd, prompt("fine?"), prompt("y" * 3000)]
        )
    assert [row.index for row in rows] == [3]
    assert counts.dropped == {
        "answer shorter than 4 tokens": 1,
        "prompt leaves no room for an answer in 2048 tokens": 2,
        "refused by the engine: Conversation roles must alternate": 1,
    }
    assert "1 dropped: answer shorter than 4 tokens" in counts.sentences()
    assert {
        json.loads(line)["index"] for line in (tmp_path / "answers.dropped.jsonl").read_text().splitlines()
    } == {0, 1, 2, 4}


def test_a_later_turn_that_is_refused_leaves_the_turns_before(tmp_path: Path) -> None:
    """The template, or the engine, will not have the second turn: the first is a row, and says why it ends there."""

    def template(messages: Sequence[dict[str, str]], generate: bool) -> str:
        if any(m["content"] == "boom" for m in messages):
            raise ValueError("No booms")
        return chatml(messages, generate)

    with scripted(Script(template=template)) as engine:
        counts, (row,) = answer(engine, tmp_path, [prompt("One?", "boom", "Three?")])
    assert [m["role"] for m in row.messages] == ["user", "assistant"]
    assert (counts.kept, counts.dropped) == (1, {})
    assert counts.cut == {"refused by the engine: No booms": 1}


@pytest.mark.parametrize("limit", ["context", "row"])
def test_limits_hold(tmp_path: Path, limit: str) -> None:
    """No row is longer than the engine's context or the row's limit; a conversation with no room left ends early."""
    settings = replace(SHORT, max_row_tokens=300 if limit == "row" else 5000)
    with scripted(
        Script(context=300 if limit == "context" else 5000, answer=lambda asked: "An" + "a" * 80)
    ) as engine:
        counts, rows = answer(engine, tmp_path, [prompt(*["Go on."] * 9), prompt("x" * 200)], settings)
    assert all(len(row.input_ids) <= 300 for row in rows)
    assert rows[0].loss_mask[-1] == 1
    assert counts.cut == {"no room for another turn in 300 tokens": 1}
    assert (rows[1].finish_reason, len(rows[1].input_ids)) == ("length", 300)


def test_no_answer_at_all_is_refused(tmp_path: Path) -> None:
    """A run that keeps nothing ends with the reasons, and leaves no mark of a step that is complete."""
    with (
        scripted(Script(answer=lambda asked: "")) as engine,
        pytest.raises(TrainingError, match="2 dropped: answer shorter"),
    ):
        answer(engine, tmp_path, [prompt("One?"), prompt("Two?")])
    assert not (tmp_path / "answers.done.json").exists()


def test_every_conversation_is_answered_side_by_side(tmp_path: Path) -> None:
    """As many at a time as the engine may be given, and no more."""
    with scripted(Script(delay_s=0.3)) as engine:
        answer(engine, tmp_path, [prompt(f"Number {n}?") for n in range(12)])
        assert engine.peak == engine.access.concurrency == 4


def once_each(rows: Sequence[Row], prompts: Sequence[dict[str, Any]]) -> None:
    """Each prompt has its row, and one."""
    assert [row.index for row in rows] == list(range(len(prompts)))
    assert [row.messages[0]["content"] for row in rows] == [one["messages"][0]["content"] for one in prompts]


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle, a line torn: the next run answers the rest, no row twice, none lost, no answer asked again."""
    prompts = [prompt(f"Number {n}?", *(["And then?"] if n % 3 == 0 else [])) for n in range(60)]
    file, out = put(tmp_path, prompts), tmp_path / "rows.jsonl"
    with scripted(Script(delay_s=0.15)) as engine:
        code = f"""
import asyncio, sys
from pathlib import Path
from outrider.train import answers
from outrider.train.generation import EngineAccess
answers._BATCH = 5
asyncio.run(answers.write_answers(EngineAccess({engine.access.url!r}, "secret", "toy", 4), Path({str(file)!r}),
    Path({str(out)!r}), answers.AnswerSettings(max_answer_tokens=100, min_answer_tokens=4), lambda *a: None))
"""
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            while not out.exists() or out.read_bytes().count(b"\n") < 15:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        whole = out.read_bytes().count(b"\n")
        assert 15 <= whole < 60
        with out.open("ab") as torn:
            torn.write(b'{"index":59,"input_ids":[1,2')
        engine.script.delay_s = 0
        done_before = engine.prompts.copy()
        counts, rows = answer(engine, tmp_path, prompts)
        asked_again = sum((engine.prompts - done_before).values())
    once_each(rows, prompts)
    assert (counts.kept, counts.answer_tokens) == (60, sum(row.answer_tokens for row in rows))
    assert asked_again <= sum(len(one["messages"]) for one in prompts) - whole
    with scripted() as fresh:
        uninterrupted, same = answer(fresh, tmp_path / "other", prompts)
    assert (uninterrupted, same) == (counts, rows)


def test_a_complete_step_is_not_done_again(tmp_path: Path) -> None:
    """Its counts are read, no request is made; rows that were removed are written again."""
    with scripted() as engine:
        counts, rows = answer(engine, tmp_path, [prompt("One?")])
        asked = len(engine.requests)
        assert answer(engine, tmp_path, [prompt("One?")]) == (counts, rows)
        assert len(engine.requests) == asked
        (tmp_path / "rows.jsonl").unlink()
        assert answer(engine, tmp_path, [prompt("One?")]) == (counts, rows)


def test_an_engine_that_dies_leaves_what_it_answered(tmp_path: Path) -> None:
    """A training error with what to do; what was answered is kept, and the repeated command answers the rest."""
    prompts = [prompt(f"Number {n}?") for n in range(40)]
    with scripted() as engine:
        engine.script.fault = lambda path, number: (
            -1 if path == "/v1/completions" and len(engine.prompts) >= 15 else 0
        )
        with pytest.raises(TrainingError, match="does not answer any more") as caught:
            answer(engine, tmp_path, prompts)
        assert "Repeat the command: it goes on" in caught.value.hint
        assert len(list(read_rows(tmp_path / "rows.jsonl"))) >= 15
        engine.script.fault = lambda path, number: 0
        counts, rows = answer(engine, tmp_path, prompts)
    once_each(rows, prompts)
    assert counts.kept == 40


def test_drops_are_not_tried_again(tmp_path: Path) -> None:
    """A stopped run counts a prompt that it dropped once, like an uninterrupted one."""
    prompts = [prompt(f"short {n}?" if n % 2 else f"Number {n}?") for n in range(20)]
    script = Script(answer=lambda asked: "No" if "short" in asked else "An answer.")
    with scripted(script) as engine:
        script.fault = lambda path, number: -1 if len(engine.prompts) >= 10 else 0
        with pytest.raises(TrainingError):
            answer(engine, tmp_path, prompts)
        script.fault = lambda path, number: 0
        counts, rows = answer(engine, tmp_path, prompts)
    assert (counts.kept, counts.dropped) == (10, {"answer shorter than 4 tokens": 10})
    assert [row.index for row in rows] == list(range(0, 20, 2))
    dropped = [
        json.loads(line)["index"] for line in (tmp_path / "answers.dropped.jsonl").read_text().splitlines()
    ]
    assert sorted(dropped) == list(range(1, 20, 2))


def test_no_prompts_file_is_said(tmp_path: Path) -> None:
    """The step before has not run."""
    access = EngineAccess("http://127.0.0.1:9", "k", "m", 1)
    with pytest.raises(TrainingError, match="cannot be read") as caught:
        asyncio.run(write_answers(access, tmp_path / "prompts.jsonl", tmp_path / "rows.jsonl", SHORT, quiet))
    assert caught.value.hint


class _Quick:
    """A talker that has long rows at once."""

    target = SimpleNamespace(access=EngineAccess("", "", "", 16))

    async def answer(self, index: int, record: object) -> Row:
        """A row of 500 tokens, each a number of its own."""
        await asyncio.sleep(0)
        return Row(tuple(range(10_000, 10_500)), (1,) * 500, (), "stop", "data", index)


def test_rows_are_not_held(tmp_path: Path) -> None:
    """Rows go to disk in batches: a thousand of them, 20 MB if they were held, pass through a fraction of that memory."""
    prompts, out = put(tmp_path, [prompt("One?")] * 1000), tmp_path / "rows.jsonl"
    with RowWriter(out) as rows, RowWriter(tmp_path / "dropped.jsonl") as drops:
        work = answers._Work(rows, drops, 1000, quiet)
        tracemalloc.start()
        try:
            asyncio.run(work.run(cast(Any, _Quick()), answers._left(prompts, work.finished)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert work.counts().kept == 1000
    assert peak < 6 * 10**6

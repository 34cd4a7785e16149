"""The data steps on the real CPU engine, started once, without a draft; the last test stops it in the middle of its work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from outrider.core.errors import TrainingError
from outrider.engines.vllm.adapter import VllmEngine
from outrider.launch.prepare import prepare
from outrider.launch.process import free_port, new_key
from outrider.stack.load import built_in_text, load_stack
from outrider.train.answers import AnswerSettings, write_answers
from outrider.train.generation import OVERFLOW, EngineAccess, Refused, Sampling, Target
from outrider.train.prompts import PromptSettings, write_prompts
from outrider.train.rows import DropCounts, Row, read_rows
from outrider.train.selfplay import SelfPlay, UserTurns
from outrider.train.template import learn_template

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]
START_S = 240.0
SETTINGS = AnswerSettings(max_answer_tokens=40, min_answer_tokens=2, user=UserTurns(max_tokens=60))


@dataclass
class Running:
    """The engine's process, and how it is reached."""

    process: subprocess.Popen[bytes]
    access: EngineAccess

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """What the engine says to one request."""
        headers = {"Authorization": f"Bearer {self.access.key}"}
        asked = {"model": self.access.model, **body}
        answer = httpx.post(
            f"{self.access.url}{path}", json=asked, headers=headers, timeout=120, trust_env=False
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def text(self, ids: tuple[int, ...]) -> str:
        """The text of tokens, marks shown."""
        return str(self.post("/detokenize", tokens=ids)["prompt"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The built-in target behind vLLM's own server."""
    folder = tmp_path_factory.mktemp("engine")
    file = folder / "stack.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(built_in_text()), "draft": {"method": "none"}}))
    stack, engine, key = load_stack(file), VllmEngine(), new_key()
    prepared = prepare(stack, engine, print)
    plan = engine.plan(stack, prepared.install, prepared.models, free_port())
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            plan.argv,
            env={**os.environ, **plan.env, plan.key_variable: key},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{plan.base_url}/health", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        else:
            raise AssertionError((folder / "engine.log").read_text()[-4000:])
        yield Running(process, EngineAccess(plan.base_url, key, stack.served_name, 8))
    finally:
        with contextlib.suppress(ProcessLookupError):  # its workers too: they outlive a killed first process
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answer(running: Running, folder: Path, records: list[dict[str, Any]]) -> tuple[DropCounts, list[Row]]:
    """Answer prompts; the counts, and the rows in their order."""
    folder.mkdir(exist_ok=True)
    (folder / "prompts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    counts = asyncio.run(
        write_answers(
            running.access, folder / "prompts.jsonl", folder / "rows.jsonl", SETTINGS, lambda *_: None
        )
    )
    return counts, sorted(read_rows(folder / "rows.jsonl"), key=lambda row: row.index)


def user(*turns: str) -> dict[str, Any]:
    """A line of prompts."""
    return {"messages": [{"role": "user", "content": turn} for turn in turns], "kind": "data"}


def spans(row: Row) -> list[tuple[int, ...]]:
    """The tokens of each answer: runs of the loss mask."""
    found: list[list[int]] = []
    for at, (one, loss) in enumerate(zip(row.input_ids, row.loss_mask, strict=True)):
        if loss and (not at or not row.loss_mask[at - 1]):
            found.append([])
        if loss:
            found[-1].append(one)
    return [tuple(span) for span in found]


def test_the_pieces_of_a_real_template(running: Running) -> None:
    """ChatML of SmolLM2, system text of its own: where the user's text begins and what ends it."""

    async def learn() -> tuple[Any, int]:
        async with Target(running.access) as target:
            return await learn_template(target), target.context_tokens

    pieces, context = asyncio.run(learn())
    assert running.text(pieces.user_start).endswith("Hugging Face<|im_end|>\n<|im_start|>user\n")
    assert running.text(pieces.user_end) == "<|im_end|>"
    assert running.text(pieces.after_answer) == "<|im_end|>\n<|im_start|>user\n"
    assert (pieces.history, context) == ("kept", 2048)


def test_prompts_by_the_targets_own_hand(running: Running, tmp_path: Path) -> None:
    """Prompts, all different, some with an opening, each a text that a user could have sent; then their answers."""
    play = SelfPlay(UserTurns(max_tokens=60), openings=("Write a Python function that",), two_turns_share=0.5)
    out = tmp_path / "prompts.jsonl"
    counts = asyncio.run(write_prompts(running.access, 10, out, PromptSettings(play=play), lambda *_: None))
    records = [json.loads(line) for line in out.read_text().splitlines()]
    texts = [record["messages"][0]["content"] for record in records]
    assert len(set(texts)) == counts.kept == 10
    assert any(text.startswith("Write a Python function that ") for text in texts)
    assert not any("<|im_" in text for text in texts)
    answered, rows = answer(running, tmp_path, records)
    assert answered.kept + sum(answered.dropped.values()) == 10
    assert answered.kept >= 8
    assert answered.answer_tokens == sum(row.answer_tokens for row in rows) > 100
    assert all(len(row.messages) in (2, 4) for row in rows)


def test_a_row_is_what_the_chat_route_would_give(running: Running, tmp_path: Path) -> None:
    """Prompt and answer tokens are those of `/v1/chat/completions`, the end token with a loss; greedy, one at a time."""
    messages = [{"role": "user", "content": "Name the capital of France."}]
    served = running.post(
        "/v1/chat/completions", messages=messages, max_tokens=40, temperature=0, return_token_ids=True
    )
    _, (row,) = answer(running, tmp_path, [user("Name the capital of France.")])
    (span,) = spans(row)
    assert list(span) == served["choices"][0]["token_ids"]
    assert list(row.input_ids) == [*served["prompt_token_ids"], *span]
    assert row.messages[-1]["content"] == served["choices"][0]["message"]["content"]
    if row.finish_reason == "stop":
        assert running.text(span).endswith("<|im_end|>")


def test_a_given_conversation_is_answered_anew(running: Running, tmp_path: Path) -> None:
    """Three turns: each prompt holds the answers before it; the row reads as the template would write the conversation."""
    counts, (row,) = answer(running, tmp_path, [user("Say hello.", "Now in French.", "Thank you!")])
    assert [message["role"] for message in row.messages] == ["user", "assistant"] * 3
    assert len(spans(row)) == 3
    whole = running.text(row.input_ids)
    shown = running.post("/tokenize", messages=row.messages, add_generation_prompt=False)["tokens"]
    assert running.text(shown).startswith(whole.removesuffix("<|im_end|>"))
    for span, message in zip(spans(row), row.messages[1::2], strict=True):
        assert running.text(span).removesuffix("<|im_end|>") == message["content"]
    assert counts.tokens == len(row.input_ids)


def test_a_prompt_beyond_the_context_is_a_drop(running: Running, tmp_path: Path) -> None:
    """The engine would refuse it: counted with its reason, the others answered."""
    counts, (row,) = answer(running, tmp_path, [user("word " * 3000), user("Say hello.")])
    assert counts.dropped == {"prompt leaves no room for an answer in 2048 tokens": 1}
    assert row.index == 1


def test_the_engine_itself_refuses_as_we_read_it(running: Running) -> None:
    """The words of this version for a prompt that is too long are those that make a drop of it, not an error."""

    async def ask(tokens: int, most: int) -> None:
        async with Target(running.access) as target:
            await target.write([[1] * tokens], Sampling(most, 0.0))

    for tokens, most in ((2100, 5), (10, 5000)):
        with pytest.raises(Refused) as caught:
            asyncio.run(ask(tokens, most))
        assert str(caught.value) == OVERFLOW


def test_an_engine_that_is_stopped_in_the_middle(running: Running, tmp_path: Path) -> None:
    """A training error that says to repeat the command; the rows it wrote are whole and are not asked for again."""
    records = [user(f"Write one sentence on the number {n}.") for n in range(60)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def stop(done: int, total: int, note: str) -> None:
        if done >= 5:
            running.process.kill()

    with pytest.raises(TrainingError) as caught:
        asyncio.run(
            write_answers(running.access, tmp_path / "prompts.jsonl", tmp_path / "rows.jsonl", SETTINGS, stop)
        )
    assert "Repeat the command: it goes on" in caught.value.hint
    rows = list(read_rows(tmp_path / "rows.jsonl"))
    assert 5 <= len(rows) < 60
    assert len({row.index for row in rows}) == len(rows)
    assert not (tmp_path / "answers.done.json").exists()

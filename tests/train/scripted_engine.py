"""A small engine of vLLM's HTTP form for the data steps: a tokenizer of bytes, a chat template, answers by rule, and faults.

Tokens 0 to 255 are bytes, 256 and up the marks of `MARKS`, 1000 and up a space with a letter. What it writes
follows from the prompt alone, except user turns, which are numbered in the order they are asked for.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outrider.train.generation import EngineAccess

MARKS = ("<|im_start|>", "<|im_end|>", "</s>", "<s>", "<other_end>")
END = 256 + MARKS.index("<|im_end|>")
JOINED = 1000
STOP_LINE = 301  # a full stop and a line's end
AN = 300  # "An": the engine writes it, its tokenizer never makes it of a text
_SPLIT = re.compile("(" + "|".join(map(re.escape, MARKS)) + ")")
Messages = Sequence[dict[str, str]]


def encode(text: str) -> list[int]:
    """Bytes and marks; a space and a letter after it are one token, and a full stop with a line's end, as in real tokenizers."""
    ids: list[int] = []
    for part in _SPLIT.split(text):
        if part in MARKS:
            ids.append(256 + MARKS.index(part))
            continue
        for one in part.encode():
            if ids and ids[-1] == 32 and chr(one).isascii() and chr(one).isalpha():
                ids[-1] = JOINED + one
            elif ids and ids[-1] == ord(".") and one == ord("\n"):
                ids[-1] = STOP_LINE
            else:
                ids.append(one)
    return ids


def decode(ids: Sequence[int], marks: bool = True) -> str:
    """The text of tokens, marks shown or not."""
    return b"".join(_bytes(one, marks) for one in ids).decode("utf-8", "replace")


def _bytes(one: int, marks: bool) -> bytes:
    if one < 256:
        return bytes([one])
    if one >= JOINED:
        return b" " + bytes([one - JOINED])
    if one in (AN, STOP_LINE):
        return b"An" if one == AN else b".\n"
    return MARKS[one - 256].encode() * marks


def chatml(messages: Messages, generate: bool) -> str:
    """ChatML, with a default system text."""
    given = [] if messages[0]["role"] == "system" else [{"role": "system", "content": "Be good."}]
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in (*given, *messages)]
    return "".join(turns) + ("<|im_start|>assistant\n" if generate else "")


def trimming(messages: Messages, generate: bool) -> str:
    """ChatML that trims what it is given."""
    return chatml([{**m, "content": m["content"].strip()} for m in messages], generate)


def thoughtless(messages: Messages, generate: bool) -> str:
    """ChatML that takes thoughts out of earlier answers."""
    clean = [{**m, "content": m["content"].rpartition("</think>")[2].strip()} for m in messages]
    return chatml([m if m["role"] == "user" else c for m, c in zip(messages, clean, strict=True)], generate)


def bare(messages: Messages, generate: bool) -> str:
    """Words instead of marks."""
    names = {"user": "User", "assistant": "Assistant", "system": "System"}
    turns = [
        f"{names[m['role']]}: {m['content']}</s>\n"
        if m["role"] == "assistant"
        else f"{names[m['role']]}: {m['content']}\n"
        for m in messages
    ]
    return "<s>" + "".join(turns) + ("Assistant:" if generate else "")


def one_turn(messages: Messages, generate: bool) -> str:
    """A template that opens the answer differently than it shows one: only the first turn can be used."""
    text = chatml(messages, generate)
    return text + ("<think>" if generate else "")


def deaf(messages: Messages, generate: bool) -> str:
    """A template that leaves out what the user says."""
    return chatml([{**m, "content": "?"} for m in messages], generate)


def strict(messages: Messages, generate: bool) -> str:
    """A template that knows no system text."""
    if messages[0]["role"] == "system":
        raise ValueError("System role not supported")
    return chatml(messages, generate)


@dataclass
class Script:
    """What it does. `user_text` and `answer` write; `fault` may give a status to answer a request with instead."""

    template: Callable[[Messages, bool], str] = chatml
    context: int = 2048
    user_text: Callable[[int], str] = lambda number: f"Tell me about the number {number}, please."
    answer: Callable[[str], str] = lambda prompt: f"An answer of {len(prompt)} letters to you."
    end: str = "<|im_end|>"
    delay_s: float = 0.0
    fault: Callable[[str, int], int] = lambda path, number: 0
    headers: dict[str, str] = field(default_factory=dict)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class ScriptedEngine:
    """It, listening. `requests`: path, body and headers of each; `peak`: the most that were under way at a time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.prompts = Counter[tuple[int, ...]]()
        self.users = 0
        self.lock = threading.Lock()
        self.running = self.peak = self.connections = 0
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.access = EngineAccess(f"http://127.0.0.1:{self.server.server_address[1]}", "secret", "toy", 4)

    def render(self, messages: Messages, generate: bool = True) -> list[int]:
        """What `/tokenize` says of messages."""
        return encode(self.script.template(messages, generate))

    def complete(self, ids: Sequence[int], body: dict[str, Any]) -> dict[str, Any]:
        """One choice."""
        text = decode(ids)
        opened = max(text.rfind("<|im_start|>user\n"), text.rfind("User:"))
        is_user = opened > max(text.rfind("<|im_start|>assistant\n"), text.rfind("Assistant:"))
        with self.lock:
            self.users += is_user
            number = self.users
            self.prompts[tuple(ids)] += 1
        wrote = self.script.user_text(number) if is_user else self.script.answer(text)
        out = [AN, *encode(wrote[2:])] if wrote.startswith("An") else encode(wrote)
        out += encode(self.script.end)
        finish = "stop"
        if len(out) > body["max_tokens"]:
            out, finish = out[: body["max_tokens"]], "length"
        return {
            "text": decode(out, marks=False),
            "token_ids": out,
            "finish_reason": finish,
            "prompt_token_ids": list(ids),
        }

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and object."""
        if path == "/detokenize":
            return 200, {"prompt": decode(body["tokens"])}
        if path == "/tokenize":
            try:
                ids = self.render(body["messages"], body["add_generation_prompt"])
            except ValueError as error:
                return 400, {"error": {"message": str(error)}}
            return 200, {"tokens": ids, "count": len(ids), "max_model_len": self.script.context}
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        if any(len(ids) + body["max_tokens"] > self.script.context for ids in prompts):
            return 400, {
                "error": {"message": f"This model's maximum context length is {self.script.context} tokens."}
            }
        with self.lock:
            self.running += 1
            self.peak = max(self.peak, self.running)
        time.sleep(self.script.delay_s)
        with self.lock:
            self.running -= 1
        choices = [{"index": at, **self.complete(ids, body)} for at, ids in enumerate(prompts)]
        return 200, {"choices": choices[::-1]}  # in no order that a client may trust


def _handler(engine: ScriptedEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            """A new connection."""
            super().setup()
            with engine.lock:
                engine.connections += 1

        def do_POST(self) -> None:
            """Answer, or fail as the script says."""
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with engine.lock:
                engine.requests.append((self.path, body, dict(self.headers)))
                number = len(engine.requests)
            status = engine.script.fault(self.path, number)
            if status < 0:  # dies in the middle of a request
                self.close_connection = True
                return
            found: dict[str, Any] = {"error": {"message": f"fault {status}"}}
            if not status:
                status, found = engine.reply(self.path, body)
            content = json.dumps(found).encode()
            self.send_response(status)
            for name, value in engine.script.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def scripted(script: Script | None = None) -> Iterator[ScriptedEngine]:
    """An engine that listens until the block ends."""
    engine = ScriptedEngine(script or Script())
    thread = threading.Thread(target=engine.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.server.shutdown()
        engine.server.server_close()
        thread.join(5)

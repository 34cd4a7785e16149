"""The simulated engine's process: ``python -m outrider.engines.sim.server --port 9000 --ttft-ms 40 --step-ms 10``.

Speaks enough of the OpenAI API for the front: chat and text completions, streamed and whole, usage, `/v1/models`,
`/health`, `/metrics`. `POST /sim/script` changes its behaviour while it runs and `GET /sim/last` shows the last request
as it arrived, byte by byte. One asyncio protocol without a framework, so that it does not drown what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import time
from collections import Counter
from dataclasses import fields

import httptools
import uvloop

from outrider.engines.sim.script import (
    Ask,
    Script,
    chunk_bytes,
    event,
    identity,
    read_ask,
    usage_members,
    usage_of,
)

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
}
KEY_VARIABLE = "OUTRIDER_SIM_KEY"


class Simulation:
    """State shared by all connections: the script in force and what was seen."""

    def __init__(self, script: Script, key: str) -> None:
        self.script = script
        self.key = key
        self.requests = 0
        self.running = 0
        self.aborted = 0
        self.tokens = 0
        self.prompt_tokens = 0
        self.first_tokens = 0
        self.steps = 0
        self.drafts = 0
        self.accepted: Counter[int] = Counter()  # by how many of a draft's tokens were accepted
        self.began = time.time()
        self.last: dict[str, object] = {}

    def chunk(self, ask: Ask, index: int) -> None:
        """Count one chunk of an answer: the first token of a request, or a step."""
        size = ask.sizes[index]
        self.tokens += size
        if index == 0:
            self.first_tokens += 1
            self.prompt_tokens += ask.prompt_tokens
            return
        self.steps += 1
        if ask.drafted:
            self.drafts += 1
            self.accepted[self.script.accepted(size, ask.draft)] += 1

    def metrics(self) -> bytes:
        """Counters in Prometheus' text form."""
        rows: dict[str, float] = {
            "process_start_time_seconds": self.began,
            "sim:requests_total": self.requests,
            "sim:requests_running": self.running,
            "sim:requests_aborted_total": self.aborted,
            "sim:prompt_tokens_total": self.prompt_tokens,
            "sim:generation_tokens_total": self.tokens,
            "sim:first_tokens_total": self.first_tokens,
            "sim:steps_total": self.steps,
            "sim:drafts_total": self.drafts,
            "sim:draft_tokens_total": self.drafts * self.script.draft_length,
            "sim:accepted_tokens_total": sum(count * times for count, times in self.accepted.items()),
        }
        for position in range(self.script.draft_length if self.drafts else 0):
            reached = sum(times for count, times in self.accepted.items() if count > position)
            rows[f'sim:accepted_tokens_per_pos_total{{position="{position}"}}'] = reached
        return "".join(f"{name} {value}\n" for name, value in rows.items()).encode()


class Connection(asyncio.Protocol):
    """One connection: reads a request, answers it by timers."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self.ask: Ask | None = None
        self.served = 0
        self.paused = False
        self.begin_message()

    def begin_message(self) -> None:
        """Forget the last request."""
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # a stream protocol's transport

    def connection_lost(self, exc: Exception | None) -> None:
        """A client that left ends its request."""
        if self.timer:
            self.timer.cancel()
        if self.ask is not None:
            self.simulation.running -= 1
            self.simulation.aborted += 1

    def pause_writing(self) -> None:
        """The reader is slow: generate nothing more for the moment."""
        self.paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self.paused = False

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        if self.served and not self.simulation.script.reuse:
            self.transport.abort()
            return
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Part of the request's target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        """Part of the body."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """The whole request is here: answer it."""
        method, body, path = self.parser.get_method(), b"".join(self.body), self.url.decode("latin-1")
        headers = self.headers
        self.begin_message()
        self.served += 1
        if path in ("/v1/chat/completions", "/v1/completions") and method == b"POST":
            self.complete(path, headers, body)
        else:
            self.answer(*self.other(path, body))

    def other(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of every route that generates nothing."""
        simulation = self.simulation
        if path == "/health":
            return (200, b"") if simulation.script.ready else (500, b"")
        if path == "/metrics":
            return 200, simulation.metrics()
        if path == "/v1/models":
            model = {"id": simulation.script.model, "object": "model", "created": 1, "owned_by": "sim"}
            return 200, json.dumps({"object": "list", "data": [model]}).encode()
        if path == "/sim/last":
            return 200, json.dumps(simulation.last).encode()
        if path == "/sim/script":
            try:
                simulation.script = simulation.script.changed(json.loads(body))
            except ValueError as error:
                return 400, str(error).encode()
            return 200, b"{}"
        return 404, b'{"detail":"Not Found"}'

    def complete(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer a completion, or fail as the script says."""
        simulation, script = self.simulation, self.simulation.script
        self.number = simulation.requests
        simulation.requests += 1
        simulation.last = {
            "path": path,
            "headers": [[name.decode("latin-1").lower(), value.decode("latin-1")] for name, value in headers],
            "body": base64.b64encode(body).decode(),
        }
        if 0 <= script.die_after_requests < simulation.requests:
            os._exit(1)
        key = {name.lower(): value for name, value in headers}.get(b"authorization", b"")
        if simulation.key and key != b"Bearer " + simulation.key.encode():
            self.answer(401, b'{"error":"Unauthorized"}')
            return
        if script.fail_requests > 0:
            simulation.script = script.changed({"fail_requests": script.fail_requests - 1})
            self.answer(500, b"Internal Server Error", b"text/plain")
            return
        self.fault = script.fault(self.number)
        if self.fault in ("429", "500"):
            kind = "rate_limit_exceeded" if self.fault == "429" else "internal_error"
            message = {"message": "as scripted", "type": kind, "param": None, "code": kind}
            self.answer(int(self.fault), json.dumps({"error": message}).encode())
            return
        try:
            ask = read_ask(body, path.endswith("chat/completions"), script)
        except ValueError as error:
            refused = {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            self.answer(400, json.dumps({"error": refused}).encode())
            return
        self.ask = ask
        simulation.running += 1
        if ask.stream:
            self.sent = 0
            self.due = self.loop.time() + script.ttft_s(simulation.running)
            self.told = 0
            self.middle = self.framed(chunk_bytes(ask, script, ("tok" * 8192)[: script.chunk_chars], None))
            self.timer = self.loop.call_at(self.due, self.stream)
        else:
            running = simulation.running
            delay_s = script.ttft_s(running) + script.step_s(running) * (ask.chunks - 1)
            self.timer = self.loop.call_later(delay_s, self.whole)

    def stream(self) -> None:
        """Send one chunk and set the timer for the next; the schedule does not drift with the load."""
        ask, script = self.ask, self.simulation.script
        if ask is None or self.sent == script.stall_after:
            return
        if self.paused:
            self.timer = self.loop.call_later(0.005, self.stream)
            return
        if self.sent == script.cut_after or (self.fault == "cut" and self.sent == ask.chunks // 2):
            self.transport.abort()
            return
        if self.sent == 0:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
            role = self.framed(chunk_bytes(ask, script, None, None, self.running(ask))) if ask.chat else b""
            self.transport.write(head + role + self.piece(ask))
        else:
            self.transport.write(self.piece(ask))
        self.simulation.chunk(ask, self.sent)
        self.sent += 1
        if self.sent < ask.chunks:
            self.due += script.step_s(self.simulation.running) + script.stall_s(self.number, self.sent)
            self.timer = self.loop.call_at(self.due, self.stream)
            return
        self.transport.write(self.framed(chunk_bytes(ask, script, "", "length", self.running(ask))))
        if ask.usage:
            members = {**identity(ask, script), "choices": [], **usage_members(ask, script)}
            self.transport.write(self.framed(event(members)))
        self.transport.write(self.framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        self.finish()

    def running(self, ask: Ask) -> dict[str, object] | None:
        """The usage up to here, for a client that asked for it in every chunk."""
        return usage_of(ask, self.told) if ask.running_usage else None

    def piece(self, ask: Ask) -> bytes:
        """The next chunk; the same bytes every time unless it tells the usage."""
        if not ask.running_usage:
            return self.middle
        self.told += ask.sizes[self.sent]
        text = ("tok" * 8192)[: self.simulation.script.chunk_chars]
        return self.framed(chunk_bytes(ask, self.simulation.script, text, None, self.running(ask)))

    def whole(self) -> None:
        """Send the answer of a request that does not stream."""
        ask, script = self.ask, self.simulation.script
        if ask is None:
            return
        text = ("tok" * 8192)[: script.chunk_chars] * ask.chunks
        body: dict[str, object] = (
            {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
        )
        choice = {"index": 0, **body, "logprobs": None, "finish_reason": "length"}
        kind = "chat.completion" if ask.chat else "text_completion"
        answer = {**identity(ask, script), "object": kind, "choices": [choice], **usage_members(ask, script)}
        for index in range(ask.chunks):
            self.simulation.chunk(ask, index)
        self.finish()
        self.answer(200, json.dumps(answer).encode())

    def finish(self) -> None:
        """Count the finished request."""
        simulation, ask = self.simulation, self.ask
        if ask is None:
            return
        simulation.running -= 1
        self.ask = None

    def answer(self, status: int, body: bytes, kind: bytes = b"application/json") -> None:
        """A whole response."""
        line = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-length: {len(body)}\r\n".encode()
        self.transport.write(line + b"content-type: " + kind + b"\r\n\r\n" + body)

    @staticmethod
    def framed(data: bytes) -> bytes:
        """One HTTP chunk."""
        return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(script: Script, host: str, port: int, key: str, drain_s: float) -> None:
    """Serve until SIGTERM or SIGINT, then finish what runs within `drain_s`; prints the port once it listens."""
    loop = asyncio.get_running_loop()
    simulation = Simulation(script, key)
    server = await loop.create_server(lambda: Connection(simulation), host, port, backlog=2048)
    print(f"simulated engine on port {server.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201  # the ready line
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()
    until = loop.time() + drain_s
    while simulation.running and loop.time() < until:
        await asyncio.sleep(0.02)


def main() -> None:
    """Flags are the script's members."""
    parser = argparse.ArgumentParser(description="Simulated engine for tests of the front.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--drain-s", type=float, default=0.0, help="at SIGTERM, answers under way get this long"
    )
    for field in fields(Script):
        kind = type(field.default)
        convert = kind if kind is not bool else lambda text: text == "true"
        parser.add_argument("--" + field.name.replace("_", "-"), type=convert, default=field.default)
    flags = vars(parser.parse_args())
    host, port, drain_s = (flags.pop(name) for name in ("host", "port", "drain_s"))
    uvloop.run(serve(Script(**flags), host, port, os.environ.get(KEY_VARIABLE, ""), drain_s))


if __name__ == "__main__":
    main()

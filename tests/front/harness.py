"""Starts fronts and simulated engines, and speaks HTTP to them, politely or not."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

CHAT = "/v1/chat/completions"
Json = dict[str, Any]


def chat(**members: object) -> bytes:
    """A chat request's body."""
    return json.dumps(
        {"model": "sim", "messages": [{"role": "user", "content": "hello"}], **members}
    ).encode()


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for a condition; fails after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Json:
        """The body as JSON."""
        parsed: Json = json.loads(self.body)
        return parsed

    @property
    def error(self) -> Json:
        """The error of OpenAI's form."""
        error: Json = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error


def ask(
    port: int, method: str, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str
) -> Answer:
    """One request over a connection of its own; `_` in header names is `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named.setdefault("content-type", "application/json")
        connection.request(method, path, body, named, encode_chunked=not isinstance(body, bytes | None))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def raw(port: int, data: bytes, timeout_s: float = 30.0) -> bytes:
    """Send bytes as they are, and read until the server closes or the answer is whole by its length."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(data)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def post(body: bytes, *headers: str, path: str = CHAT) -> bytes:
    """The bytes of a POST."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def payloads(stream: bytes) -> list[Any]:
    """The events of a stream: parsed JSON, or text where it is none."""
    texts = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event]
    return [text.decode() if text == b"[DONE]" else json.loads(text) for text in texts]


class Server:
    """A process that prints its port once it listens."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self._log_path = log
        with log.open("w") as sink:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=sink, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.end()
        assert line, log.read_text()
        self.port = int(line.split()[-1])

    def log(self) -> str:
        """Its standard error so far."""
        return self._log_path.read_text()

    def kill(self) -> None:
        """As if the machine had pulled its plug."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Stop it if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()


class RawEngine:
    """An engine that answers every request with the same bytes, whatever they are; none at all is silence."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            # A test's request comes in one read.
            while connection.recv(1 << 20):
                connection.sendall(self.answer)

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()


class Sim(Server):
    """A simulated engine."""

    def script(self, **members: object) -> None:
        """Change what it does."""
        answer = ask(self.port, "POST", "/sim/script", json.dumps(members).encode())
        assert answer.status == 200, answer.body

    def last(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of the last completion it was asked for."""
        seen = ask(self.port, "GET", "/sim/last").json()
        return dict(seen["headers"]), base64.b64decode(seen["body"])

    def metric(self, name: str) -> float:
        """One of its counters."""
        return metric_in(ask(self.port, "GET", "/metrics").body.decode(), f"sim:{name}")


class Front(Server):
    """A front."""

    def metric(self, name: str) -> float:
        """One sample of /metrics, by its whole name with labels; 0 where there is none."""
        return metric_in(ask(self.port, "GET", "/metrics").body.decode(), name)

    def resident_bytes(self) -> int:
        """Memory in use."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def metric_in(text: str, name: str) -> float:
    """The value of a sample in Prometheus' text form, 0 where there is none."""
    for line in text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


S = TypeVar("S", bound=Server)


@dataclass
class Bed:
    """Everything one test started."""

    folder: Path
    servers: list[Server] = field(default_factory=list)

    def sim(self, **flags: object) -> Sim:
        """A simulated engine with these members of its script; `port` fixes its port."""
        argv = [sys.executable, "-m", "outrider.engines.sim.server"]
        for name, value in flags.items():
            argv += ["--" + name.replace("_", "-"), str(value)]
        return self._keep(Sim(argv, self.folder / f"sim-{len(self.servers)}.log"))

    def front(self, *sims: Sim | RawEngine, concurrency: int = 4, **config: Any) -> Front:
        """A front before these engines; members of the config beside `settings` go in as they are."""
        upstreams = [{"port": sim.port, "concurrency": concurrency} for sim in sims]
        config = {"upstreams": upstreams, **config}
        argv = [sys.executable, "-m", "outrider.front.standalone", json.dumps(config)]
        return self._keep(Front(argv, self.folder / f"front-{len(self.servers)}.log"))

    def _keep(self, server: S) -> S:
        self.servers.append(server)
        return server


@contextmanager
def bed() -> Iterator[Bed]:
    """A bed whose processes end with it."""
    with tempfile.TemporaryDirectory(prefix="outrider-front-") as folder:
        made = Bed(Path(folder))
        with ExitStack() as ends:
            try:
                yield made
            finally:
                for server in made.servers:
                    ends.callback(server.end)

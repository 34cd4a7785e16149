"""Pods that end while clients read: processes as the manifests start them, told to stop as the kubelet does.

The front runs with the rendered arguments; only its address, its keys' file and the engines' places are this machine's. Engines
are simulated: the same door, and the drain that the plan gives them.
"""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.engines.base import ResolvedModels
from outrider.engines.sim.adapter import SimEngine
from outrider.launch.process import free_port
from outrider.stack.load import load_stack
from tests.deploy.charts import HERE, RELEASE, one
from tests.front.harness import ask, wait_until

KEY, ENGINE_KEY = "test-key", "engine-key"
MODEL = "llama-3.3-70b"


class Pods:
    """Processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        stack, secret = folder / "stack.yaml", one("keda", "Secret", f"{RELEASE}-keys")
        stack.write_text(one("keda", "ConfigMap", f"{RELEASE}-stack")["data"]["stack.yaml"])
        assert secret["stringData"]["keys.yaml"]
        (folder / "keys.yaml").write_text(
            json.dumps(
                [{"name": "a", "sha256": sha(KEY)}, {"name": "b", "sha256": sha("batch"), "lane": "batch"}]
            )
        )

    def engine(self, port: int, **script: object) -> "subprocess.Popen[bytes]":
        """An engine as its plan starts it."""
        stack = load_stack(HERE / "stacks" / "llama.yaml")
        grace = stack.engine.model_copy(update={"shutdown_grace_s": stack.serve.drain_timeout_s})
        plan = SimEngine().plan(
            stack.model_copy(update={"engine": grace}), SimEngine().find(stack), ResolvedModels(""), port
        )
        flags = [
            word for name, value in script.items() for word in ("--" + name.replace("_", "-"), str(value))
        ]
        return self._start([*plan.argv, *flags], {plan.key_variable: ENGINE_KEY}, f"engine-{port}")

    def front(self, *engines: str, more: tuple[str, ...] = ()) -> "tuple[subprocess.Popen[bytes], int]":
        """The front with the rendered command line."""
        (container,) = one("keda", "Deployment", f"{RELEASE}-front")["spec"]["template"]["spec"]["containers"]
        port = free_port()
        replaced = {"--host": "127.0.0.1", "--port": str(port), "--keys": str(self.folder / "keys.yaml")}
        argv = [sys.executable, "-m", "outrider", "front", str(self.folder / "stack.yaml"), "--simulated"]
        for word in container["command"][3:]:
            name = word.partition("=")[0]
            if name not in ("--engine", "--no-draft", "--from-zero"):
                argv.append(f"{name}={replaced[name]}" if name in replaced else word)
        argv += [f"--engine={engine}" for engine in engines]
        (variable,) = container["env"]
        process = self._start([*argv, *more], {variable["name"]: ENGINE_KEY}, "front")
        wait_until(lambda: listens(port), 90)
        return process, port

    def _start(self, argv: list[str], env: dict[str, str], name: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(argv, env={**os.environ, **env}, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def end(self) -> None:
        """All of them."""
        for process in self.running:
            process.kill()
            process.wait(10)


def sha(key: str) -> str:
    """The hash that stands for a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ready(port: int) -> bool:
    """As the kubelet asks."""
    return ask(port, "GET", "/readyz").status == 200


class Stream(threading.Thread):
    """One client that reads a stream to its end."""

    def __init__(self, port: int, tokens: int, key: str = KEY) -> None:
        super().__init__(daemon=True)
        self._port, self._tokens, self._key = port, tokens, key
        self.events: list[Any] = []
        self.status = 0
        self.start()

    def run(self) -> None:
        """Read."""
        body = {"model": MODEL, "stream": True, "max_tokens": self._tokens}
        body["messages"] = [{"role": "user", "content": "hello"}]
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._key}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        self.status = answer.status
        for line in answer:
            if line.startswith(b"data: "):
                text = line.removeprefix(b"data: ").strip().decode()
                self.events.append(text if text == "[DONE]" else json.loads(text))
        connection.close()

    @property
    def tokens(self) -> int:
        """Chunks with text so far; the simulation sends one token each."""
        return sum(
            bool(choice["delta"].get("content"))
            for event in self.events
            if event != "[DONE]"
            for choice in event.get("choices", ())
        )

    def whole(self) -> bool:
        """Whether the last token and the end mark came."""
        self.join(60)
        return self.status == 200 and self.events[-1] == "[DONE]" and self.tokens == self._tokens


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    """Processes that end with the test."""
    made = Pods(tmp_path)
    yield made
    made.end()


def test_a_stream_survives_the_end_of_its_engine(pods: Pods) -> None:
    """SIGTERM to the engine in mid-stream: the client still gets the last token, and what comes meanwhile the other engine."""
    first, second = free_port(), free_port()
    ending = pods.engine(first, step_ms=40)
    _, port = pods.front(f"127.0.0.1:{first}", f"127.0.0.1:{second}")
    wait_until(lambda: ready(port), 90)
    stream = Stream(port, 60)
    wait_until(lambda: stream.tokens > 5)
    pods.engine(second, step_ms=5)
    ending.send_signal(signal.SIGTERM)
    others = [Stream(port, 8) for _ in range(6)]
    assert stream.whole()
    assert all(other.whole() for other in others)
    assert ending.wait(60) == 0


def test_a_stream_survives_the_end_of_its_front(pods: Pods) -> None:
    """SIGTERM to the front in mid-stream: the last token comes, new work is sent elsewhere (503), then it ends by itself."""
    engine = free_port()
    pods.engine(engine, step_ms=40)
    front, port = pods.front(f"127.0.0.1:{engine}")
    wait_until(lambda: ready(port), 90)
    stream = Stream(port, 150)
    wait_until(lambda: stream.tokens > 5)
    front.send_signal(signal.SIGTERM)
    wait_until(lambda: not ready(port))
    late = Stream(port, 3)
    late.join(60)
    assert late.status == 503
    assert stream.whole()
    assert front.wait(60) == 0


def test_requests_wait_for_a_lane_that_is_scaled_from_zero(pods: Pods) -> None:
    """`--from-zero`: ready without an engine; a batch request waits, is seen by the autoscaler's gauge, and is served later."""
    interactive, batch = free_port(), free_port()
    places = (f"interactive=127.0.0.1:{interactive}", f"batch=127.0.0.1:{batch}")
    _, port = pods.front(*places, more=("--from-zero", "--no-draft=batch"))
    wait_until(lambda: ready(port), 90)
    pods.engine(interactive)
    waiting = Stream(port, 4, key="batch")
    assert Stream(port, 4).whole()  # people are not held up by it

    def gauge(name: str) -> float:
        lines = ask(port, "GET", "/metrics").body.decode().splitlines()
        return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name)))

    wait_until(lambda: gauge('outrider_lane_queue_wait_seconds{lane="batch"}') > 0.2)
    assert gauge('outrider_engines_ready{lane="batch"}') == 0
    assert not waiting.events
    pods.engine(batch)
    assert waiting.whole()
    assert gauge('outrider_lane_queue_wait_seconds{lane="batch"}') > 0.2  # the last minute's p90
    assert gauge('outrider_engines_ready{lane="batch"}') == 1


def test_fronts_that_share_an_engine_queue_what_is_over_their_share(pods: Pods) -> None:
    """64 at once and 32 fronts: this one gives the engine two, the third waits where the autoscaler sees it."""
    engine = free_port()
    pods.engine(engine, step_ms=50)
    _, port = pods.front(f"127.0.0.1:{engine}", more=("--fronts", "32"))
    wait_until(lambda: ready(port), 90)
    streams = [Stream(port, 60) for _ in range(3)]
    wait_until(
        lambda: (
            'outrider_requests_waiting{lane="interactive"} 1.0' in ask(port, "GET", "/metrics").body.decode()
        )
    )
    assert (
        'outrider_lane_requests_running{lane="interactive"} 2.0' in ask(port, "GET", "/metrics").body.decode()
    )
    assert all(stream.whole() for stream in streams)


def test_an_engine_that_refuses_the_key_gets_no_work(pods: Pods) -> None:
    """Its warm-up fails, and the reason is told."""
    engine = free_port()
    pods.engine(engine)
    _, port = pods.front(f"127.0.0.1:{engine}")
    wait_until(lambda: ready(port), 90)
    wrong = free_port()
    pods._start(
        [sys.executable, "-m", "outrider.engines.sim.server", "--port", str(wrong)],
        {"OUTRIDER_SIM_KEY": "another"},
        "wrong",
    )
    other = Pods(pods.folder)
    try:
        _, shut = other.front(f"127.0.0.1:{wrong}")
        wait_until(lambda: "answered 401" in ask(shut, "GET", "/readyz").body.decode(), 90)
        assert ask(shut, "GET", "/readyz").status == 503
    finally:
        other.end()

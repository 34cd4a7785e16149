"""Break a head's acceptance while the server runs, mend it, and see the draft go head -> n-gram -> head.

    python examples/fallback/run.py                # about three minutes on two cores
    python examples/fallback/run.py --stack my-stack.yaml --known my.jsonl --unknown other.jsonl

The head's acceptance is broken by traffic that it does not know, as users do. Every prompt is answered greedily in float32, so
its text must be the same with every draft. Exits 1 unless the head's acceptance was broken, the draft went head -> n-gram ->
head (or by no draft, where n-gram did not pay either), and no request failed or changed. Standard library only; `outrider` is
looked for beside this Python.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STREAMS = 3
TOKENS = 32
SETTLED_S = 20.0
# What the issue of a fallback is: in force for new requests within this, and back within this.
LEFT_WITHIN_S, LEFT_WITHIN_REQUESTS, BACK_WITHIN_S = 30.0, 50, 60.0
START_WITHIN_S = 300.0


class Server:
    """`outrider serve` of a stack, on a free port of this machine."""

    def __init__(self, stack: Path, log: Path) -> None:
        outrider = str(Path(sys.executable).with_name("outrider"))
        with log.open("w") as sink:
            command = [outrider, "serve", str(stack), "--port", "0", "--log", "json"]
            self.process = subprocess.Popen(command, stderr=sink)
        self.log = log
        self.url, self.model = "", ""

    def wait(self) -> None:
        """Until it is ready."""
        end = time.monotonic() + START_WITHIN_S
        while not self.url:
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server did not start; its log: {self.log}\n{self.log.read_text()[-2000:]}")
            time.sleep(0.5)
            lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
            self.url = next((line["url"] for line in lines if line.get("engine_url")), "")
        self.model = self.ask("/v1/models")["data"][0]["id"]

    def ask(self, path: str, body: object = None) -> Any:
        """One request; JSON both ways. Raises OSError for a status that is not 200."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def complete(self, prompt: str) -> str:
        """The greedy answer to a prompt."""
        messages = [{"role": "user", "content": prompt}]
        asked = {"model": self.model, "messages": messages, "max_tokens": TOKENS, "temperature": 0}
        answer = self.ask("/v1/chat/completions", asked)
        return str(answer["choices"][0]["message"]["content"])

    def speculation(self) -> Any:
        """Which draft is in force, and why."""
        return self.ask("/v1/speculation")

    def pin(self, draft: str | None) -> None:
        """Hold a draft in force, or let it go."""
        self.ask("/v1/speculation", {"release": True} if draft is None else {"pin": draft})


class Traffic:
    """A few streams of requests, one prompt after the other, until told to stop."""

    def __init__(self, server: Server, right: dict[str, str]) -> None:
        self.server, self.right = server, right
        self.prompts: Iterator[str] = iter(())
        self.asked, self.failed, self.changed = 0, [], []  # type: int, list[str], list[str]
        self._lock = threading.Lock()

    def _ask_on(self, done: threading.Event) -> None:
        while not done.is_set():
            with self._lock:
                prompt = next(self.prompts)
                self.asked += 1
            try:
                text = self.server.complete(prompt)
            except OSError as error:
                self.failed.append(f"{prompt}: {error}")
                continue
            if text != self.right[prompt]:
                self.changed.append(prompt)

    @contextmanager
    def of(self, prompts: list[str]) -> Iterator[None]:
        """These prompts, over and over, meanwhile."""
        self.prompts = itertools.cycle(prompts)
        done = threading.Event()
        threads = [threading.Thread(target=self._ask_on, args=(done,)) for _ in range(STREAMS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()


def until(server: Server, draft: str, within_s: float) -> bool:
    """Wait until this draft is in force."""
    end = time.monotonic() + within_s
    while server.speculation()["draft"] != draft:
        if time.monotonic() > end:
            return False
        time.sleep(0.25)
    return True


def length_of(server: Server, draft: str) -> float:
    """The draft's acceptance length by its latest requests; 1 where it drafted nothing."""
    row = next(row for row in server.speculation()["drafts"] if row["draft"] == draft)
    return float(row["acceptance_length"] or 1.0)


def run(server: Server, known: list[str], unknown: list[str]) -> list[str]:
    """All phases; what went wrong."""
    wrong: list[str] = []
    head = str(server.speculation()["drafts"][0]["draft"])
    print("asking every prompt once without a draft: these texts must not change")
    server.pin("off")
    right = {prompt: server.complete(prompt) for prompt in [*known, *unknown]}
    server.pin(head)
    server.pin(None)
    switches = len(server.speculation()["last_switches"])
    traffic = Traffic(server, right)
    with traffic.of(known):
        time.sleep(SETTLED_S)
        good = length_of(server, head)
        in_force = server.speculation()["draft"]
    print(f"traffic that the head knows:     AL {good:.2f}, {in_force} in force")
    if in_force != head:
        wrong.append(f"{in_force} is in force on traffic that the head knows")
    began, asked = time.monotonic(), traffic.asked
    with traffic.of(unknown):
        left = until(server, "ngram", LEFT_WITHIN_S)
        took_s, requests = time.monotonic() - began, traffic.asked - asked
        why = server.speculation()["why"]
        print(f"traffic that it does not know:   n-gram after {took_s:.0f} s and {requests} requests: {why}")
        time.sleep(5)
    if not left or requests > LEFT_WITHIN_REQUESTS:
        wrong.append(
            f"the head was not left within {LEFT_WITHIN_S:.0f} s and {LEFT_WITHIN_REQUESTS} requests"
        )
    began = time.monotonic()
    with traffic.of(known):
        back = until(server, head, BACK_WITHIN_S)
        print(
            f"traffic that it knows again:     {head} after {time.monotonic() - began:.0f} s: {server.speculation()['why']}"
        )
        time.sleep(3)
    if not back:
        wrong.append(f"the head was not back within {BACK_WITHIN_S:.0f} s")
    went = [one["after"] for one in server.speculation()["last_switches"][switches:]]
    # On a slow machine n-gram may be seen not to pay for what the head knows before the head is back: then there is none between.
    if went not in (["ngram", head], ["ngram", "off", head]):
        wrong.append(f"the draft went {head} -> {' -> '.join(went) or 'nowhere'}")
    print(f"{traffic.asked} requests, {len(traffic.failed)} failed, {len(traffic.changed)} changed")
    wrong += [f"failed: {text}" for text in traffic.failed[:5]] + [
        f"changed: {text}" for text in traffic.changed[:5]
    ]
    return wrong


def prompts_of(path: Path) -> list[str]:
    """The prompts of a JSONL file."""
    return [str(json.loads(line)["prompt"]) for line in path.read_text().splitlines() if line.strip()]


def main() -> None:
    """Start, run, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stack", type=Path, default=HERE / "stack.yaml")
    parser.add_argument("--known", type=Path, default=HERE / "known.jsonl", help="prompts of the head's kind")
    parser.add_argument(
        "--unknown", type=Path, default=HERE / "unknown.jsonl", help="prompts that it does not know"
    )
    parser.add_argument("--log", type=Path, default=Path("fallback.log"), help="the server's log")
    parser.add_argument(
        "--stay", action="store_true", help="serve on after the run until Ctrl-C, to look at /ui"
    )
    flags = parser.parse_args()
    server = Server(flags.stack, flags.log)
    try:
        server.wait()
        print(f"serving; watch it at {server.url}/ui")
        wrong = run(server, prompts_of(flags.known), prompts_of(flags.unknown))
        if flags.stay:
            print(f"still serving: {server.url}/ui tells what was switched and why; Ctrl-C ends it")
            with suppress(KeyboardInterrupt):
                server.process.wait()
    finally:
        server.process.terminate()
        server.process.wait(60)
    for line in wrong:
        print(f"WRONG: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

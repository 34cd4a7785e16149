"""A headless Chromium behind its DevTools pipe: what a test needs to open a page and look at it, with the standard library.

The pipe (file descriptors 3 and 4, JSON messages that end with a NUL byte) needs no port and no client library.
Source: Chromium's `--remote-debugging-pipe`, https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
START_S = 60.0
ANSWER_S = 90.0


def find() -> str:
    """The browser's path. Fails, never skips: without it nobody has looked at the report."""
    for name in (os.environ.get("OUTRIDER_CHROMIUM", ""), *NAMES):
        path = shutil.which(name) if name else None
        if path:
            return path
    pytest.fail("no Chromium: install it (Debian: apt-get install chromium) or name one in OUTRIDER_CHROMIUM")


class Page:
    """One tab. Every call waits for its answer; events are kept in `events`."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._in = out, into
        self._buffer = b""
        self._id = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []

    def attach(self) -> None:
        """Open a tab and watch its network and its console."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The command's result."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._id:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, place: Path | str) -> None:
        """Load a file, or an address, and wait until it is complete."""
        self.events.clear()
        self.call("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        until = time.monotonic() + ANSWER_S
        while self.js("document.readyState") != "complete" or self.js("location.href") == "about:blank":
            assert time.monotonic() < until, "the page did not load"
            time.sleep(0.05)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """The window's size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def media(self, *, scheme: str = "light", kind: str = "") -> None:
        """Colour scheme (`light`, `dark`) and medium (`print`, or the screen)."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=kind,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def screenshot(self, path: Path) -> bytes:
        """What the window shows, as PNG."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)
        return data

    def pdf(self, path: Path) -> bytes:
        """The page as it is printed on A4."""
        data = base64.b64decode(
            self.call(
                "Page.printToPDF",
                printBackground=True,
                paperWidth=8.27,
                paperHeight=11.69,
                preferCSSPageSize=True,
            )["data"]
        )
        path.write_bytes(data)
        return data

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], ANSWER_S)
            assert ready, "Chromium did not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium ended"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def browse() -> Iterator[Page]:
    """A browser with an empty profile and one tab; ended with the block."""
    program = find()
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="outrider-chromium-", ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "bash", *command]
        log = Path(profile) / "log"
        with log.open("wb") as written:
            process = subprocess.Popen(shell, pass_fds=(their_in, their_out), stdout=written, stderr=written)
        os.close(their_in)
        os.close(their_out)
        try:
            page = Page(our_out, our_in)
            page.attach()
            yield page
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            os.close(our_out)
            os.close(our_in)

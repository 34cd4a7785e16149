"""Starting and stopping the front."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
from collections.abc import Callable

from outrider.control.governing import Load, Speculation
from outrider.control.upstreams import UpstreamSet
from outrider.core.errors import Problem, StackError
from outrider.engines.base import Engine
from outrider.front.app import App
from outrider.front.dispatch import Dispatcher
from outrider.front.journal import Journal
from outrider.front.settings import FrontSettings

TICK_S = 0.25


class FrontServer:
    """A running front."""

    def __init__(self, app: App, dispatcher: Dispatcher, server: asyncio.Server) -> None:
        self._app = app
        self._dispatcher = dispatcher
        self._server = server
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def busy(self) -> bool:
        """Whether anything waits, runs, or is not yet read by its client."""
        return (
            bool(self._app.editing)
            or not self._dispatcher.idle
            or any(c.unsent_bytes for c in self._app.connections)
        )

    def load(self) -> Load:
        """How it stands, for the governor."""
        return self._dispatcher.load()

    async def drain(self, timeout_s: float) -> bool:
        """Take no new work and wait for what is under way. Whether all of it ended in time.

        It goes on listening: until the end, /readyz says why, /metrics is there, and new work is answered 503.
        """
        self._app.draining = True
        for connection in list(self._app.connections):
            connection.close_if_idle()
        try:
            async with asyncio.timeout(timeout_s):
                while self.busy:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End everything; what is still under way is told so."""
        self._app.draining = True
        self._server.close()
        self._ticking.cancel()
        self._app.stop()
        self._dispatcher.stop()
        for connection in list(self._app.connections):
            connection.hang_up()
        # One turn of the loop, so that last words leave.
        await asyncio.sleep(0)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._dispatcher.guarded(self._app.tick)


async def start(
    settings: FrontSettings,
    upstreams: UpstreamSet,
    engine: Engine,
    speculation: Speculation,
    journal: Journal,
    readiness: Callable[[], tuple[bool, str]],
) -> FrontServer:
    """Listen. Raises StackError for an address without keys that others reach, or one that cannot be had."""
    refuse_open_door(settings)
    # What was imported and built until now stays for good: kept out of every later collection, which would otherwise
    # walk all of it and hold up every stream for milliseconds.
    gc.collect()
    gc.freeze()
    dispatcher = Dispatcher(settings, upstreams, engine, speculation, journal)
    app = App(dispatcher, readiness)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(app.connect, settings.host, settings.port, backlog=2048)
    except OSError as error:
        raise _cannot_listen(settings, error) from error
    return FrontServer(app, dispatcher, server)


def refuse_open_door(settings: FrontSettings) -> None:
    """An address that other machines reach needs keys. Raises StackError."""
    if settings.keys or settings.host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        hint = "Add a key under serve.keys (`outrider key new` makes one), or listen on 127.0.0.1."
        problem = Problem(
            f"{settings.host} can be reached by other machines, and there are no API keys",
            path="serve.host",
            rule="open-door",
            hint=hint,
        )
        raise StackError(f"Refusing to listen on {settings.host} without API keys.", (problem,), hint=hint)


def _cannot_listen(settings: FrontSettings, error: OSError) -> StackError:
    place = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        hint = f"End what listens there (`ss -ltnp 'sport = :{settings.port}'` shows it), or set serve.port (0: a free one)."
        return StackError(f"Port {settings.port} on {settings.host} is taken.", hint=hint)
    return StackError(
        f"Cannot listen on {place}: {error.strerror or error}.", hint="Check serve.host and serve.port."
    )

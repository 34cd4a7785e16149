"""The front itself: who asks what, and which of it the front answers alone."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from outrider import __version__
from outrider.core.errors import RequestError
from outrider.front import body as bodies
from outrider.front import live_page, speculation
from outrider.front.auth import Keyring, refuse_foreign
from outrider.front.client import ClientConnection
from outrider.front.dispatch import Dispatcher
from outrider.front.errors import engine_fault
from outrider.front.http import JSON, Header, sane_request_id, trace_headers
from outrider.front.proxy import Asked, Exchange
from outrider.front.routes import Route, Routes
from outrider.front.settings import EDIT_ON_LOOP_BYTES
from outrider.telemetry import names

PROMETHEUS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
Readiness = Callable[[], tuple[bool, str]]


class App:
    """Answers requests: its own routes at once, the engine's through the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, readiness: Readiness) -> None:
        self.settings = dispatcher.settings
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self.held_bytes = 0
        self.editing: set[ClientConnection] = set()
        # One thread: Python runs no two of them at once, and the loop must get its turns.
        self._editor = ThreadPoolExecutor(1, thread_name_prefix="edit")
        self._dispatcher = dispatcher
        self._readiness = readiness
        self._routes = Routes(self.settings.extra_routes)
        self._keyring = Keyring(self.settings.keys)
        self._rules = bodies.Rules(
            models=frozenset(self.settings.models),
            dropped=bodies.ENGINE_ONLY.union(dispatcher.engine.stamp("")),
            allow_remote_media=self.settings.allow_remote_media,
        )
        self._started_at = int(time.time())

    def connect(self) -> ClientConnection:
        """The protocol of a new connection."""
        return ClientConnection(self, self._dispatcher.now)

    def check_head(self, request: ClientConnection) -> None:
        """Route, key, and whether new work is taken. Raises RequestError."""
        request.request_id = (
            sane_request_id(request.headers.get(b"x-request-id", b"")) or f"{random.getrandbits(48):012x}"
        )
        if not self.settings.keys:
            refuse_foreign(request.headers.get(b"host", b""), request.headers.get(b"origin", b""))
        route, request.path = self._routes.find(request.method, request.target.decode("latin-1"))
        request.route = route
        if not route.open:
            request.caller = self._keyring.identify(request.headers.get(b"authorization", b""))
        if route.admin and not request.caller.admin:
            message = "This needs a key with `admin: true` in the stack."
            raise RequestError(403, message, kind="permission_error", code="admin_only")
        if not (route.engine or route.takes_body):
            return
        if route.engine and self.draining:
            raise engine_fault("The server is shutting down.", status=503, code="shutting_down")
        kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != JSON:
            message = "Send the body as `Content-Type: application/json`."
            raise RequestError(415, message, code="unsupported_media_type")

    def handle(self, request: ClientConnection, body: bytes) -> None:
        """Answer, or queue for an engine. Raises RequestError."""
        route = request.route
        if not route.engine:
            self._answer(request, route, body)
            return
        if len(body) > EDIT_ON_LOOP_BYTES:
            self.editing.add(request)
            # The thread holds it even if the client goes.
            self.held_bytes += len(body)
            edit = asyncio.get_running_loop().run_in_executor(
                self._editor, bodies.edit, body, route, self._rules
            )
            edit.add_done_callback(partial(self._edited, request, len(body)))
        else:
            self._submit(request, bodies.edit(body, route, self._rules))

    def _edited(self, request: ClientConnection, size: int, edit: asyncio.Future[bodies.EditedBody]) -> None:
        """A large body is edited: go on, unless the client has gone or the server stopped meanwhile."""
        self.editing.discard(request)
        self.held_bytes -= size
        if request.gone or edit.cancelled():
            return
        try:
            self._submit(request, edit.result())
        except RequestError as error:
            self.refused(request, error)
            request.refuse(error)
        except Exception as fault:  # the client gets an answer, whatever it is
            self.failed(request, fault)

    def failed(self, request: ClientConnection, fault: Exception) -> None:
        """A fault of the front's own while it read or answered a request."""
        self._dispatcher.report(fault)
        if request.exchange is not None:  # it may have begun to answer
            request.hang_up()
            return
        request.refuse(engine_fault("The server failed on this request.", status=500, code="internal_error"))

    def stop(self) -> None:
        """End what has not come to the dispatcher yet."""
        self._editor.shutdown(wait=False, cancel_futures=True)
        for request in self.editing:
            if not request.gone:
                request.refuse(engine_fault("The server is shutting down.", status=503, code="shutting_down"))

    def _submit(self, request: ClientConnection, edited: bodies.EditedBody) -> None:
        headers, trace_id = trace_headers(
            request.headers.get(b"traceparent", b""), request.headers.get(b"tracestate", b"")
        )
        now_s = self._dispatcher.now()
        asked = Asked(request.request_id, trace_id, headers, request.caller, request.route, edited, now_s)
        request.exchange = Exchange(self._dispatcher, request, asked)
        self._dispatcher.submit(request.exchange)

    def error_headers(self, error: RequestError) -> list[Header]:
        """When to come back, what would have been allowed."""
        if error.status in (429, 503):
            wait_s = self._dispatcher.admission.oldest_s(self._dispatcher.now())
            return [(b"retry-after", b"%d" % min(max(round(wait_s), 1), 60))]
        if error.status == 401:
            return [(b"www-authenticate", b"Bearer")]
        return []

    def refused(self, request: ClientConnection, error: RequestError) -> None:
        """Count and log what never came to the queue."""
        self._dispatcher.write_refused(request.request_id or "-", "-", "refused", error)

    def tick(self) -> None:
        """Called a few times a second: everything that is due."""
        self._dispatcher.tick()
        now_s = self._dispatcher.now()
        for connection in [c for c in self.connections if now_s > c.deadline_s]:
            self._dispatcher.guarded(connection.expire, now_s)

    def _answer(self, request: ClientConnection, route: Route, body: bytes) -> None:
        if route.path == "/metrics":
            request.respond(200, [(b"content-type", PROMETHEUS_TEXT)], self.metrics())
            return
        if route.path == "/ui":
            request.respond(200, live_page.HEADERS, live_page.page())
            return
        if route.path == "/v1/speculation":
            if route.method == "POST":
                speculation.pin(self._dispatcher.speculation.governing, body)
            answer = speculation.answer(self._dispatcher.speculation, request.target)
            request.respond(200, [(b"content-type", JSON)], answer)
            return
        status, payload = 200, {}
        if route.path == "/v1/models":
            payload = self._models(request.path.removeprefix("/v1/models").removeprefix("/"))
        elif route.path == "/version":
            payload = {"version": __version__}
        elif route.path == "/healthz":
            payload = {"status": "ok"}
        elif route.path == "/readyz":
            ready, reason = self.ready()
            status, payload = (200 if ready else 503), {"ready": ready, "reason": reason}
        request.respond(status, [(b"content-type", JSON)], json.dumps(payload).encode())

    def ready(self) -> tuple[bool, str]:
        """Whether a load balancer should send work, and why not."""
        return (False, "shutting down") if self.draining else self._readiness()

    def _models(self, wanted: str) -> dict[str, object]:
        """The models by the front's own knowledge, so that the list stands while an engine restarts."""
        length = self.settings.max_context_tokens
        more = {} if length is None else {"max_model_len": length}
        models = [
            {"id": name, "object": "model", "created": self._started_at, "owned_by": "outrider", **more}
            for name in self.settings.models
        ]
        if not wanted:
            return {"object": "list", "data": models}
        for model in models:
            if model["id"] == wanted:
                return model
        raise RequestError(
            404, f"The model {wanted[:200]!r} is not served here.", code="model_not_found", param="model"
        )

    def metrics(self) -> bytes:
        """Prometheus' text, with the gauges as they are now."""
        dispatcher = self._dispatcher
        journal, metrics = dispatcher.journal, dispatcher.journal.metrics
        dispatcher.write_down()
        journal.refresh()
        metrics.gauge(names.RUNNING).set(len(dispatcher.running))
        for lane in self.settings.lanes:
            metrics.gauge(names.WAITING, lane).set(dispatcher.admission.waiting(lane))
            running = sum(exchange.lane == lane for exchange in dispatcher.running)
            metrics.gauge(names.LANE_RUNNING, lane).set(running)
            wait_ms = dispatcher.admission.queue_wait_ms(dispatcher.now(), lane)
            metrics.gauge(names.LANE_QUEUE_WAIT, lane).set(wait_ms / 1e3)
            metrics.gauge(names.ENGINES_READY, lane).set(dispatcher.engines_ready(lane))
        metrics.gauge(names.QUEUE_WAIT_MS).set(dispatcher.admission.queue_wait_ms(dispatcher.now()))
        metrics.gauge(names.CONNECTIONS).set(len(self.connections))
        metrics.gauge(names.READY).set(self.ready()[0])
        metrics.forget(names.DRAFT_IN_FORCE)
        metrics.gauge(names.DRAFT_IN_FORCE, dispatcher.draft.draft).set(1)
        return metrics.render()

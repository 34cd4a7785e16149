"""What the front needs to know, taken out of the stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.stack.models import Price, Stack

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
IDLE_CLIENT_S = 75.0
# Bodies under way at once, from the first byte to the end of the answer, of all clients together.
MAX_HELD_BODY_BYTES = 256 * 1024 * 1024
# Larger bodies are edited beside the event loop, so that no stream waits for it.
EDIT_ON_LOOP_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One API key: only its SHA-256 is known."""

    name: str
    sha256: str
    lane: str = "interactive"
    max_concurrency: int | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True)
class LaneRule:
    """The queue of one lane."""

    max_queue: int = 256
    queue_timeout_s: float = 60.0


def _default_lanes() -> Mapping[str, LaneRule]:
    return {"interactive": LaneRule(), "batch": LaneRule(4096, 3600.0)}


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """Everything of the stack that the front reads. `lanes` is in order of precedence.

    `patience_s`: a request that waited longer goes to any engine with room, whatever draft that runs: the queue wait that the
    stack promises. `queue_wait_window_s` is no setting of a stack: a demonstration that people wait for shortens it with every
    other window.
    """

    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    max_context_tokens: int | None = None
    keys: tuple[KeyRule, ...] = ()
    lanes: Mapping[str, LaneRule] = field(default_factory=_default_lanes)
    request_timeout_s: float = 600.0
    max_body_bytes: int = 4 * 1024 * 1024
    max_connections: int = 2048
    body_timeout_s: float = 30.0
    write_timeout_s: float = 60.0
    allow_remote_media: bool = False
    extra_routes: tuple[str, ...] = ()
    price: Price | None = None
    log: str = "text"
    patience_s: float = 0.5
    queue_wait_window_s: float = 60.0


def settings_from(stack: Stack) -> FrontSettings:
    """The front's view of a stack."""
    serve = stack.serve
    lanes = {
        name: LaneRule(limits.max_queue, limits.queue_timeout_s)
        for name, limits in (("interactive", serve.lanes.interactive), ("batch", serve.lanes.batch))
    }
    return FrontSettings(
        models=(stack.served_name,),
        host=serve.host,
        port=serve.port,
        max_context_tokens=stack.target.max_context_tokens,
        keys=tuple(
            KeyRule(key.name, key.sha256, key.lane, key.max_concurrency, key.admin) for key in serve.keys
        ),
        lanes=lanes,
        request_timeout_s=serve.request_timeout_s,
        max_body_bytes=serve.max_body_bytes,
        max_connections=serve.max_connections,
        body_timeout_s=serve.body_timeout_s,
        write_timeout_s=serve.write_timeout_s,
        allow_remote_media=serve.allow_remote_media,
        extra_routes=tuple(serve.extra_routes),
        price=stack.price,
        log=serve.log,
        patience_s=stack.slo.queue_wait_p90_ms / 1e3,
    )

"""The allow-list of routes. What is not on it does not reach the engine, LoRA loading and engine control included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.core.errors import RequestError


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `engine`: passed on; `stamped`: it generates, so the draft is stamped; `usage_chunk`: its stream can
    end in a usage chunk; `open`: needs no key; `admin`: a key that may change the server; `takes_body`: of those that the
    front answers itself."""

    path: str
    method: str
    engine: bool = False
    stamped: bool = False
    usage_chunk: bool = False
    open: bool = False
    admin: bool = False
    takes_body: bool = False


_ALWAYS = (
    Route("/v1/chat/completions", "POST", engine=True, stamped=True, usage_chunk=True),
    Route("/v1/completions", "POST", engine=True, stamped=True, usage_chunk=True),
    Route("/v1/models", "GET"),
    Route("/v1/speculation", "GET"),
    Route("/v1/speculation", "POST", admin=True, takes_body=True),
    Route("/ui", "GET", open=True),
    Route("/version", "GET"),
    Route("/healthz", "GET", open=True),
    Route("/readyz", "GET", open=True),
    Route("/metrics", "GET", open=True),
)
_GENERATING_EXTRAS = frozenset({"/v1/responses"})


class Routes:
    """Finds a request's route."""

    def __init__(self, extra: Sequence[str]) -> None:
        extras = tuple(Route(path, "POST", engine=True, stamped=path in _GENERATING_EXTRAS) for path in extra)
        self._routes: dict[str, dict[str, Route]] = {}
        for route in (*_ALWAYS, *extras):
            methods = self._routes.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route

    def find(self, method: str, target: str) -> tuple[Route, str]:
        """The route and its path without the query. Raises RequestError 404 or 405."""
        path = target.partition("?")[0]
        methods = self._routes.get("/v1/models" if path.startswith("/v1/models/") else path)
        if methods is None:
            raise RequestError(404, f"There is no route {path[:200]!r} here.", code="not_found")
        route = methods.get(method)
        if route is None:
            allowed = " or ".join(name for name in methods if name != "HEAD")
            message = f"{path[:200]} takes {allowed}, not {method}."
            raise RequestError(405, message, code="method_not_allowed")
        return route, path

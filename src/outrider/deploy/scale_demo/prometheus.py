"""A real Prometheus for one run: found, configured to scrape the front, started on loopback, asked, stopped."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import yaml

from outrider.core.errors import MeasurementError
from outrider.engines.base import LaunchPlan
from outrider.launch.process import EngineProcess, free_port

VARIABLE = "OUTRIDER_PROMETHEUS"
START_S = 60.0
STOP_S = 10.0
_EQUALS = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


def find() -> str:
    """The program's path. Raises MeasurementError with how to get it."""
    for name in (os.environ.get(VARIABLE, ""), "prometheus"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise MeasurementError(
        "there is no Prometheus here",
        hint=f"`make scale-demo` fetches Debian's; else: apt-get install prometheus, or name the program in {VARIABLE}.",
    )


def labels_of(query: str) -> dict[str, str]:
    """The labels a query selects by ``name="value"``: a cluster's PodMonitor sets them, here the scrape configuration."""
    return dict(_EQUALS.findall(query))


def configuration(front_port: int, scrape_s: float, labels: dict[str, str]) -> str:
    """The configuration file: one target, the front's /metrics."""
    target = {"targets": [f"127.0.0.1:{front_port}"], "labels": labels}
    job = {"job_name": "outrider", "honor_labels": True, "static_configs": [target]}
    every = f"{round(scrape_s * 1000)}ms"
    settings = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    return yaml.safe_dump({"global": settings, "scrape_configs": [job]})


class Prometheus:
    """A running one."""

    def __init__(self, port: int) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5.0, trust_env=False)

    async def value(self, query: str) -> float | None:
        """What the query yields if that is exactly one number, else None: KEDA takes nothing else for an answer."""
        try:
            answer = await self._http.get("/api/v1/query", params={"query": query})
            answer.raise_for_status()
            found = answer.json()["data"]["result"]
        except (httpx.HTTPError, ValueError, KeyError):
            return None
        return float(found[0]["value"][1]) if len(found) == 1 else None

    async def version(self) -> str:
        """As it says itself."""
        answer = await self._http.get("/api/v1/status/buildinfo")
        return str(answer.json()["data"]["version"])

    async def ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return (await self._http.get("/-/ready")).status_code == 200
        except httpx.HTTPError:
            return False

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()


def _plan(folder: Path, config: str) -> LaunchPlan:
    """The command, its configuration written. Data of an earlier run in the same folder goes: it is not this front's."""
    place, data, port = folder / "prometheus.yaml", folder / "prometheus", free_port()
    place.write_text(config, encoding="utf-8")
    shutil.rmtree(data, ignore_errors=True)
    argv = (
        find(),
        f"--config.file={place}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    return LaunchPlan(argv, {}, "127.0.0.1", port, "OUTRIDER_UNUSED_KEY", "/-/ready", "/metrics")


@asynccontextmanager
async def running_prometheus(
    folder: Path, front_port: int, scrape_s: float, labels: dict[str, str]
) -> AsyncIterator[Prometheus]:
    """Prometheus on a free port of loopback with its data in `folder`. Raises MeasurementError: it did not start."""
    plan = _plan(folder, configuration(front_port, scrape_s, labels))
    process = await EngineProcess.start(plan, "unused", folder / "prometheus.log")
    prometheus, until_s = Prometheus(plan.port), time.monotonic() + START_S
    try:
        while not await prometheus.ready():
            if process.returncode is not None or time.monotonic() > until_s:
                ended = f"ended with status {process.returncode}"
                why = ended if process.returncode is not None else f"was not ready within {START_S:.0f} s"
                raise MeasurementError(f"Prometheus {why}", hint=f"Its log: {process.log_path}")
            await asyncio.sleep(0.1)
        yield prometheus
    finally:
        await prometheus.close()
        await process.stop(STOP_S)

"""``make bench-front``: what the front costs beside nginx, both before the same simulated engine, in one run.

CPU per request is what a stream of one chunk costs, CPU per streamed chunk what each further chunk adds. Trials are
interleaved; medians over trials. The proxies have a core to themselves, the load and the engine the others: left to the
scheduler, a proxy's cost depends on whom it happens to share a core with. Exits 1 when a limit is broken:

- CPU per chunk at most 2 × nginx's, per request at most 5 × nginx's;
- TTFT p99 at 32 streams at most 3 ms above nginx's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import uvloop

from benchmarks.front.load import Load, Run
from outrider.core.latency import percentile

MAX_CHUNK_RATIO = 2.0
MAX_REQUEST_RATIO = 5.0
MAX_ADDED_TTFT_MS = 3.0
STREAMS = 32
# Many streams of one chunk, few long ones; the third is for latency alone. The engine's pace is the same in all.
SHORT = Load(STREAMS, 3200, 1)
LONG = Load(STREAMS, 96, 400)
PACED = Load(STREAMS, 480, 20, varied=True)
STEP_MS = 10.0
TTFT_MS = 10.0

NGINX_CONF = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 128; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(slots=True)
class Server:
    """A proxy under test: its port, and the process whose CPU counts."""

    name: str
    port: int
    pid: int
    chunk_us: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    ttft_p99_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far, from the scheduler's nanosecond counts."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9

    async def measure(self, load: Load) -> float:
        """CPU seconds a load costs."""
        before_s = self.cpu_s()
        outcome = await Run(load).against(self.port, spread_s=STEP_MS / 1e3)
        self.failed += outcome.failed
        if load is PACED:
            self.ttft_p99_ms.append(percentile(outcome.ttft_s, 99) * 1e3)
        return self.cpu_s() - before_s

    async def trial(self) -> None:
        """One value of each figure."""
        request_s = await self.measure(SHORT) / SHORT.requests
        chunk_s = (await self.measure(LONG) / LONG.requests - request_s) / (LONG.chunks - SHORT.chunks)
        await self.measure(PACED)
        self.request_us.append(request_s * 1e6)
        self.chunk_us.append(chunk_s * 1e6)


class Bed:
    """The processes of a run, all on loopback, all ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.log = (folder / "front.log").open("w")

    def spawn(self, *command: str) -> subprocess.Popen[str]:
        """Start a process."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.processes.append(process)
        return process

    def engine(self) -> int:
        """The simulated engine; its port."""
        flags = ("--ttft-ms", str(TTFT_MS), "--step-ms", str(STEP_MS))
        process = self.spawn(sys.executable, "-m", "outrider.engines.sim.server", *flags)
        return int(first_line(process).rsplit(" ", 1)[1])

    def front(self, engine: int) -> Server:
        """The front before the engine."""
        config = {"upstreams": [{"port": engine, "concurrency": 256}], "draft": "ngram"}
        process = self.spawn(sys.executable, "-m", "outrider.front.standalone", json.dumps(config))
        return Server("front", int(first_line(process)), process.pid)

    def nginx(self, engine: int) -> Server:
        """nginx before the engine, one worker."""
        binary = nginx_binary()
        port = free_port()
        conf = self.folder / "nginx.conf"
        conf.write_text(NGINX_CONF.format(folder=self.folder, engine=engine, port=port))
        process = self.spawn(binary, "-c", str(conf), "-p", str(self.folder))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for _ in range(100):
            time.sleep(0.05)
            if worker := children.read_text().split():
                return Server("nginx", port, int(worker[0]))
        sys.exit(f"nginx did not start: {(self.folder / 'error.log').read_text()}")

    def end(self) -> None:
        """Stop everything."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(10)
        self.log.close()


def first_line(process: subprocess.Popen[str]) -> str:
    """What a process says once it listens."""
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        sys.exit(f"a process of the bench ended at once: {process.args}")
    return line


def nginx_binary() -> str:
    """Where nginx is; says how to get it where it is not."""
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return binary or sys.exit(
        "nginx is not installed: apt-get install nginx-light (its service need not run)"
    )


def nginx_version() -> str:
    """As it names itself."""
    said = subprocess.run([nginx_binary(), "-v"], capture_output=True, text=True, check=True).stderr
    return said.rsplit("/", 1)[1].strip()


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Figures:
    """What one server was seen to cost."""

    chunk_us: float
    request_us: float
    ttft_p99_ms: float
    ttft_n: int
    failed: int


def figures(server: Server) -> Figures:
    """Medians over trials: a moment in which the machine was busy elsewhere spoils one of them, not the figure."""
    return Figures(
        chunk_us=statistics.median(server.chunk_us),
        request_us=statistics.median(server.request_us),
        ttft_p99_ms=statistics.median(server.ttft_p99_ms),
        ttft_n=PACED.requests,
        failed=server.failed,
    )


def breaches(front: Figures, nginx: Figures) -> list[str]:
    """The limits that do not hold."""
    checks = (
        ("CPU per chunk / nginx's", front.chunk_us / nginx.chunk_us, MAX_CHUNK_RATIO),
        ("CPU per request / nginx's", front.request_us / nginx.request_us, MAX_REQUEST_RATIO),
        ("TTFT p99 above nginx's, ms", front.ttft_p99_ms - nginx.ttft_p99_ms, MAX_ADDED_TTFT_MS),
        ("requests failed", float(front.failed + nginx.failed), 0.0),
    )
    for name, value, limit in checks:
        print(f"{'ok    ' if value <= limit else 'BREACH'} {name}: {value:.2f} (limit {limit:g})")
    return [name for name, value, limit in checks if value > limit]


async def run(trials: int, servers: list[Server]) -> None:
    """Interleaved trials, after one of each that does not count."""
    for server in servers:
        await Run(Load(STREAMS, 320, 2)).against(server.port, spread_s=0.0)
    for number in range(trials):
        for server in servers if number % 2 == 0 else servers[::-1]:
            await server.trial()
            print(
                f"trial {number + 1} {server.name}: {server.chunk_us[-1]:.1f} µs/chunk, "
                f"{server.request_us[-1]:.0f} µs/request, TTFT p99 {server.ttft_p99_ms[-1]:.1f} ms"
            )


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-front-") as name:
        bed = Bed(Path(name))
        *others, last = sorted(os.sched_getaffinity(0))
        try:
            os.sched_setaffinity(0, others or [last])  # inherited by what is started from here on
            engine = bed.engine()
            os.sched_setaffinity(0, [last])
            nginx, front = bed.nginx(engine), bed.front(engine)
            os.sched_setaffinity(0, others or [last])
            uvloop.run(run(flags.trials, [nginx, front]))
        finally:
            bed.end()
    rows = {server.name: figures(server) for server in (nginx, front)}
    for label, row in rows.items():
        print(
            f"{label:<6} {row.chunk_us:6.1f} µs/chunk {row.request_us:7.0f} µs/request   "
            f"TTFT p99 {row.ttft_p99_ms:.2f} ms (n {row.ttft_n} a trial), {row.failed} failed"
        )
    broken = breaches(rows["front"], rows["nginx"])
    if flags.json:
        summary = {
            "what": "CPU of the front and of nginx as streaming proxies before one simulated engine",
            "command": f"python -m benchmarks.front --trials {flags.trials}",
            "date": time.strftime("%Y-%m-%d"),
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{name: metadata.version(name) for name in ("outrider", "uvloop", "httptools")},
                "nginx": nginx_version(),
            },
            "loads": {"short": asdict(SHORT), "long": asdict(LONG), "paced": asdict(PACED)},
            "figures": {label: asdict(row) for label, row in rows.items()},
            "breaches": broken,
        }
        flags.json.write_text(json.dumps(summary, indent=2) + "\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()

"""A front before given engines, without control: ``python -m outrider.front.standalone CONFIG`` (JSON).

For tests and benchmarks. CONFIG: ``settings`` (members of FrontSettings), ``upstreams`` (members of Upstream), ``draft``,
``drain_timeout_s``, and ``policy`` (members of PolicySettings) where drafts are to be switched. The log goes to standard error;
the port is printed on standard output once it listens.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import uvloop

from outrider.control.governing import Governing, Speculation, govern
from outrider.control.upstreams import DraftInForce, Upstream, UpstreamSet
from outrider.core.errors import OutriderError
from outrider.engines.sim.adapter import SimEngine
from outrider.front.journal import Journal
from outrider.front.server import start
from outrider.front.settings import FrontSettings, KeyRule, LaneRule
from outrider.governor.ladder import Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.settings import settings_from as settings_of_policy
from outrider.stack.models import Price
from outrider.telemetry.metrics import Metrics


def read_settings(members: dict[str, Any]) -> FrontSettings:
    """FrontSettings out of JSON."""
    members = dict(members)
    members["models"] = tuple(members.get("models", ("sim",)))
    members["keys"] = tuple(KeyRule(**key) for key in members.get("keys", ()))
    if "lanes" in members:
        members["lanes"] = {name: LaneRule(**rule) for name, rule in members["lanes"].items()}
    if "price" in members:
        members["price"] = Price(**members["price"])
    return FrontSettings(**members)


async def serve(config: dict[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    settings = read_settings(config.get("settings", {}))
    upstreams = UpstreamSet()
    for number, members in enumerate(config.get("upstreams", ())):
        upstreams.add(Upstream(**{"name": f"sim-{number}", "host": "127.0.0.1", "ready": True, **members}))
    journal = Journal(Metrics(), sys.stderr.write, form=settings.log, price=settings.price)
    draft = DraftInForce(config.get("draft", "ngram"))
    governing = None
    if "policy" in config:
        policy = Policy(ladder_of(Rung(draft.draft)), settings_of_policy(config["policy"]))
        governing = Governing(policy, draft, upstreams, journal.metrics, journal.say, settings.price)

    def readiness() -> tuple[bool, str]:
        ready = any(upstream.ready for upstream in upstreams)
        return ready, "" if ready else "no engine is ready"

    front = await start(settings, upstreams, SimEngine(), Speculation(draft, governing), journal, readiness)
    deciding = asyncio.create_task(govern(governing, front.load)) if governing else None
    print(front.port, flush=True)  # noqa: T201  # whoever started it waits for this line
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    await stop.wait()
    if deciding:
        deciding.cancel()
    await front.drain(config.get("drain_timeout_s", 5.0))
    await front.close()


def main() -> None:
    """Run, or say why not."""
    try:
        uvloop.run(serve(json.loads(sys.argv[1])))
    except OutriderError as error:
        print(f"error: {error}\n  → {error.hint}", file=sys.stderr)  # noqa: T201  # a command's message
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

"""`outrider front`: the door alone, before engines that run elsewhere, as in a cluster's front pods."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from outrider.cli.serve import made_up_words, refuse_made_up
from outrider.control.discovery import Discovery, Place, Served
from outrider.control.governing import Speculation
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import DraftInForce, UpstreamSet
from outrider.engines.choose import engine_of
from outrider.engines.sim.adapter import SimEngine
from outrider.front import server
from outrider.front.journal import Journal
from outrider.front.settings import FrontSettings, settings_from
from outrider.stack.load import load_keys, load_stack
from outrider.stack.models import Lanes, Stack
from outrider.telemetry.metrics import Metrics

KEY_VARIABLE = "OUTRIDER_ENGINE_KEY"
LANES = tuple(Lanes.model_fields)


class EngineAt(click.ParamType[Place]):
    """``HOST:PORT``, or ``LANE=HOST:PORT`` for engines that serve that lane alone."""

    name = "engine"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Raises click.BadParameter."""
        if isinstance(value, Place):
            return value
        lane, _, address = str(value).rpartition("=")
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            self.fail(f"{value!r} is not HOST:PORT or LANE=HOST:PORT", param, ctx)
        if lane and lane not in LANES:
            self.fail(f"there is no lane {lane!r}; lanes: {', '.join(LANES)}", param, ctx)
        return Place(host, int(port), frozenset({lane} if lane else ()))


@click.command("front")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--engine",
    "places",
    type=EngineAt(),
    metavar="[LANE=]HOST:PORT",
    multiple=True,
    required=True,
    help="Where engines are; all addresses of the name, asked again every 2 s. With a lane: for that lane alone. Again for more.",
)
@click.option(
    "--no-draft",
    "plain",
    type=click.Choice(LANES),
    multiple=True,
    help="The engines of this lane were started without speculation.",
)
@click.option(
    "--fronts",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many fronts share these engines: each gives an engine its share of `max_running_requests` and queues the rest.",
)
@click.option("--host", help="Address to listen on instead of the stack's; anything but loopback needs keys.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on instead of the stack's.")
@click.option("--log", type=click.Choice(["text", "json"]), help="Form of the log instead of the stack's.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="YAML file with a list like `serve.keys`, added to the stack's: a mounted Secret.",
)
@click.option(
    "--from-zero",
    is_flag=True,
    help="Be ready before any engine was seen, and hold requests meanwhile: for engines that are scaled from zero.",
)
@click.option(
    "--forecast",
    is_flag=True,
    envvar="OUTRIDER_FORECAST",
    help="As of `outrider serve`: made-up parts are meant.",
)
@click.option("--simulated", is_flag=True, hidden=True, help="The engines are outrider.engines.sim.server.")
def front_command(
    stack: Path | None,
    places: tuple[Place, ...],
    plain: tuple[str, ...],
    keys: Path | None,
    **given: Any,
) -> None:
    """Listen for clients of STACK and send their requests to engines that run elsewhere; starts and stops no engine.

    The engines' key is read from OUTRIDER_ENGINE_KEY. An engine gets work once it is warm and its draft was seen to
    draft, and none while its health check fails. Requests wait here, also while there is no engine at all.

    SIGTERM drains: /readyz turns bad, streams under way finish, then it ends. In a cluster the chart starts it so
    (`outrider render`); by hand:

    \b
      OUTRIDER_ENGINE_KEY=… outrider front my-stack.yaml --engine gpu-1:8000 --engine gpu-2:8000
    """
    loaded = load_stack(stack)
    refuse_made_up(loaded, given["forecast"])
    more = {name: given[name] for name in ("host", "port", "log") if given[name] is not None}
    if keys:
        more["keys"] = [*loaded.serve.keys, *load_keys(keys)]
    loaded = loaded.model_copy(update={"serve": loaded.serve.model_copy(update=more)})
    settings = settings_from(loaded)
    server.refuse_open_door(settings)
    places = tuple(replace(place, draft="none") if place.lanes & set(plain) else place for place in places)
    engine = SimEngine() if given["simulated"] else engine_of(loaded)
    # More than its share would wait inside the engine, where no queue wait is seen and no lane is known.
    share = -(-loaded.engine.max_running_requests // given["fronts"])
    served = Served(
        engine=engine,
        key=os.environ.get(KEY_VARIABLE, ""),
        model=loaded.served_name,
        draft=loaded.draft.method,
        concurrency=share,
        warmup_requests=loaded.serve.warmup_requests,
        made_up=loaded.dummy_weights,
    )
    uvloop.run(_serve(loaded, settings, served, places, given["from_zero"]))


async def _serve(
    stack: Stack, settings: FrontSettings, served: Served, places: tuple[Place, ...], from_zero: bool
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    metrics = Metrics()
    # No price: what one of several fronts passes on says nothing of what all engines cost. The chart's rules reckon it.
    journal = Journal(metrics, _write, form=settings.log)
    upstreams, draft = UpstreamSet(), DraftInForce(stack.draft.method)
    found = Discovery(
        places,
        served,
        upstreams,
        EngineMetrics(metrics),
        lambda line: journal.say("engine", line, state=line),
    )
    # Once an engine was there the door stays open: what comes while none is waits in the queue, within its limits.
    front = await server.start(
        settings,
        upstreams,
        served.engine,
        Speculation(draft),
        journal,
        lambda: (found.seen or from_zero, found.reason),
    )
    if made_up := made_up_words(stack):
        journal.say("forecast", f"NOT A MODEL: {made_up}", made_up=made_up)
    url = f"http://{settings.host}:{front.port}"
    journal.say("front", f"listening on {url}", url=url, port=front.port)
    found.start()
    try:
        await stopping.wait()
        if front.busy:
            journal.say("front", "draining: no new work, streams under way finish", state="draining")
        if not await front.drain(stack.serve.drain_timeout_s):
            journal.say("front", "the drain time is over; what was still under way is cut", state="cut")
    finally:
        await front.close()
        await found.stop()
        journal.say("front", "stopped", state="stopped")


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()

"""`outrider front`: the door alone, before engines that run elsewhere, as in a cluster's front pods."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import uvloop

from outrider.cli.serve import made_up_words, refuse_made_up
from outrider.control.discovery import Discovery, Place, Served
from outrider.control.governing import Governing, Speculation, govern, ladder_for
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import DraftInForce, UpstreamSet
from outrider.engines.choose import engine_of
from outrider.engines.sim.adapter import SimEngine
from outrider.front import server
from outrider.front.journal import Journal
from outrider.front.settings import FrontSettings, settings_from
from outrider.governor.ladder import NO_DRAFT
from outrider.governor.policy import Policy
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
    "--plain-engine",
    "beside",
    type=EngineAt(),
    metavar="[LANE=]HOST:PORT",
    multiple=True,
    help="Where engines without the draft are. A lane that has both is governed: new requests go where the draft in force runs.",
)
@click.option(
    "--no-draft",
    "plain",
    type=click.Choice(LANES),
    multiple=True,
    help="The engines of this lane were all started without speculation.",
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
    beside: tuple[Place, ...],
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
    drafting = [replace(place, draft="none") if place.lanes & set(plain) else place for place in places]
    if twice := {(one.host, one.port) for one in drafting} & {(one.host, one.port) for one in beside}:
        host, port = min(twice)
        raise click.BadParameter(f"{host}:{port} is named with the draft, too", param_hint="--plain-engine")
    lanes = governed_lanes(loaded, drafting, beside)
    places = pools(loaded, drafting, beside, lanes)
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
    governed = _Governed(lanes, given["fronts"])
    uvloop.run(_serve(loaded, settings, served, places, governed, given["from_zero"]))


def governed_lanes(stack: Stack, drafting: Sequence[Place], plain: Sequence[Place]) -> frozenset[str]:
    """The lanes that have engines with the stack's draft and engines without, where its policy moves requests between them."""
    if not stack.policy.enabled or stack.draft.method == "none":
        return frozenset()

    def served(places: Sequence[Place]) -> set[str]:
        return {lane for place in places for lane in place.lanes or LANES if place.draft is None}

    return frozenset(served(drafting) & served(plain))


def pools(
    stack: Stack, drafting: Sequence[Place], plain: Sequence[Place], governed: frozenset[str]
) -> tuple[Place, ...]:
    """All places, each with what its engines run: where nothing is governed, requests have the stack's draft or `none`."""
    if not governed:
        return (*drafting, *(replace(place, draft="none") for place in plain))
    own = [place if place.draft else replace(place, draft=stack.draft.method) for place in drafting]
    return (*own, *(replace(place, draft=NO_DRAFT[0]) for place in plain))


@dataclass(frozen=True, slots=True)
class _Governed:
    """The lanes whose draft is a choice, and how many fronts make it."""

    lanes: frozenset[str]
    fronts: int

    def governing(
        self, stack: Stack, draft: DraftInForce, upstreams: UpstreamSet, journal: Journal
    ) -> Governing | None:
        """The governor; None where no lane has a choice. No pair manifest is here: measured steps are the yardstick."""
        if not self.lanes:
            return None
        policy = Policy(ladder_for(stack, None, (stack.draft.method, NO_DRAFT[0])), stack.policy.settings)
        return Governing(
            policy, draft, upstreams, journal.metrics, journal.say, lanes=self.lanes, fronts=self.fronts
        )


async def _serve(
    stack: Stack,
    settings: FrontSettings,
    served: Served,
    places: tuple[Place, ...],
    governed: _Governed,
    from_zero: bool,
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    metrics = Metrics()
    # No price: what one of several fronts passes on says nothing of what all engines cost. The chart's rules reckon it.
    journal = Journal(metrics, _write, form=settings.log)
    upstreams, draft = UpstreamSet(), DraftInForce(stack.draft.method)
    governing = governed.governing(stack, draft, upstreams, journal)
    found = Discovery(
        places,
        served,
        upstreams,
        EngineMetrics(metrics),
        lambda line: journal.say("engine", line, state=line),
        governing=governing,
    )
    # Once an engine was there the door stays open: what comes while none is waits in the queue, within its limits.
    front = await server.start(
        settings,
        upstreams,
        served.engine,
        Speculation(draft, governing),
        journal,
        lambda: (found.seen or from_zero, found.reason),
    )
    if made_up := made_up_words(stack):
        journal.say("forecast", f"NOT A MODEL: {made_up}", made_up=made_up)
    url = f"http://{settings.host}:{front.port}"
    journal.say("front", f"listening on {url}", url=url, port=front.port)
    found.start()
    deciding = asyncio.create_task(govern(governing, front.load)) if governing else None
    try:
        await stopping.wait()
        if front.busy:
            journal.say("front", "draining: no new work, streams under way finish", state="draining")
        if not await front.drain(stack.serve.drain_timeout_s):
            journal.say("front", "the drain time is over; what was still under way is cut", state="cut")
    finally:
        if deciding:
            deciding.cancel()
        await front.close()
        await found.stop()
        journal.say("front", "stopped", state="stopped")


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()

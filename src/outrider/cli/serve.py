"""`outrider serve`: check, fetch, start the engine, open the door, keep both running, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import uvloop

from outrider.control.engines import Engines
from outrider.control.governing import Governing, Speculation, govern, ladder_for
from outrider.control.running import jobs_of
from outrider.control.scraping import EngineMetrics
from outrider.control.upstreams import DraftInForce, UpstreamSet
from outrider.core.errors import Problem, StackError
from outrider.core.tasks import ended
from outrider.engines.base import Engine
from outrider.engines.choose import startable
from outrider.front import server
from outrider.front.journal import Journal
from outrider.front.settings import settings_from
from outrider.governor.ladder import LOOKUPS
from outrider.governor.policy import Policy
from outrider.launch.prepare import Prepared, prepare, prepare_built_in
from outrider.stack.load import load_stack
from outrider.stack.manifest_text import summary
from outrider.stack.models import Stack
from outrider.stack.weights_cache import cache_folder, gguf_source
from outrider.telemetry.metrics import Metrics

STILL_EVERY_S = 10.0
# What is asked in the printed command: a lookup finds what the text repeats, other drafts say what the target would.
REPEATS = "Say exactly this three times: red, green, blue, yellow, red, green, blue, yellow."
CODE = "Write a Python function that returns the largest number in a list."


def _print(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _note(text: str) -> None:
    _print(f"{text}\n")


@click.command("serve")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--host", help="Address to listen on instead of the stack's.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on instead of the stack's; 0 takes a free one.",
)
@click.option("--log", type=click.Choice(["text", "json"]), help="Form of the log instead of the stack's.")
@click.option("--verbose", is_flag=True, help="Show the engine's own log too.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record what the governor is told, for `outrider replay`; a new file.",
)
@click.option(
    "--forecast",
    is_flag=True,
    envvar="OUTRIDER_FORECAST",
    help="Serve a stack whose `forecast` block makes parts up: for timing, its text means nothing.",
)
def serve_command(
    stack: Path | None, verbose: bool, trace: Path | None, forecast: bool, **instead: object
) -> None:
    """Serve STACK's target with its draft; without STACK the built-in one (SmolLM2-135M on this machine's CPU).

    \b
    1. refuses a pair that cannot work, before any weights are loaded
    2. fetches and converts weights once, into your cache
    3. starts the engine on loopback, warms it up, sees the draft draft
    4. prints a curl command; every request is logged with what the draft was worth

    Ctrl-C or SIGTERM drains: streams under way finish, then everything stops.
    """
    loaded = _with_overrides(load_stack(stack), instead)
    refuse_made_up(loaded, forecast)
    server.refuse_open_door(settings_from(loaded))
    if trace and trace.exists():
        raise click.BadParameter(f"{trace} is there already; name a new file.", param_hint="--trace")
    # Until the event loop takes over, SIGTERM unwinds like Ctrl-C: nothing half-written, no child left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if words := made_up_words(loaded):
        _note(f"[forecast] {words}: step times are real, text and acceptance are not. Not a service.")
    engine = startable(loaded)
    prepared = (prepare if stack else prepare_built_in)(loaded, engine, _note)
    if prepared.manifest:
        _note(f"[pair] {summary(prepared.manifest)}")
    with trace.open("x", encoding="utf-8") if trace else contextlib.nullcontext() as file:
        uvloop.run(_serve(prepared, engine, verbose, file.write if file else None))


def refuse_made_up(stack: Stack, asked: bool) -> None:
    """A stack with made-up parts is served only when that was asked for. Raises StackError."""
    if stack.forecast is not None and not asked:
        hint = "Take `forecast` out to serve the model itself; `serve --forecast` serves the made-up one, for timing."
        problem = Problem(
            f"{made_up_words(stack)}: its text means nothing", "forecast", "forecast-served", hint
        )
        raise StackError("This stack cannot be served; nothing was loaded.", (problem,))


def made_up_words(stack: Stack) -> str:
    """What of this stack is made up, in words; '' if nothing is."""
    forecast = stack.forecast
    if forecast is None:
        return ""
    rates = ", ".join(f"{rate:g}" for rate in forecast.position_rates or ())
    source = f" ({forecast.source})" if forecast.source else ""
    parts = ["dummy weights"] * forecast.dummy_weights
    parts += [f"synthetic acceptance {rates}{source}"] * bool(rates)
    return " and ".join(parts) or "a forecast of nothing made up"


def _with_overrides(stack: Stack, given: dict[str, object]) -> Stack:
    changes = {name: value for name, value in given.items() if value is not None}
    return stack.model_copy(update={"serve": stack.serve.model_copy(update=changes)}) if changes else stack


@dataclass
class _Banner:
    """What is printed when the service is ready, and while it is not."""

    prepared: Prepared
    journal: Journal
    text: bool
    rungs: Sequence[str]
    why_not: str

    def still_starting(self, began: float, reason: str) -> None:
        """One line now and then, so that a long start is not a silent one."""
        self.journal.say("engine", f"{reason} ({time.monotonic() - began:.0f} s)", state=reason)

    def ready(self, port: int, state: str, engine: str) -> None:
        """The ready line and a command that works; `engine` is the engine's own address, for whoever reads the JSON log."""
        stack, install, manifest = self.prepared.stack, self.prepared.install, self.prepared.manifest
        draft = (
            stack.draft.method
            if stack.draft.method == "none"
            else f"{stack.draft.method} K={stack.draft.length}"
        )
        if stack.policy.plain_engine:
            draft += ", a plain engine beside it"
        target = f"{stack.served_name} {_weights_words(stack, self.prepared.models.target)}"
        device = "CPU" if install.device == "cpu" else "CUDA"
        self.journal.say(
            "serve",
            f"vLLM {install.version} ({device}), {target}, draft {draft}",
            engine="vllm",
            version=install.version,
            device=install.device,
            model=stack.served_name,
            draft=stack.draft.method,
            draft_length=stack.draft.length,
            **({"pair": manifest.id} if manifest else {}),
        )
        if stack.draft.method != "none":
            self.journal.say(
                "serve", governed_words(stack, self.rungs, self.why_not), governed=bool(self.rungs)
            )
        self.journal.say("serve", state, state=state)
        if made_up := made_up_words(stack):
            self.journal.say("forecast", f"NOT A MODEL: {made_up}", made_up=made_up)
        url = f"http://{'127.0.0.1' if stack.serve.host in ('0.0.0.0', '::') else stack.serve.host}:{port}"  # noqa: S104
        self.journal.say("serve", f"listening on {url}", url=url, port=port, engine_url=engine)
        if self.text:
            _print(f"\nReady. Live page: {url}/ui. In another terminal:\n\n{curl_command(url, stack)}\n\n")


def governed_words(stack: Stack, rungs: Sequence[str], why_not: str) -> str:
    """Whether the governor chooses each new request's draft, among which `rungs` (best first), or why it does not."""
    if not rungs:
        way_out = "two engines can be: policy.plain_engine, docs/govern.md" if stack.policy.enabled else ""
        return "; ".join(
            filter(None, (f"not governed: every request gets {stack.draft.method}", why_not, way_out))
        )
    names = ["no draft" if one == "off" else one for one in rungs]
    return f"governed: new requests get {', '.join(names[:-1])} or {names[-1]}, by what is measured"


def _weights_words(stack: Stack, folder: str) -> str:
    """``bf16 from GGUF Q4_1``: the arithmetic type if the stack or our conversion set it, and what the weights were."""
    source = gguf_source(Path(folder))
    dtype = stack.target.dtype if stack.target.dtype != "auto" else "bfloat16" if source else ""
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(dtype, dtype)
    words = [short or stack.target.quantization or "as stored", f"from GGUF {source}" if source else ""]
    return " ".join(word for word in words if word)


def curl_command(url: str, stack: Stack) -> str:
    """A command that streams an answer of the kind that the stack's draft is good at."""
    body = {
        "model": stack.served_name,
        "stream": True,
        "max_tokens": 120,
        "temperature": 0,
        "messages": [{"role": "user", "content": REPEATS if stack.draft.method in LOOKUPS else CODE}],
    }
    key = " -H 'Authorization: Bearer YOUR_KEY'" if stack.serve.keys else ""
    return f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d {shlex.quote(json.dumps(body))}"


async def _serve(
    prepared: Prepared, engine: Engine, verbose: bool, record: Callable[[str], object] | None
) -> None:
    stack = prepared.stack
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    settings, metrics = settings_from(stack), Metrics()
    journal = Journal(metrics, _print, form=settings.log, price=stack.price)
    upstreams, draft = UpstreamSet(), DraftInForce(stack.draft.method)
    jobs = jobs_of(prepared, engine, cache_folder() / "logs" / f"engine-{settings.port or os.getpid()}.log")
    governing, rungs = None, tuple[str, ...]()
    if drafts := [one for job in jobs for one in job.drafts]:
        policy = Policy(ladder_for(stack, prepared.manifest, drafts), stack.policy.settings)
        governing = Governing(policy, draft, upstreams, metrics, journal.say, stack.price, record)
        rungs = policy.ladder.names
    notes = engine.plan(stack, prepared.install, prepared.models, 0).notes
    banner = _Banner(prepared, journal, settings.log == "text", rungs, notes.get("drafts", ""))
    engines = Engines(
        jobs,
        upstreams,
        EngineMetrics(metrics),
        say=lambda line: journal.say("engine", line, state=line),
        on_log=(lambda line: _note(f"  | {line}")) if verbose else (lambda line: None),
        governing=governing,
    )
    front = await server.start(
        settings,
        upstreams,
        engine,
        Speculation(draft, governing),
        journal,
        lambda: (engines.state.ready, engines.state.reason),
    )
    running = engines.start()
    deciding = asyncio.create_task(govern(governing, front.load)) if governing else None
    try:
        await _until_ready(engines, running, stopping, banner)
        if not stopping.is_set():
            own = upstreams.get(jobs[0].name)
            banner.ready(front.port, engines.state.reason, f"http://{own.host}:{own.port}" if own else "")
            await _first(running, stopping.wait())
        if running.done():
            running.result()
        if front.busy:
            journal.say("serve", "draining: no new work, streams under way finish", state="draining")
        if not await front.drain(stack.serve.drain_timeout_s):
            journal.say("serve", "the drain time is over; what was still under way is cut", state="cut")
    finally:
        journal.say("serve", "stopping the engine", state="stopping")
        if deciding:
            deciding.cancel()
        await front.close()
        await engines.stop()
        journal.say("serve", "stopped", state="stopped")


async def _until_ready(
    engines: Engines, running: asyncio.Task[None], stopping: asyncio.Event, banner: _Banner
) -> None:
    """Wait for the first readiness; tells every few seconds what is awaited. Raises what the engines' start raises."""
    began, said, told = time.monotonic(), "", 0.0
    ready = asyncio.create_task(engines.first_ready())
    stop = asyncio.create_task(stopping.wait())
    while not (ready.done() or stop.done() or running.done()):
        if engines.state.reason != said or time.monotonic() - told > STILL_EVERY_S:
            said, told = engines.state.reason, time.monotonic()
            banner.still_starting(began, said)
        await asyncio.wait((ready, stop, running), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    for wait in (ready, stop):
        wait.cancel()
    if running.done():
        running.result()


async def _first(*waits: asyncio.Task[Any] | Coroutine[Any, Any, Any]) -> None:
    """Until one of them ends; those that are coroutines are cancelled then, tasks go on."""
    tasks = [(wait, asyncio.ensure_future(wait)) for wait in waits]
    await asyncio.wait([task for _, task in tasks], return_when=asyncio.FIRST_COMPLETED)
    await ended(*(task for wait, task in tasks if wait is not task))

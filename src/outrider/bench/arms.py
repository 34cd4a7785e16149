"""Arms: the stack without a draft, the stack's own draft, and those that `--arm` adds; each becomes a stack of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from outrider.bench import document
from outrider.core.errors import StackError
from outrider.core.provenance import redact
from outrider.stack.models import METHODS_WITH_WEIGHTS, Draft, DraftMethod, Forecast, Stack
from outrider.stack.policy import Policy

DRAFTS = tuple(method for method in get_args(DraftMethod) if method != "none")
HOW = "An arm is METHOD[:key=value,…], such as ngram:k=3, eagle3:k=3+5+7 or draft-model:k=4,model=org/name."


@dataclass(frozen=True, slots=True)
class Wanted:
    """A draft to compare; `rates`: its synthetic position rates in a forecast, where they are not the stack's."""

    draft: Draft
    rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """One arm: its name and the stack it serves."""

    name: str
    stack: Stack
    notes: tuple[str, ...] = ()

    @property
    def is_baseline(self) -> bool:
        """Whether it has no draft."""
        return self.stack.draft.method == "none"

    def described(self) -> document.Arm:
        """As it stands in the run's document: no folder of this machine."""
        draft = self.stack.draft.model_dump(mode="json", exclude_defaults=True)
        if isinstance(model := draft.get("model"), str):
            draft["model"] = redact(model)
        return document.Arm(
            name=self.name,
            method=self.stack.draft.method,
            draft_length=self.stack.draft.length,
            draft=draft,
            notes=list(self.notes),
        )

    def text(self) -> str:
        """The stack as a file that `outrider serve` takes."""
        return yaml.safe_dump(
            self.stack.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            | {"apiVersion": self.stack.api_version},
            sort_keys=False,
        )


def arm_name(draft: Draft) -> str:
    """``eagle3-k3``; a draft with a schedule says so: ``eagle3-k5-scheduled``."""
    if draft.method == "none":
        return document.BASELINE
    return f"{draft.method}-k{draft.length}" + ("-scheduled" if draft.draft_length_by_batch else "")


def for_measuring(
    stack: Stack, wanted: Wanted, running: int, prefix_cache: bool
) -> tuple[Stack, tuple[str, ...]]:
    """The stack with another draft, behind an open door on loopback, with room for `running` requests; and what was changed."""
    notes = []
    engine = stack.engine
    if engine.max_running_requests < running:
        notes.append(
            f"engine.max_running_requests raised from {engine.max_running_requests} to {running}, "
            "so that no request waits in the front"
        )
        engine = engine.model_copy(update={"max_running_requests": running})
    if engine.prefix_cache and not prefix_cache:
        notes.append("engine.prefix_cache off, so that no cell profits from the one before")
        engine = engine.model_copy(update={"prefix_cache": False})
    serve = stack.serve.model_copy(update={"host": "127.0.0.1", "port": 0, "keys": [], "log": "json"})
    changes = {
        "draft": wanted.draft,
        "engine": engine,
        "serve": serve,
        "price": None,
        "forecast": _forecast(stack, wanted),
        "policy": Policy(enabled=False),  # an arm is one draft
    }
    return stack.model_copy(update=changes), tuple(notes)


def _forecast(stack: Stack, wanted: Wanted) -> Forecast | None:
    """The arm's made-up parts: rates for exactly its K positions, none for the baseline. Raises StackError."""
    if stack.forecast is None:
        if wanted.rates:
            raise StackError(
                "rates are for a forecast; this stack's acceptance is measured",
                hint="Leave `rates` out, or use `outrider forecast`.",
            )
        return None
    given, length = wanted.rates or tuple(stack.forecast.position_rates or ()), wanted.draft.length
    if given and len(given) < length:
        raise StackError(
            f"{arm_name(wanted.draft)} needs {length} position rates, {len(given)} are given",
            hint="Give as many rates as the draft is long, or a smaller k.",
        )
    return stack.forecast.model_copy(update={"position_rates": list(given[:length]) or None})


def wanted_drafts(stack: Stack, specs: Iterable[str]) -> list[Wanted]:
    """The drafts to compare, in order and each once: the stack's own first, then those of `specs`. Raises StackError."""
    found = [Wanted(stack.draft)] if stack.draft.method != "none" else []
    for spec in specs:
        found += read_arm(spec, stack)
    unique: dict[str, Wanted] = {}
    for wanted in found:
        name = arm_name(wanted.draft)
        if name in unique and _resolved(unique[name].draft) != _resolved(wanted.draft):
            raise StackError(
                f"two arms would be called {name}",
                hint="Two heads of one method and length: bench them in two runs and `outrider compare` those.",
            )
        unique[name] = wanted
    return list(unique.values())


def _resolved(draft: Draft) -> Draft:
    """The draft with its length written out: a stack that leaves it to the method is no other draft than one that says it."""
    return draft.model_copy(update={"draft_length": draft.length})


def read_arm(spec: str, stack: Stack) -> list[Wanted]:
    """`METHOD[:key=value,…]` as drafts, one a draft length. What it does not say is the stack's, if its method is the same.

    Raises StackError.
    """
    method, _, rest = spec.partition(":")
    if method not in DRAFTS:
        what = (
            "the baseline has no draft and is always there; name a draft:"
            if method == "none"
            else f"no method is called {method!r}; the methods are"
        )
        raise StackError(f"--arm {spec}: {what} {', '.join(DRAFTS)}", hint=HOW)
    own = stack.draft.method == method
    base: dict[str, Any] = stack.draft.model_dump(exclude_defaults=True) if own else {"method": method}
    lengths: list[int | None] = [None]
    rates: tuple[float, ...] = ()
    keys = keys_of(method)
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            if key == "k":
                lengths = [int(part) for part in value.split("+")]
                base.pop("draft_length_by_batch", None)
            elif key == "rates":
                rates = tuple(float(part) for part in value.split("+"))
            else:
                base.update(_member(method, key, value, base))
        except ValueError:
            raise StackError(f"--arm {spec}: {key} takes a number, not {value!r}", hint=HOW) from None
        except KeyError:
            wrong = f"{key} needs a value" if key in keys else f"{method} has no key {key!r}"
            raise StackError(f"--arm {spec}: {wrong}; its keys are {', '.join(keys)}", hint=HOW) from None
    if method in METHODS_WITH_WEIGHTS and not base.get("model"):
        raise StackError(
            f"--arm {spec}: {method} needs the weights of a head or draft model",
            hint=f"Say which: --arm {method}:k=3,model=org/name (or a folder).",
        )
    try:
        return [
            Wanted(Draft.model_validate(base if length is None else base | {"draft_length": length}), rates)
            for length in lengths
        ]
    except ValidationError as error:
        raise StackError(f"--arm {spec}: {error.errors()[0]['msg']}", hint=HOW) from None


def keys_of(method: str) -> tuple[str, ...]:
    """The keys an arm of this method takes."""
    own = ("min", "max") if method == "ngram" else ()
    weights = ("model", "revision", "quantization") if method in METHODS_WITH_WEIGHTS else ()
    return ("k", *weights, "tensor_parallel", *own)


def _member(method: str, key: str, value: str, base: dict[str, Any]) -> dict[str, Any]:
    """One `key=value` of an arm as members of the draft block. Raises KeyError for an unknown key, ValueError."""
    if key not in keys_of(method) or not value:
        raise KeyError(key)
    if key == "model":
        return {key: str(Path(value).absolute()) if value.startswith((".", "/", "~")) else value}
    if key in {"revision", "quantization"}:
        return {key: value}
    if key in {"min", "max"}:
        return {"ngram": {**base.get("ngram", {}), f"{key}_tokens": int(value)}}
    return {key: int(value)}


def plan_arms(stack: Stack, specs: Iterable[str], running: int, prefix_cache: bool = False) -> list[ArmPlan]:
    """Baseline first, then every draft. Raises StackError, also when there is nothing to compare."""
    every = wanted_drafts(stack, specs)
    if not every:
        raise StackError(
            "there is nothing to compare: the stack's draft is `none` and no --arm names another", hint=HOW
        )
    arms = []
    for wanted in (Wanted(Draft(method="none")), *every):
        measured, notes = for_measuring(stack, wanted, running, prefix_cache)
        arms.append(ArmPlan(arm_name(wanted.draft), measured, notes))
    return arms

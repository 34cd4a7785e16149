"""Target and draft in one folder, under fixed names and with their digests checked: what a pod's engine finds as `/models`.

A pod must load exactly the pair that its manifest names. So the weights are not left to the engine's own download: they are put
into ``target`` and ``draft`` beforehand, compared with the content ids that the manifest states, and the engine starts offline.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import WeightsError
from outrider.engines.base import Engine
from outrider.launch.prepare import Note, resolved_draft, resolved_target
from outrider.stack.content import GGUF, WHEEL, Reference, differences, is_identity, part_of
from outrider.stack.digests import Digester
from outrider.stack.hub_weights import whole_model
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.weights import kind_of

TARGET, DRAFT = "target", "draft"


@dataclass(frozen=True, slots=True)
class Expected:
    """Content ids (see `stack.content`) of both halves; empty where a half has none that its bytes could be compared with."""

    target: Mapping[str, str]
    draft: Mapping[str, str]


def read_expected(path: Path) -> Expected:
    """Content ids out of a pair manifest or of the block that the chart mounts. Raises WeightsError."""
    try:
        value = json.loads(path.read_bytes())
        sides = [value[side]["content"] for side in (TARGET, DRAFT)]
        return Expected(*({str(name): str(digest) for name, digest in side.items()} for side in sides))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path} does not say what the weights must be: {error}",
            hint="It is `pair.json` of `outrider render`.",
        ) from error


def place_pair(stack: Stack, engine: Engine, into: Path, expected: Expected | None, note: Note) -> None:
    """Put the stack's weights into ``into/target`` and ``into/draft``, and check them; what is there already is only checked.

    Raises:
        WeightsError: they cannot be had or are not what is expected; nothing wrong is left under those names.
        EngineNotInstalled: a conversion is needed and there is no engine here that does it.
    """
    sides = [(TARGET, stack.target.model, stack.target.revision, expected.target if expected else {})]
    if stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model:
        sides.append((DRAFT, stack.draft.model, stack.draft.revision, expected.draft if expected else {}))
    for side, model, revision, content in sides:
        folder = into / side
        if _complete(folder):
            _check(side, model, folder, content, note)
        else:
            note(f"[weights] {side}: {model}")
            # Other pods may be at the same work on a shared volume: each in a folder of its own, the first one moves it.
            beside = into / f".{side}.{socket.gethostname()}.{secrets.token_hex(4)}"
            try:
                _fetch(stack, engine, side, beside, note)
                _check(side, model, beside, content, note)
                _move(beside, folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        note(f"[weights] {side} is in place{f' at {revision}' if revision else ''}")


def _complete(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _move(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)
    except OSError as error:
        if not _complete(folder):
            reason = error.strerror or str(error)
            raise WeightsError(f"{folder} cannot be made: {reason}", hint="Empty that folder.") from error


def _fetch(stack: Stack, engine: Engine, side: str, folder: Path, note: Note) -> None:
    half = stack.target if side == TARGET else stack.draft
    if kind_of(str(half.model)) == "hub":
        whole_model(str(half.model), half.revision, folder)
        return
    python = engine.find(stack).python
    target = resolved_target(stack, python, note)
    found = target if side == TARGET else resolved_draft(stack, target, python, note)
    try:
        shutil.copytree(str(found), folder)
    except OSError as error:
        raise WeightsError(
            f"the {side} cannot be copied: {error}", hint="Is there room on the volume?"
        ) from error


def _check(side: str, model: str, folder: Path, content: Mapping[str, str], note: Note) -> None:
    """Every file against its content id. A package or GGUF file was checked by its own digest before it was converted."""
    if not any(map(is_identity, content)):
        if not {WHEEL, GGUF} & content.keys():
            note(f"[weights] {side}: the pair names no digests of its files, so they are not checked")
        return
    note(f"[weights] {side}: comparing digests")
    digester = Digester(lambda message: note(f"[weights] {message}"))
    found = part_of(Reference(str(folder)), digester, like=content).content
    reasons = differences(content, found)
    if reasons:
        raise WeightsError(
            f"the {side} in {folder} is not what the pair names ({model}): {'; '.join(reasons)}",
            hint="Render again for the pair that you mean, or empty the volume so that it is fetched anew.",
        )

"""Everything before the first process: the engine found, the pair judged, its weights in place.

The built-in stack has a head that ships with Outrider; where that cannot be used (another version of the target, an engine that
cannot run it), it drafts by n-gram instead, and says so. A stack of the user's own is never changed: what cannot be prepared is
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outrider.core.errors import StackError, WeightsError
from outrider.engines.base import Engine, Install, ResolvedModels
from outrider.launch.judged import Judged, judged
from outrider.stack.hub_weights import hub_weights
from outrider.stack.manifest import PairManifest
from outrider.stack.models import METHODS_WITH_WEIGHTS, Draft, Stack
from outrider.stack.shapes import shaped
from outrider.stack.weights import kind_of, place_of, resolve
from outrider.stack.weights_cache import Progress

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A stack that was judged, its engine's install, its weights in place, and the manifest of its pair if there is one."""

    stack: Stack
    install: Install
    models: ResolvedModels
    manifest: PairManifest | None = None


def prepare(stack: Stack, engine: Engine, note: Note) -> Prepared:
    """Judge `stack` on the engine installed here, and put its weights in place; `note` is told what happens.

    Raises:
        StackError: with every reason at once.
        EngineError, WeightsError: with what to do next.
    """
    stack = shaped(stack)
    found = judged(stack, engine, note)
    target = resolved_target(stack, found.install.python, note)
    return _prepared(found, target, resolved_draft(stack, target, found.install.python, note))


def prepare_built_in(stack: Stack, engine: Engine, note: Note) -> Prepared:
    """As `prepare`, for the built-in stack: a head that cannot be used is replaced by n-gram drafts, which is said in one line.

    Raises as `prepare` does for everything else.
    """
    note = _once(note)
    try:
        found = judged(stack, engine, note)
    except StackError as error:
        refused = [problem for problem in error.problems if problem.severity == "error"]
        if not refused or not all(problem.path.startswith("draft.") for problem in refused):
            raise
        return prepare(_by_ngram(stack, refused[0].message, note), engine, note)
    target = resolved_target(stack, found.install.python, note)
    try:
        draft = resolved_draft(stack, target, found.install.python, note)
    except WeightsError as error:
        return prepare(_by_ngram(stack, str(error), note), engine, note)
    return _prepared(found, target, draft)


def resolved_target(stack: Stack, python: str, note: Note) -> str:
    """The target where the engine finds it; of a shape there is nothing to fetch. Raises WeightsError."""
    target = stack.target
    if stack.dummy_weights:
        return target.model
    return resolve(target.model, sha256=target.sha256, python=python, progress=_progress(note))


def resolved_draft(stack: Stack, target: str, python: str, note: Note) -> str | None:
    """The draft's weights where the engine finds them, None where it has none; a head in stored form is made whole.

    `target` is the resolved target, whose rows a stored head lacks. Raises WeightsError.
    """
    draft, say = stack.draft, _progress(note)
    if draft.method not in METHODS_WITH_WEIGHTS or not draft.model:
        return None
    if stack.dummy_weights:
        return draft.model
    if kind_of(target) == "hub":
        return resolve(
            draft.model, python=python, progress=say, target=hub_weights(target, stack.target.revision, say)
        )
    return resolve(draft.model, python=python, progress=say, target=lambda names: Path(target))


def planned_models(stack: Stack) -> ResolvedModels:
    """What `prepare` will give the engine, with nothing fetched, converted or made. Raises WeightsError."""
    place = _as_named if stack.dummy_weights else place_of
    has_weights = stack.draft.method in METHODS_WITH_WEIGHTS and stack.draft.model
    return ResolvedModels(
        target=place(stack.target.model, stack.target.sha256),
        target_revision=stack.target.revision,
        draft=place(stack.draft.model) if has_weights and stack.draft.model else None,
        draft_revision=stack.draft.revision,
    )


def _as_named(model: str, sha256: str | None = None) -> str:
    return model


def _prepared(found: Judged, target: str, draft: str | None) -> Prepared:
    stack = found.stack
    models = ResolvedModels(target, stack.target.revision, draft, stack.draft.revision)
    return Prepared(stack, found.install, models, found.manifest)


def _by_ngram(stack: Stack, reason: str, note: Note) -> Stack:
    note(f"[draft] {stack.draft.method} {stack.draft.model} cannot be used, n-gram drafts instead: {reason}")
    return stack.model_copy(update={"draft": Draft(method="ngram")})


def _progress(note: Note) -> Progress:
    return lambda message: note(f"[weights] {message}")


def _once(note: Note) -> Note:
    """Each line once: what is judged twice is told once."""
    said: set[str] = set()

    def tell(line: str) -> None:
        if line not in said:
            said.add(line)
            note(line)

    return tell

"""A stack held against its pair manifest: quickly before serving, by every hash for `outrider pair verify`.

Quickly: what contradicts the head or cannot work (shapes, tokenizer, the head's own config and size) refuses. Other target
weights only warn: a quantised or finetuned target may run the head, but it is another pair, and the figures in the manifest are
not its own. By hash, every difference refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outrider.core.errors import Problem, StackError, WeightsError
from outrider.stack.content import (
    BLOB_DIGITS,
    GGUF,
    WHEEL,
    Reference,
    differences,
    folder_sizes,
    hub_content,
    part_of,
)
from outrider.stack.digests import Digester, blob_id, file_digest
from outrider.stack.facts import FactsError, ModelFacts
from outrider.stack.find_facts import Found
from outrider.stack.head_rows import MANIFEST, ROWS, WEIGHTS, is_stored, read_rows, whole_digest
from outrider.stack.manifest import PairManifest, PairPart, PairShape, read_manifest
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.pair_heads import default_aux_layers
from outrider.stack.weights import kind_of, local_folder, place_of
from outrider.stack.weights_cache import is_complete

UNREADABLE, CONTENT, SHAPE = "pair-manifest", "pair-content", "pair-shape"
OTHER_PAIR = "What is measured of it belongs to another pair; `outrider pair verify` tells all, `pair write` makes its own."


def has_pair(stack: Stack) -> bool:
    """Whether the stack has two halves: a draft with weights."""
    return stack.draft.method in METHODS_WITH_WEIGHTS and bool(stack.draft.model)


def references(stack: Stack) -> tuple[Reference, Reference]:
    """Target and draft of a stack that has both."""
    target, draft = stack.target, stack.draft
    return Reference(target.model, target.revision, target.sha256), Reference(
        str(draft.model), draft.revision
    )


def manifest_beside(stack: Stack) -> Path | None:
    """`pair.json` beside the stack's head; None: no head, a head on a hub, or none there."""
    if not has_pair(stack):
        return None
    try:
        if kind_of(str(stack.draft.model)) not in ("folder", "builtin"):
            return None
        path = local_folder(str(stack.draft.model)) / MANIFEST
    except WeightsError:
        return None
    return path if path.is_file() else None


def shape_of(target: ModelFacts, draft: ModelFacts) -> PairShape:
    """What both sides must agree on, as these facts say it."""
    head = draft.head
    layers = (head.aux_layer_ids or default_aux_layers(target.layers)) if head else ()
    return PairShape(
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        aux_layers=layers,
        draft_vocab_size=head.draft_vocab_size if head else None,
        tokenizer=target.tokenizer.fingerprint if target.tokenizer else "",
    )


def judge_manifest(stack: Stack, target: ModelFacts | None, draft: ModelFacts | None) -> list[Problem]:
    """What the manifest beside the head says against this stack, without hashing weights."""
    if draft and ROWS in draft.files:
        hint = "Download it, and name the folder as `draft.model`."
        return [Problem("a head in stored form cannot be loaded from a hub", "draft.model", UNREADABLE, hint)]
    path = manifest_beside(stack)
    if path is None:
        return []
    try:
        manifest = read_manifest(path)
    except StackError as error:
        return [replace(one, hint=error.hint) for one in error.problems]
    return [
        *_method(stack, manifest, "warning"),
        *_shapes(manifest, target, draft),
        *_head(stack, manifest),
        *_target(stack, manifest, target),
    ]


def pair_in_force(stack: Stack, problems: tuple[Problem, ...] | list[Problem]) -> PairManifest | None:
    """The manifest beside the head, if nothing that was found speaks against it being this stack's."""
    path = manifest_beside(stack)
    if path is None or any(one.rule in (UNREADABLE, CONTENT, SHAPE) for one in problems):
        return None
    try:
        return read_manifest(path)
    except StackError:
        return None


def verify_pair(stack: Stack, manifest: PairManifest, found: Found, digester: Digester) -> list[Problem]:
    """Every hash of both halves, recomputed, and what differs; `found` has the facts of both.

    Of a head in stored form the whole file's hash is recomputed with the target's rows, where the target's weights are here.

    Raises WeightsError: a hub tells nothing of one half now. A half on this machine that cannot be read has changed.
    """
    problems = [*_method(stack, manifest, "error"), *_shapes(manifest, found.target, found.draft)]
    sides = zip(("target", "draft"), (manifest.target, manifest.draft), references(stack), strict=True)
    for side, expected, reference in sides:
        try:
            here = part_of(reference, digester, like=expected.content)
            reasons = differences(expected.content, here.content)
        except WeightsError as error:
            if kind_of(reference.model) == "hub":
                raise
            reasons = [str(error)]
        problems += [_changed(side, expected, reason, "error") for reason in reasons]
    if not problems and (folder := stored_head(stack)) and (weights := local_target(stack)):
        problems += [
            _changed("target", manifest.target, one, "error") for one in _other_rows(folder, weights)
        ]
    return problems


def _other_rows(folder: Path, weights: Path) -> Iterator[str]:
    """Whether a stored head, made whole with these weights, is the trained one."""
    try:
        if whole_digest(folder, lambda names: weights) != read_rows(folder).sha256:
            yield f"with its rows the head's {WEIGHTS} is another file than the trained one"
    except WeightsError as error:
        yield str(error)


def stored_head(stack: Stack) -> Path | None:
    """The folder of the stack's head, where that is in stored form."""
    if not has_pair(stack) or kind_of(str(stack.draft.model)) not in ("folder", "builtin"):
        return None
    folder = local_folder(str(stack.draft.model))
    return folder if is_stored(folder) else None


def local_target(stack: Stack) -> Path | None:
    """The folder of the target's weights, where they are on this machine already. Raises WeightsError."""
    reference = references(stack)[0]
    kind = kind_of(reference.model)
    if kind == "hub":
        from outrider.stack.hub import snapshot_folder  # noqa: PLC0415  # 0.3 s to import

        return snapshot_folder(reference.model, reference.revision)
    folder = Path(place_of(reference.model, reference.sha256))
    return folder if kind == "folder" or is_complete(folder) else None


def _method(stack: Stack, manifest: PairManifest, severity: str) -> Iterator[Problem]:
    if manifest.method and manifest.method != stack.draft.method:
        message = f"pair.json is of method {manifest.method}, the stack says {stack.draft.method}"
        yield Problem(message, "draft.method", CONTENT, OTHER_PAIR, severity)


def _shapes(manifest: PairManifest, target: ModelFacts | None, draft: ModelFacts | None) -> Iterator[Problem]:
    if manifest.shape is None:
        return
    if target and draft:
        here, there = shape_of(target, draft), manifest.shape
        rows = [
            ("target.model", "hidden size", here.hidden_size, there.hidden_size),
            ("target.model", "vocabulary", here.vocab_size, there.vocab_size),
            ("draft.model", "draft vocabulary", here.draft_vocab_size, there.draft_vocab_size),
            ("draft.model", "aux layers", list(here.aux_layers), list(there.aux_layers)),
        ]
        for path, what, found, expected in rows:
            if found != expected:
                message = f"{what} {found}, in the pair {expected}"
                yield Problem(
                    message, path, SHAPE, "Take the target and the head that were made for one another."
                )
    if target and target.tokenizer and manifest.shape.tokenizer not in ("", target.tokenizer.fingerprint):
        message = (
            "its tokenizer is another than the pair's: the head drafts other texts than it was trained on"
        )
        yield Problem(message, "target.model", SHAPE, "Take the target that the head was trained for.")


def _head(stack: Stack, manifest: PairManifest) -> Iterator[Problem]:
    """The head's own config and size: cheap to read, and nobody changes them by accident without breaking the head."""
    folder = local_folder(str(stack.draft.model))
    try:
        config, sizes = file_digest(folder / "config.json"), folder_sizes(folder)
    except (OSError, FactsError):
        return  # told where the facts are read
    if manifest.draft.content.get("config.json", config) != config:
        yield _changed("draft", manifest.draft, "config.json is another", "error")
    for name, size in sorted(manifest.draft.sizes.items()):
        if name.endswith(".safetensors") and sizes.get(name) != size:
            found = f"has {sizes[name]:,} bytes" if name in sizes else "is missing"
            yield _changed("draft", manifest.draft, f"{name} {found}, in the pair {size:,}", "error")


def _target(stack: Stack, manifest: PairManifest, target: ModelFacts | None) -> Iterator[Problem]:
    """Whether the target is the pair's, as far as it can be told without reading its weights."""
    expected, reference = manifest.target, references(stack)[0]
    kind, reasons = kind_of(reference.model), []
    if kind == "package" and reference.sha256:
        reasons = differences(expected.content, {WHEEL: reference.sha256})
    elif kind == "hub" and target and target.files:
        reasons = differences(expected.content, hub_content(target.commit or "", target.files))
    elif kind in ("folder", "gguf"):
        reasons = list(_files_differ(expected, local_folder(reference.model)))
    for reason in reasons:
        yield _changed("target", expected, reason, "warning")


def _files_differ(expected: PairPart, place: Path) -> Iterator[str]:
    """Of a folder its config and the sizes of its weights, of a GGUF file its size."""
    if place.is_file():
        here = [place.stat().st_size]
        if GGUF not in expected.content:
            yield from differences(expected.content, {GGUF: ""})
        elif (there := sorted(expected.sizes.values())) and there != here:
            yield f"{place.name} has {here[0]:,} bytes, in the pair {there[0]:,}"
        return
    try:
        sizes, config = folder_sizes(place), place / "config.json"
        known = expected.content.get(config.name, "")
        digest = blob_id(config) if len(known) == BLOB_DIGITS else file_digest(config)
    except (OSError, FactsError):
        return  # told where the facts are read
    if not known:
        yield from differences(expected.content, {config.name: digest})
    elif known != digest:
        yield f"{config.name} is another"
    for name, size in sorted(expected.sizes.items()):
        if name.endswith(".safetensors") and sizes.get(name) != size:
            yield (
                f"{name} has {sizes[name]:,} bytes, in the pair {size:,}"
                if name in sizes
                else f"{name} is missing"
            )


def _changed(side: str, part: PairPart, reason: str, severity: str) -> Problem:
    name = f" ({part.model})" if part.model else ""
    return Problem(
        f"not the {side} of this pair{name}: {reason}", f"{side}.model", CONTENT, OTHER_PAIR, severity
    )

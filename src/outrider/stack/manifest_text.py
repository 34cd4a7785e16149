"""A pair manifest in words: one line for a log, a page of 80 columns for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from outrider.core.text import printable
from outrider.stack.content import identities
from outrider.stack.manifest import PairManifest, PairPart, ServedAcceptance

WIDTH = 80
_INDENT = 14
MAX_TRAINING_LINES = 60


def summary(manifest: PairManifest) -> str:
    """``1a2b…: HEAD for TARGET; served AL 2.31 on humaneval at K = 3``, in one line; at most three prompt sets."""
    words = f"{manifest.id}: {manifest.draft.model or 'a draft'} for {manifest.target.model or 'a target'}"
    served = [
        f"{one.acceptance_length:.2f} on {one.prompt_set} at K = {one.draft_length}"
        for one in manifest.served[:3]
    ]
    return f"{words}; served AL {', '.join(served)}" if served else f"{words}; no served acceptance"


def page(manifest: PairManifest) -> Iterator[str]:
    """The whole manifest in lines of at most 80 columns, where words allow it; what no terminal should be sent is escaped."""
    yield from map(printable, _page(manifest))


def _page(manifest: PairManifest) -> Iterator[str]:
    yield f"pair {manifest.id}"
    length = f", K = {manifest.draft_length}" if manifest.draft_length else ""
    yield from _row("method", f"{manifest.method or 'not said'}{length}")
    for name, part in (("target", manifest.target), ("draft", manifest.draft)):
        yield from _row(name, _part(part))
    if shape := manifest.shape:
        yield from _row("hidden size", f"{shape.hidden_size:,}")
        if shape.aux_layers:
            yield from _row("aux layers", ", ".join(map(str, shape.aux_layers)))
        drafted = f"; the draft's {shape.draft_vocab_size:,}" if shape.draft_vocab_size else ""
        yield from _row("vocabulary", f"{shape.vocab_size:,} tokens{drafted}")
        yield from _row("tokenizer", f"{shape.tokenizer[:24]}…" if shape.tokenizer else "not known")
    yield ""
    yield from _served(manifest.served)
    if manifest.training:
        yield ""
        yield "training"
        yield from _facts(manifest.training)


def _part(part: PairPart) -> str:
    ids = list(identities(part.content))
    more = len(ids) - 6
    listed = ", ".join(ids[:6]) + (f" and {more} more" if more > 0 else "")
    return f"{part.model or 'not named'} ({listed or 'no content ids'})"


def _served(served: tuple[ServedAcceptance, ...]) -> Iterator[str]:
    if not served:
        yield "served acceptance: none is written here"
        return
    yield "served acceptance (AL = 1 + accepted / drafts; by position: of all drafts)"
    yield f"  {'prompt set':<18} {'K':>2} {'temp.':>5} {'requests':>8} {'tokens':>8} {'AL':>5}  by position"
    for one in served:
        rates = " ".join(f"{rate:.2f}".lstrip("0") if rate < 1 else "1.0" for rate in one.per_position)
        head = (
            f"  {_short(one.prompt_set, 18):<18} {one.draft_length:>2} {one.temperature:>5g} {one.requests:>8,} "
            f"{one.output_tokens:>8,} {one.acceptance_length:>5.2f}  "
        )
        yield from textwrap.wrap(rates or "-", WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _facts(facts: Mapping[str, object]) -> Iterator[str]:
    """Nested facts by their dotted names; a long list is counted, and after some lines so is the rest."""
    rows = list(_flat("", facts))
    for name, value in rows[:MAX_TRAINING_LINES]:
        yield from textwrap.wrap(value, WIDTH, initial_indent=f"  {name}: ", subsequent_indent="    ") or [
            f"  {name}:"
        ]
    if len(rows) > MAX_TRAINING_LINES:
        yield f"  and {len(rows) - MAX_TRAINING_LINES} more (--json)"


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), one)
    elif isinstance(value, list) and (
        len(value) > 12 or any(isinstance(one, list | Mapping) for one in value)
    ):
        yield prefix, f"{len(value)} entries"
    elif isinstance(value, list):
        yield prefix, ", ".join(map(str, value))
    else:
        yield prefix, _short(str(value), 400)


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {name:<{_INDENT - 2}}",
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )

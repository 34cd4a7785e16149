"""From a spec to prompts: every record kept or counted by the reason it was dropped."""

from __future__ import annotations

from collections import Counter

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets.find import Found, find
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.measure.prompt_sets.order import in_order
from outrider.measure.prompt_sets.records import file_sha256, read_records
from outrider.measure.prompt_sets.shape import Shape, Unusable
from outrider.measure.prompts import Prompt, PromptSet

ONE_PROMPT = "One prompt only: every request repeats it, so prefix caching and n-gram drafts look better than in real traffic."
_DEFAULTS = PromptOptions()


def load_prompt_set(spec: str, limit: int | None = None, options: PromptOptions = _DEFAULTS) -> PromptSet:
    """The prompts `spec` names, in an order that the file alone decides; at most `limit`, a prefix of that order.

    Raises:
        MeasurementError: nothing of that name, a file that passes a limit or cannot be read, or no usable record in it.
    """
    if limit is not None and limit < 1:
        raise MeasurementError(f"a limit of {limit} prompts leaves none", hint="Give 1 or more, or no limit.")
    found = find(spec, options)
    sha256 = file_sha256(found.path, found.shown, options)
    kept, dropped, cut = _read(found, options)
    if found.category:
        kept = _of_category(kept, found)
    if not kept:
        raise _empty(found, dropped)
    ordered = in_order(kept)
    taken = ordered[:limit]
    return PromptSet(
        name=found.name,
        prompts=taken,
        source=found.source,
        sha256=sha256,
        license=found.entry.license,
        dropped=dict(sorted(dropped.items())),
        template=found.entry.template,
        unused=len(ordered) - len(taken),
        notes=found.notes + _notes(ordered, taken, limit, cut),
    )


def _read(found: Found, options: PromptOptions) -> tuple[list[Prompt], Counter[str], int]:
    """Prompts in file order, drops by reason, and how many conversations were cut to their first turns."""
    kept: list[Prompt] = []
    dropped: Counter[str] = Counter()
    texts: set[tuple[str, ...]] = set()
    ids: set[str] = set()
    most = options.max_turns or found.entry.max_turns
    cut = 0
    for number, record in read_records(found.path, found.shown, options):
        try:
            if isinstance(record, Unusable):
                raise record
            shape = found.entry.shape(record)
            turns = shape.turns[:most] if most else shape.turns
            _check(turns, shape.system, options.max_tokens)
            text = (shape.system or "", *turns)
            if text in texts:
                raise Unusable("duplicate prompt")
        except Unusable as reason:
            dropped[str(reason)] += 1
            continue
        texts.add(text)
        cut += len(turns) < len(shape.turns)
        kept.append(Prompt(_id(found.base, shape, number, ids), turns, shape.system, shape.category))
    return kept, dropped, cut


def _check(turns: tuple[str, ...], system: str | None, max_tokens: int | None) -> None:
    """Raises Unusable for what no server could be sent, or would refuse."""
    if not turns or not all(turn.strip() for turn in turns):
        raise Unusable("empty prompt")
    whole = "".join((system or "", *turns))
    if "\0" in whole:
        raise Unusable("NUL character")
    try:
        size = len(whole.encode())
    except UnicodeEncodeError:
        raise Unusable("half a character (lone surrogate)") from None
    if max_tokens is not None and size > 3 * max_tokens:
        raise Unusable(f"longer than {max_tokens:,} tokens (estimated)")


def _id(base: str, shape: Shape, number: int, taken: set[str]) -> str:
    """The record's own id behind the set's name, else its number; a second use of an id gets the number as well."""
    name = f"{base}/{shape.own_id or number}"
    while name in taken:
        name = f"{name}#{number}"
    taken.add(name)
    return name


def _of_category(kept: list[Prompt], found: Found) -> list[Prompt]:
    wanted = [prompt for prompt in kept if prompt.category == found.category]
    if kept and not wanted:
        there = ", ".join(dict.fromkeys(prompt.category for prompt in kept))
        raise MeasurementError(
            f"{found.source} has no category {found.category!r}", hint=f"It has: {there[:500]}."
        )
    return wanted


def _empty(found: Found, dropped: Counter[str]) -> MeasurementError:
    if not dropped:
        return MeasurementError(f"{found.shown} is empty", hint="It needs one prompt a line, as JSON.")
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())
    hint = 'A line may be {"prompt": "…"}, {"text": …}, {"turns": […]}, {"messages": […]}, {"conversations": […]} or "…".'
    if found.base in ("humaneval", "gsm8k", "mt-bench", "spec-bench", "sharegpt"):
        hint = f"Is it {found.base}'s own file? For your own prompts: jsonl=FILE.jsonl."
    return MeasurementError(f"{found.shown} has no usable prompt: {reasons}", hint=hint)


def _notes(
    ordered: tuple[Prompt, ...], taken: tuple[Prompt, ...], limit: int | None, cut: int
) -> tuple[str, ...]:
    """What a reader of the figures must know about this set."""
    notes: list[str] = []
    if len(taken) == 1:
        notes.append(ONE_PROMPT)
    if limit is not None and limit > len(ordered):
        notes.append(f"{limit:,} prompts were asked for; the set has {len(ordered):,}.")
    categories = len({prompt.category for prompt in ordered})
    missing = categories - len({prompt.category for prompt in taken})
    if missing:
        notes.append(f"{len(taken)} prompts leave out {missing} of {categories} categories.")
    if cut:
        notes.append(f"{cut:,} of {len(ordered):,} usable conversations go on after the turns that are sent.")
    return tuple(notes)

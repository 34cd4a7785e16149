"""From a measured map to the stack: which method, which draft length at which batch, and the words that say why.

Pure: the command runs the benches. The stack's text is edited, not written anew, so that comments and order stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from outrider.bench.document import Interval, RunDocument
from outrider.bench.schedule import NO_DRAFT, Refusal, Row, best_method, propose, worths
from outrider.core.errors import MeasurementError

INTERACTIVE_LOAD = 8  # an interactive lane is judged by the loads up to here


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the map says: the method, its rows (empty for `none`), the draft length they need, and why, in lines."""

    method: str
    rows: tuple[Row, ...]
    draft_length: int
    reasons: tuple[str, ...]


def proposal(document: RunDocument, last: int, interactive_load: int = INTERACTIVE_LOAD) -> Proposal:
    """The method that pays best on the interactive lane and its schedule up to `last` running requests.

    Raises MeasurementError where nothing was measured.
    """
    arm, why = best_method(document, at_most=interactive_load)
    _, batch_why = best_method(document)
    lanes = (f"interactive lane: {why}", f"batch lane: {batch_why}")
    methods = {one.name: one.method for one in document.arms}
    method = methods.get(arm, NO_DRAFT)
    if method == NO_DRAFT:
        if not document.speedups:
            propose([], 1)  # raises, and says what to do
        # No arm pays at every small load; one length may still pay at some of them.
        method = max(
            (one for one in document.arms if one.method != NO_DRAFT),
            key=lambda one: max((s.ratio.value for s in document.speedups if s.arm == one.name), default=0.0),
        ).method
    measured = worths(document, method)
    longest = max((one.draft_length for one in measured), default=1)
    rows = tuple(propose(measured, longest, last))
    lengths = [length for _, _, length in rows if length]
    if not lengths:
        return Proposal(NO_DRAFT, (), 0, lanes)
    return Proposal(method, rows, max(lengths), (*lanes, *_row_words(rows, document, method)))


def _row_words(rows: Sequence[Row], document: RunDocument, method: str) -> list[str]:
    found = []
    measured = worths(document, method)
    top = max(one.running for one in measured)
    for first, last, length in rows:
        inside = [
            one for one in measured if first <= one.running <= last and one.draft_length == length and length
        ]
        if inside:
            span = ", ".join(f"{_ratio_words(one.ratio)} at {one.running}" for one in inside)
            found.append(f"{first} to {last} running: K = {length}, measured {span} against no draft")
        elif first > top:
            found.append(f"{first} to {last} running: off, not measured (the largest load was {top} at once)")
        else:
            beyond = f"; above {top} nothing was measured" if last > top else ""
            found.append(f"{first} to {last} running: off, no length surely pays{beyond}")
    return found


def _ratio_words(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x (one trial, no interval)"
    return f"{ratio.value:.2f}x (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"


def refused_words(refusals: Sequence[Refusal]) -> str:
    """Why a schedule is not written."""
    return "; ".join(one.reason for one in refusals)


def draft_block(own: Mapping[str, Any], found: Proposal) -> dict[str, Any]:
    """The stack's draft block with the proposal in it. `own`: the block as it stands in the file.

    Raises MeasurementError if the best method needs weights that the stack does not name.
    """
    if found.method == NO_DRAFT:
        return {"method": NO_DRAFT}
    if own.get("method") == found.method:
        block = dict(own)
    elif found.method in {"ngram", "suffix"}:
        block = {"method": found.method}
    else:
        raise MeasurementError(
            f"the best method is {found.method}, which the stack does not name",
            hint="Put that draft into the stack, then tune it.",
        )
    block["draft_length"] = found.draft_length
    block.pop("draft_length_by_batch", None)
    if len(found.rows) > 1 or found.rows[0][2] != found.draft_length:
        block["draft_length_by_batch"] = [list(row) for row in found.rows]
    return block


def with_draft(text: str, block: Mapping[str, Any], reasons: Sequence[str]) -> str:
    """The stack's text with its top-level `draft` changed, or added at the end; `reasons` stand above it as comments.

    Of a block in lines, only the keys that change are touched: comments stay, but for one behind a key that goes. A block in
    braces is written anew, and comments inside it are lost.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.splitlines(keepends=True)
    head = "".join(f"# {line}\n" for line in reasons)
    new = head + _dumped({"draft": dict(block)})
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value != "draft":
            continue
        begin, end = key.start_mark.line, value.end_mark.line
        # A block mapping ends where the next key begins: blank lines and comments before that key are its own.
        while end > begin + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        if value.end_mark.column > 0 or end == begin:
            end += 1
        while begin and lines[begin - 1].startswith("# tuned: "):
            begin -= 1
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            edited = "".join(_edited(lines, (key.start_mark.line, end), value, block))
            if (yaml.safe_load(edited) or {}).get("draft") == block:
                new = head + edited
        return "".join(lines[:begin]) + new + "".join(lines[end:])
    return text.rstrip("\n") + "\n\n" + new


def _dumped(block: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(block), sort_keys=False, default_flow_style=None, width=110)


def _dumped_key(name: str, value: Any) -> str:
    """``name: value`` without braces around it."""
    style = None if isinstance(value, list | dict) else False
    return yaml.safe_dump({name: value}, default_flow_style=style, width=110)


def _edited(
    lines: Sequence[str], span: tuple[int, int], node: yaml.MappingNode, block: Mapping[str, Any]
) -> list[str]:
    """The lines of a block mapping with the keys that differ from `block` changed, dropped, or added at its end."""
    own = yaml.safe_load("".join(lines[span[0] : span[1]]))["draft"]
    starts = [key.start_mark.line for key, _ in node.value]
    indent = " " * node.start_mark.column
    found = list(lines[span[0] : starts[0]])
    for (key, value), start, stop in zip(node.value, starts, [*starts[1:], span[1]], strict=True):
        mine, name = list(lines[start:stop]), key.value
        comments = [line for line in mine[1:] if line.lstrip().startswith("#")]
        if name not in block:
            found += comments
        elif own[name] == block[name]:
            found += mine
        elif isinstance(value, yaml.ScalarNode) and value.start_mark.line == value.end_mark.line == start:
            line, new = mine[0], _dumped_key(name, block[name]).partition(": ")[2].rstrip("\n")
            found += [line[: value.start_mark.column] + new + line[value.end_mark.column :], *mine[1:]]
        else:
            anew = _dumped_key(name, block[name]).splitlines(keepends=True)
            found += [*(indent + line for line in anew), *comments]
    if found and not found[-1].endswith("\n"):
        found[-1] += "\n"
    added = "".join(_dumped_key(name, block[name]) for name in block if name not in own)
    return found + [indent + line for line in added.splitlines(keepends=True)]

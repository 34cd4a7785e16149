"""A recorded trace: what the governor was told, a JSON line a finished request and one a snapshot, so that it can be asked again.

The first line is the header: format, version, and the ladder. A ``request`` line is a `Credit`; a ``snapshot`` line closes the
requests before it into one `Snapshot`, and may tell what was decided then. Times are seconds on the recording's clock. No prompt,
answer or key stands in a trace.

What is read is bounded and strict. A last line that was cut (no line end) is left out, as are requests behind the last snapshot:
a recording may stop at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from outrider.core.errors import MeasurementError
from outrider.governor import plain
from outrider.governor.decision import Decision
from outrider.governor.ladder import Ladder
from outrider.governor.reasons import Reason
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading

FORMAT = "outrider-governor-trace"
VERSION = 1
MAX_LINE_BYTES = 64 * 1024
MAX_NOTE = 1024
MAX_RUNGS = 16
MAX_REQUESTS = 100_000
"""Finished requests in one snapshot."""
MAX_LOOKS = 10_000_000
_HINT = "A trace is written by `outrider.governor.trace`; docs/replay.md has its form."


@dataclass(frozen=True, slots=True)
class Look:
    """One snapshot of a trace, its requests in it; `decided`: the draft in force after it, where the recording says so."""

    snapshot: Snapshot
    decided: str | None = None


def header_line(ladder: Ladder, note: str = "") -> str:
    """The first line, its end included."""
    told: dict[str, object] = {"format": FORMAT, "version": VERSION, "note": note}
    return plain.line_of({**told, "ladder": [plain.to_plain(rung) for rung in ladder]})


def look_lines(snapshot: Snapshot, decision: Decision | None = None) -> str:
    """The lines of one look, their ends included: its finished requests, then the snapshot with what was decided."""
    lines = [plain.line_of({"request": plain.to_plain(one)}) for one in snapshot.finished]
    told: dict[str, object] = {"snapshot": plain.to_plain(snapshot, without=("finished",))}
    if decision is not None:
        told["decided"] = {"draft": decision.draft, "reason": str(decision.reason)}
    return "".join([*lines, plain.line_of(told)])


class Trace:
    """A trace that is being read: `ladder` and `note` at once, `looks` as they are asked for; then `left_out` says what was."""

    def __init__(self, lines: Iterable[bytes], name: str = "trace") -> None:
        """Reads the header of the lines of a file, line ends included. Raises MeasurementError."""
        self._lines = iter(lines)
        self._name = name
        self._number = 0
        self.left_out: list[str] = []
        header = self._next()
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise self._wrong(f"the first line is not the header of a trace (format {FORMAT})")
        if header.get("version") != VERSION:
            raise self._wrong(f"its version is {header.get('version')!r}, and {VERSION} is read here")
        with self._located():
            told = plain.members(header, ("format", "version", "note", "ladder"))
            self.note = plain.text(told.get("note", ""), "note", MAX_NOTE)
            rungs = plain.items(told.get("ladder"), "ladder", MAX_RUNGS)
            self.ladder = Ladder(tuple(map(plain.rung_from, rungs)))

    def looks(self) -> Iterator[Look]:
        """The snapshots in their order. Raises MeasurementError at the first line that is wrong."""
        finished: list[Credit] = []
        seen, at_s = 0, -float("inf")
        while (line := self._next()) is not None:
            with self._located():
                told = plain.members(line, ("request", "snapshot", "decided"))
                if "request" in told:
                    plain.members(told, ("request",))
                    finished.append(plain.from_plain(Credit, told["request"]))
                    if len(finished) > MAX_REQUESTS:
                        raise ValueError(f"more than {MAX_REQUESTS:,} requests without a snapshot")
                    continue
                look = Look(
                    self._snapshot(told.get("snapshot"), finished), self._decided(told.get("decided"))
                )
                seen += 1
                if look.snapshot.at_s < at_s:
                    raise ValueError(f"the clock went back from {at_s:g} s to {look.snapshot.at_s:g} s")
                if seen > MAX_LOOKS:
                    raise ValueError(f"more than {MAX_LOOKS:,} snapshots")
            at_s, finished = look.snapshot.at_s, []
            yield look
        if finished:
            self.left_out.append(f"{len(finished)} requests behind the last snapshot")

    def _snapshot(self, value: object, finished: list[Credit]) -> Snapshot:
        if not isinstance(value, dict) or "finished" in value:
            raise ValueError(
                'a line is {"request": {…}} or {"snapshot": {…}}, requests on lines of their own'
            )
        told = dict(value)
        steps = plain.items(told.pop("steps", []), "steps", 1000)
        probes = plain.items(told.pop("start_probes", []), "start_probes", 100)
        snapshot = plain.from_plain(
            Snapshot,
            told,
            finished=tuple(finished),
            steps=tuple(plain.from_plain(StepReading, one) for one in steps),
            start_probes=tuple(plain.from_plain(StartProbe, one) for one in probes),
        )
        if snapshot.pinned is not None and snapshot.pinned not in self.ladder:
            raise ValueError(f"{snapshot.pinned!r} is pinned, but stands on no rung")
        return snapshot

    def _decided(self, value: object) -> str | None:
        if value is None:
            return None
        told = plain.members(value, ("draft", "reason"))
        if told.get("draft") not in self.ladder or told.get("reason") not in list(Reason):
            raise ValueError("decided: a draft of the ladder, and its reason")
        return str(told["draft"])

    def _next(self) -> object:
        """The next line's value; None at the end."""
        line = next(self._lines, None)
        if line is None:
            return None
        self._number += 1
        if len(line) > MAX_LINE_BYTES:
            raise self._wrong(f"a line of more than {MAX_LINE_BYTES // 1024} KiB")
        try:
            value = plain.parse(line)
        except ValueError as error:
            if self._number > 1 and not line.endswith(b"\n"):
                self.left_out.append("the last line, which is cut")
                return None
            raise self._wrong(f"no JSON: {error}") from error
        return value if value is not None else {}

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Whatever a line's values cannot be becomes an error that names the line."""
        try:
            yield
        except ValueError as error:
            raise self._wrong(str(error)) from error

    def _wrong(self, message: str) -> MeasurementError:
        return MeasurementError(f"{self._name}:{self._number}: {message}", hint=_HINT)

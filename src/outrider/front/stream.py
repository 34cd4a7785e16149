"""The answer's stream on its way through: bytes unchanged, except that a usage chunk only we asked for is taken out.

Written for the hot path: a read that holds whole events, after the first token and before the usage chunk, costs two
searches in C and is passed on as it is.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

# What ends an event: two line ends, of any of the three kinds that SSE knows. The first finds out quickly whether a read
# ends with one, the second tells events apart.
_EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_EVENT_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n){2}")
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# Generated output in an event: a text that is not empty, or a tool call. Inside a JSON string these quotes would be
# escaped, so no text can look like it.
_OUTPUT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|refusal|arguments|delta)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{'
)
MAX_HELD_BYTES = 1 << 20


class UsageFilter:
    """Filters one stream.

    `has_output` turns true with the first token. `usage` is the usage chunk once it came, and `usage_alone` whether no
    output came in the same piece before it.
    """

    __slots__ = ("_held", "_remove", "has_output", "usage", "usage_alone")

    def __init__(self, remove: bool) -> None:
        self._remove = remove
        self._held = b""
        self.usage: dict[str, object] | None = None
        self.usage_alone = False
        self.has_output = False

    def feed(self, data: bytes) -> bytes:
        """What to pass on now. The tail of an unfinished event is held until its rest comes."""
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith(_EVENT_ENDS):
            data = self._hold_tail(data)
        if not self.has_output:
            self.has_output = _OUTPUT.search(data) is not None
        if data.find(b'"usage"') < 0:
            return data
        return self._read_usage(data)

    def end(self) -> bytes:
        """What is left when the stream is over."""
        rest, self._held = self._held, b""
        return rest

    def _hold_tail(self, data: bytes) -> bytes:
        cut = max(data.rfind(end) + len(end) if end in data else 0 for end in _EVENT_ENDS)
        if len(data) - cut > MAX_HELD_BYTES:
            return data
        self._held = data[cut:]
        return data[:cut]

    def _read_usage(self, data: bytes) -> bytes:
        kept: list[bytes] = []
        for event in _events(data):
            chunk = _usage_chunk(event) if b'"usage"' in event else None
            if chunk is not None:
                self.usage = chunk
                self.usage_alone = not kept
                if self._remove:
                    continue
            kept.append(event)
        return b"".join(kept)


def _events(data: bytes) -> list[bytes]:
    """Whole events, their ends included, and what is left after the last."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        events = [event + b"\n\n" for event in whole]
        return [*events, rest] if rest else events
    ends = [0, *(match.end() for match in _EVENT_END.finditer(data)), len(data)]
    return [data[start:end] for start, end in pairwise(ends) if start < end]


def _payload(event: bytes) -> dict[str, object] | None:
    lines = [line.removeprefix(b"data:") for line in event.splitlines() if line.startswith(b"data:")]
    try:
        payload = json.loads(b"\n".join(lines).decode())
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def _usage_chunk(event: bytes) -> dict[str, object] | None:
    """The event's payload if it is the usage chunk: no choices, and a usage object."""
    if not _NO_CHOICES.search(event):
        return None
    payload = _payload(event)
    if payload is None or payload.get("choices") != [] or not isinstance(payload.get("usage"), dict):
        return None
    return payload

"""Where log lines go: collected for a moment, so that a burst of requests costs one write."""

from __future__ import annotations

import asyncio
from typing import TextIO

FLUSH_AFTER_S = 0.02


class LineWriter:
    """Writes lines to a stream at most every 20 ms; `flush` at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[str] = []

    def write(self, lines: str) -> None:
        """Whole lines, to be written soon. Must be called on the event loop's thread."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.flush)
        self._lines.append(lines)

    def flush(self) -> None:
        """Write what is there."""
        lines, self._lines = self._lines, []
        if lines:
            self._stream.write("".join(lines))
            self._stream.flush()

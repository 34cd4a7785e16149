"""Log lines leave in bursts and none is lost."""

import asyncio
import io

from outrider.front.log import FLUSH_AFTER_S, LineWriter


def test_lines_of_a_burst_leave_together() -> None:
    """Nothing at once, everything in order a moment later, the rest on flush."""

    async def run() -> list[str]:
        sink = io.StringIO()
        log = LineWriter(sink)
        log.write("a\n")
        log.write("b\n")
        seen = [sink.getvalue()]
        await asyncio.sleep(FLUSH_AFTER_S * 3)
        seen.append(sink.getvalue())
        log.write("c\n")
        log.flush()
        return [*seen, sink.getvalue()]

    assert asyncio.run(run()) == ["", "a\nb\n", "a\nb\nc\n"]

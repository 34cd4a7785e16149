"""An engine's lines, however they arrive."""

from __future__ import annotations

import asyncio

import pytest

from outrider.launch.process import lines


@pytest.mark.parametrize(
    "pieces",
    [
        (b"first\nxxxxxxxxxxxxxxxxxxxxxxxxx\nlast\n",),
        (b"first\n", b"xxxxxxxxxxxxxxxxxxxxxxxxx", b"\n", b"last\n"),
        (b"first\n", b"xxxxxxxxxxxxx", b"xx\nlast\n"),
        (b"first\n", b"xxxxxxxxxxxxxxxxxxxx", b"xxxxxxxxxxxxxxxxxxxx", b"x\nla", b"st"),
        (b"first\nlast\n", b"xxxxxxxxxxxxxxxx", b"xx"),
    ],
)
def test_a_line_over_the_limit_is_left_out_whole(pieces: tuple[bytes, ...]) -> None:
    """Nothing of it stands for a line of its own, wherever its reads were cut."""

    async def story() -> list[bytes]:
        stream = asyncio.StreamReader(limit=10)
        reading = asyncio.ensure_future(_all(stream))
        for piece in pieces:
            stream.feed_data(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        stream.feed_eof()
        return await reading

    assert [line.strip() for line in asyncio.run(story())] == [b"first", b"last"]


async def _all(stream: asyncio.StreamReader) -> list[bytes]:
    return [line async for line in lines(stream)]

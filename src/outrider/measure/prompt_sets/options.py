"""What a caller may choose about a prompt set, and the limits on files that come from outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """Choices and limits.

    `max_tokens` drops prompts whose estimate is larger (UTF-8 bytes / 3, all turns and the system text together).
    `max_turns` keeps the first turns of a conversation; None: what the format does by itself (ShareGPT: 1, others: all).
    `data_folder` is where named sets lie; None: the environment's ``OUTRIDER_DATA``.
    The rest are limits in bytes (of the file, of what it unpacks to, of one record) and in records.
    """

    max_tokens: int | None = None
    max_turns: int | None = None
    data_folder: Path | None = None
    max_file_bytes: int = 2**30
    max_unpacked_bytes: int = 2**30
    max_record_bytes: int = 4 * 2**20
    max_records: int = 500_000

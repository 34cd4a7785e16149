"""What several tests of training need."""

from __future__ import annotations

import asyncio

import pytest

from outrider.train import generation


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short."""
    sleep = asyncio.sleep
    monkeypatch.setattr(generation.asyncio, "sleep", lambda seconds: sleep(seconds / 100))

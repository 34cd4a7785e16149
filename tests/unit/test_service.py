"""A whole service as a process: what it says when it cannot start, and that nothing is left of it."""

from pathlib import Path

import psutil
import pytest

from outrider.core.errors import EngineStartFailed
from outrider.launch.service import Service


def test_a_stack_that_is_refused_ends_with_its_reasons(tmp_path: Path) -> None:
    """The last words of the service are in the error, and its log is kept."""
    stack = tmp_path / "stack.yaml"
    stack.write_text("apiVersion: outrider/v1alpha1\ntarget:\n  modle: x\n")
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(EngineStartFailed, match="status 10") as caught:
        Service.start(stack, tmp_path / "logs" / "a.log", 60.0)
    assert any("modle" in line for line in caught.value.log_tail)
    assert "modle" in (tmp_path / "logs" / "a.log").read_text()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before

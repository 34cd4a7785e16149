"""Every end of a training without a head, as one event with what to do next."""

from __future__ import annotations

import errno
import os

import pytest

from outrider.core.errors import TrainingError
from outrider.train.events import Evaluated, Failed, Progressed, from_line, to_line
from outrider.train.trainer.failures import failure
from tests.train.tiny import load_trainer


@pytest.fixture(scope="module", autouse=True)
def trainer() -> None:
    """Its libraries, imported once."""
    load_trainer()


def allocation() -> Exception:
    """What PyTorch's CPU allocator says for more than there is."""
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.int8)
    return caught.value


def on_the_gpu() -> Exception:
    """What its CUDA allocator says."""
    import torch

    return torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …\nmore"
    )


@pytest.mark.parametrize("make", [allocation, on_the_gpu, MemoryError])
def test_no_memory_is_told_from_a_fault(make: type[Exception]) -> None:
    """Whichever allocator: what to lower, and that the run goes on."""
    said = failure(make())
    assert said.kind == "out-of-memory"
    assert "batch_tokens" in said.hint
    assert "goes on" in said.hint
    assert "\n" not in said.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_names_the_file(number: int) -> None:
    """Whether the disk, the quota or a limit is what is full."""
    said = failure(OSError(number, os.strerror(number), "state.pt"))
    assert said.kind == "disk-full"
    assert "state.pt" in said.message
    assert said.hint.startswith("Free")


def test_refusals_keep_their_words() -> None:
    """And interruptions are told from refusals by their kind."""
    from outrider.train.trainer.loop import Diverged, Interrupted

    assert failure(TrainingError("no", hint="do")) == Failed("refused", "no", "do")
    assert failure(Interrupted("stopped", hint="again")).kind == "interrupted"
    assert failure(Diverged("nan", hint="lower")).kind == "diverged"


def test_what_is_missing_is_named_with_its_install_command() -> None:
    """An import that fails in the trainer."""
    said = failure(ImportError("No module named 'speculators'", name="speculators"))
    assert said.kind == "not-installed"
    assert "speculators" in said.message
    assert "train-env" in said.hint


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "head"), ValueError(""), KeyError("x")]
)
def test_anything_else_is_one_line_too(error: Exception) -> None:
    """The type, the first line, where the rest stands."""
    said = failure(error)
    assert said.kind == "error"
    assert said.message
    assert said.hint


def test_an_event_survives_its_line() -> None:
    """JSON there and back; fields of a later version are left aside; a line that is none is no event."""
    events = [
        Progressed(1, 2, 1, 0.5, 1e-3, 10.0, 3.0, None, 0.1),
        Evaluated(1, 2, None, 0.5, (0.5, 0.25), 1.75, 10.0, 1.0),
        Failed("error", "a", "b"),
    ]
    for event in events:
        assert from_line(to_line(event)) == event
    assert from_line('{"event": "error", "kind": "k", "message": "m", "hint": "h", "new": 1}') == Failed(
        "k", "m", "h"
    )
    for line in ("Loading weights: 100%", "{}", '{"event": "none"}', '{"event": "error"}', "[1]", '"x"'):
        assert from_line(line) is None

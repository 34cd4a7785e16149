"""What `dtype: auto` comes to on processors of several kinds; no test looks at the one that it runs on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.shared import shared_path

from outrider.stack.arithmetic import multiplies_bf16, with_arithmetic
from outrider.stack.facts import Quantization
from outrider.stack.find_facts import Source
from outrider.stack.load import load_stack_text
from outrider.stack.models import Stack
from outrider.stack.preflight import examine
from outrider.stack.read_facts import read_config_file

ZEN_3 = "flags\t\t: fpu sse4_2 avx avx2 f16c fma vaes"
ICE_LAKE = f"{ZEN_3} avx512f avx512_vnni"
ZEN_4 = f"{ICE_LAKE} avx512_bf16"
SAPPHIRE_RAPIDS = f"{ZEN_4} amx_bf16 amx_tile"
GRAVITON_2 = "Features\t: fp asimd asimdhp asimddp"
GRAVITON_3 = f"{GRAVITON_2} i8mm bf16"


@pytest.mark.parametrize(
    ("flags", "does"),
    [
        (ZEN_3, False),
        (ICE_LAKE, False),
        (ZEN_4, True),
        (SAPPHIRE_RAPIDS, True),
        (GRAVITON_2, False),
        (GRAVITON_3, True),
    ],
)
def test_flags_tell(flags: str, does: bool) -> None:
    """The line with the flags decides, wherever it stands, and whole words alone count."""
    cpuinfo = (
        f"processor\t: 0\nmodel name\t: bf16 avx512_bf16\n{flags} not_avx512_bf16_\nbugs\t\t: amx_bf16\n"
    )
    assert multiplies_bf16(cpuinfo) == does


@pytest.mark.parametrize("cpuinfo", ["", "cpu : POWER10\nclock : 3.0GHz\n"])
def test_where_no_flags_are_listed_nothing_is_changed(cpuinfo: str) -> None:
    """No Linux, a sandbox, another architecture: the engine's own choice stands."""
    assert multiplies_bf16(cpuinfo)


def stack(target: str = "", engine: str = "device: cpu") -> Stack:
    """A stack of a model with these keys beside."""
    text = f"apiVersion: outrider/v1alpha1\ntarget: {{model: a/llama-3.3-70b{target}}}\ndraft: {{method: none}}\n"
    return load_stack_text(f"{text}engine: {{{engine}}}\n", "x")


@pytest.mark.parametrize(
    ("target", "bf16", "label", "dtype"),
    [
        ("", False, "none", "float32"),
        ("", True, "none", "auto"),
        (", dtype: bfloat16", False, "none", "bfloat16"),
        (", dtype: float16", False, "none", "float16"),
        ("", False, "awq", "auto"),
        (", quantization: fp8", False, "none", "auto"),
        (", quantization: none", False, "none", "float32"),
    ],
)
def test_auto_is_float32_where_bf16_is_not_multiplied(
    target: str, bf16: bool, label: str, dtype: str
) -> None:
    """A named type stays, and a quantised target's, by the stack's word or the checkpoint's: its kernels know no float32."""
    facts = read_config_file(shared_path("facts", "llama-3.3-70b.config.json"))
    facts = replace(facts, quantization=Quantization(label))
    asked = stack(target)
    assert with_arithmetic(asked, facts, bf16=bf16).target.dtype == dtype
    assert with_arithmetic(asked, None, bf16=bf16).target.dtype == (
        "float32" if dtype == "auto" and label != "none" else dtype
    )


def test_memory_is_reckoned_with_four_bytes() -> None:
    """Weights and KV cache twice as large, activations too, and a note says why; a named type has neither."""
    source = Source(shared_path("facts"), offline=True)
    half, whole = (examine(stack(", max_context_tokens: 1024"), source, bf16=bf16) for bf16 in (True, False))
    assert half.budget
    assert whole.budget
    weights = [
        next(line.size_bytes for line in one.lines if line.name == "weights")
        for one in (half.budget, whole.budget)
    ]
    assert weights == [-141_107_412_992, 2 * -141_107_412_992]
    assert whole.budget.request_bytes == 2 * half.budget.request_bytes
    assert whole.stack
    assert whole.stack.target.dtype == "float32"
    rules = [[one.rule for one in found.problems if one.severity == "note"] for found in (half, whole)]
    assert rules == [[], ["arithmetic"]]
    named = examine(stack(", dtype: float32, max_context_tokens: 1024"), source, bf16=False)
    assert named.budget == whole.budget
    assert "arithmetic" not in [one.rule for one in named.problems]

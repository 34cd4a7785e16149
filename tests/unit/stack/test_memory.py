"""The memory budget against numbers worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared import shared_path

from outrider.stack.accelerators import ACCELERATORS, GIB, find_accelerator, nearest_accelerator, this_machine
from outrider.stack.facts import FactsError, ModelFacts, Quantization, TensorFacts
from outrider.stack.load import load_stack_text
from outrider.stack.memory import Budget, judge_budget, make_budget
from outrider.stack.models import Stack
from outrider.stack.plain_engine import engines_of, memory_fraction
from outrider.stack.read_facts import read_config_file, read_folder
from outrider.stack.weight_size import weight_size


def shape(name: str) -> ModelFacts:
    """Facts of one of the named targets."""
    return read_config_file(shared_path("facts", f"{name}.config.json"))


def stack(target: str = "", engine: str = "", draft: str = "{method: none}") -> Stack:
    """A stack with these blocks."""
    text = f"apiVersion: outrider/v1alpha1\ntarget: {{model: a/b{target}}}\ndraft: {draft}\nengine: {{device: cuda{engine}}}\n"
    return load_stack_text(text, "x")


HEAD = "{method: eagle3, model: c/d}"


def lines(budget: Budget) -> dict[str, int]:
    """Bytes by row."""
    return {line.name: line.size_bytes for line in budget.lines}


def test_llama_70b_unquantised_does_not_fit_one_h200() -> None:
    """70,553,706,496 parameters × 2 bytes = 141.1 GB; of 139.80 GiB (150.1 GB), 0.9 are usable: 135.1 GB. No."""
    target = shape("llama-3.3-70b")
    one = stack(", max_context_tokens: 8192")
    budget = make_budget(one, target, None, ACCELERATORS["h200"])
    # embedding and output 2 × 128256 × 8192, a layer 2·8192² + 2·8192·1024 + 3·8192·28672 + 2·8192, last norm 8192
    assert (
        2 * 128256 * 8192 + 80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192) + 8192
        == 70_553_706_496
    )
    assert lines(budget)["weights"] == -141_107_412_992
    assert lines(budget)["usable"] == 135_098_196_295
    assert not budget.fits
    (problem,) = judge_budget(one, target, None, budget)
    assert (problem.severity, problem.rule) == ("error", "memory")
    assert "does not fit on one H200 141GB" in problem.message
    assert "FP8 weights" in problem.hint
    assert "engine.tensor_parallel 2" in problem.hint
    assert [line.arithmetic for line in budget.lines][:2] == [
        "139.80 GiB = 150,109,106,995 B × 0.9",
        "70,553,706,496 × 2 B",
    ]


def test_llama_70b_in_fp8_fits_one_h200_with_its_head() -> None:
    """Linear layers at 1 byte, embedding, output and norms at 2: 72.66 GB; with the head's 2.81 GB there is room."""
    target, draft = shape("llama-3.3-70b"), shape("eagle3-llama-70b-shape")
    one = stack(", quantization: fp8, max_context_tokens: 8192", draft=HEAD)
    budget = make_budget(one, target, draft, ACCELERATORS["h200"])
    assert lines(budget)["weights"] == -(68_451_041_280 + 2 * 2_102_665_216)
    # fc 8192·24576, attention of double width 16384·10240 + 8192², MLP 3·8192·28672, output 32000·8192, four norms
    head = 8192 * 24576 + 16384 * 10240 + 8192**2 + 3 * 8192 * 28672 + 32000 * 8192 + 4 * 8192
    assert lines(budget)["draft"] == -2 * head
    # 81 layers × 2 (K and V) × 8 heads × 128 × 2 bytes × 8192 tokens
    assert budget.request_bytes == 81 * 2 * 8 * 128 * 2 * 8192
    assert budget.full_requests == 20
    assert judge_budget(one, target, draft, budget) == []


def test_tensor_parallel_shares_weights_and_kv_heads() -> None:
    """Two accelerators hold half the weights and half the KV heads each; a draft on one is not shared."""
    target, draft = shape("llama-3.3-70b"), shape("eagle3-llama-70b-shape")
    ask = ", max_context_tokens: 8192"
    two = make_budget(stack(ask, ", tensor_parallel: 2", HEAD), target, draft, ACCELERATORS["h200"])
    assert lines(two)["weights"] == -141_107_412_992 // 2
    assert two.request_bytes == 81 * 2 * 4 * 128 * 2 * 8192
    alone = HEAD.replace("}", ", tensor_parallel: 1}")
    kept = make_budget(stack(ask, ", tensor_parallel: 2", alone), target, draft, ACCELERATORS["h200"])
    assert lines(kept)["draft"] == 2 * lines(two)["draft"]
    assert kept.request_bytes == (80 * 4 + 8) * 2 * 128 * 2 * 8192


def test_kv_heads_fewer_than_accelerators_are_copied() -> None:
    """Four KV heads on eight accelerators: each holds one, not a half."""
    eight = make_budget(
        stack(", max_context_tokens: 1024", ", tensor_parallel: 8"),
        shape("qwen3-coder-30b-a3b"),
        None,
        ACCELERATORS["h100"],
    )
    assert eight.request_bytes == 48 * 2 * 1 * 128 * 2 * 1024


def test_gpt_oss_keeps_only_the_window_of_sliding_layers() -> None:
    """Experts at 4 bits and a byte for each 32; 18 layers hold all tokens, 18 hold 128."""
    target = shape("gpt-oss-120b")
    budget = make_budget(stack(", max_context_tokens: 32768"), target, None, ACCELERATORS["h200"])
    experts = 36 * 128 * 3 * 2880 * 2880
    assert lines(budget)["weights"] == pytest.approx(
        -(experts * 0.53125 + 2 * (116_829_154_368 - experts)), abs=1
    )
    assert budget.request_bytes == 2 * 8 * 64 * 2 * (18 * 32768 + 18 * 128)


def test_fp8_kv_cache_halves_a_request() -> None:
    """One byte an element instead of two."""
    target = shape("llama-3.3-70b")
    wide = make_budget(stack(", max_context_tokens: 8192"), target, None, ACCELERATORS["h200"])
    narrow = make_budget(
        stack(", max_context_tokens: 8192, kv_cache_dtype: fp8"), target, None, ACCELERATORS["h200"]
    )
    assert wide.request_bytes == 2 * narrow.request_bytes


@pytest.mark.parametrize(
    ("name", "label", "billions"),
    [
        ("qwen3-coder-30b-a3b", "none", 61.06),
        ("gpt-oss-120b", "mxfp4", 65.25),
        ("llama-3.3-70b", "awq", 39.77),
    ],
)
def test_weights_of_the_named_targets(name: str, label: str, billions: float) -> None:
    """Bytes as their published checkpoints have them, within a hundredth."""
    assert weight_size(shape(name), label, 2).size_bytes / 1e9 == pytest.approx(billions, rel=0.01)


def test_headers_are_exact() -> None:
    """Where headers were read, their sum is the size; wider arithmetic doubles it."""
    head = read_folder(shared_path("models", "smollm2-135m-eagle3-start"))
    assert weight_size(head, "none", 2).size_bytes == 19_734_400
    assert weight_size(head, "none", 4).size_bytes == 2 * 19_734_400


def test_what_cannot_be_counted_is_not_guessed() -> None:
    """Latent attention and unknown formats need headers; with them, any format is known."""
    latent = replace(shape("llama-3.3-70b"), latent_kv_size=576)
    unknown = replace(shape("llama-3.3-70b"), quantization=Quantization("bitnet"))
    for facts, label in ((latent, "none"), (unknown, "bitnet")):
        with pytest.raises(FactsError):
            weight_size(facts, label, 2)
    known = replace(unknown, tensors={"w": TensorFacts("U8", (10,), 10)})
    assert weight_size(known, "bitnet", 2).size_bytes == 10


def test_a_context_too_long_for_one_request_is_refused_with_ways_out() -> None:
    """131,072 tokens need 43 GB of KV cache on an H100 pair that has less: a shorter context and FP8 KV are named."""
    target = shape("llama-3.3-70b")
    one = stack(", quantization: fp8", ", tensor_parallel: 2, memory_fraction: 0.6")
    budget = make_budget(one, target, None, ACCELERATORS["h100"])
    assert budget.kv_room_bytes > 0
    (problem,) = judge_budget(one, target, None, budget)
    assert problem.path == "target.max_context_tokens"
    assert "one request of 131,072 tokens needs 21.47 GB" in problem.message
    assert "max_context_tokens" in problem.hint
    assert "engine.tensor_parallel 4" in problem.hint


def test_fewer_full_requests_than_asked_is_a_warning() -> None:
    """The stack runs, and says how many full ones fit."""
    target = shape("llama-3.3-70b")
    many = stack(", quantization: fp8, max_context_tokens: 16384", ", max_running_requests: 64")
    budget = make_budget(many, target, None, ACCELERATORS["h200"])
    (problem,) = judge_budget(many, target, None, budget)
    assert (problem.severity, problem.rule) == ("warning", "memory-concurrency")
    assert problem.message.startswith(f"{budget.full_requests} of 64 requests")


def test_ways_out_can_be_gone() -> None:
    """Slices of a card do not share a target, and no context beyond the target's positions is advised."""
    one, small = stack(", max_context_tokens: 8192"), ACCELERATORS["h200-mig-3g.71gb"]
    target = shape("llama-3.3-70b")
    (problem,) = judge_budget(one, target, None, make_budget(one, target, None, small))
    assert "tensor_parallel" not in problem.hint
    longest = shape("qwen3-coder-30b-a3b")
    absurd = stack(", max_context_tokens: 10000000")
    (problem,) = judge_budget(absurd, longest, None, make_budget(absurd, longest, None, ACCELERATORS["h200"]))
    assert f"max_context_tokens {longest.max_positions // 1024 * 1024}" in problem.hint


@given(st.sampled_from(sorted(ACCELERATORS)), st.integers(16, 131072), st.sampled_from([1, 2, 4, 8]))
def test_the_hint_keeps_its_promise(name: str, context: int, parallel: int) -> None:
    """Kept tokens and requests agree with the room, and a suggested shorter context does fit."""
    target = shape("qwen3-coder-30b-a3b")
    one = stack(f", max_context_tokens: {context}", f", tensor_parallel: {parallel}")
    budget = make_budget(one, target, None, ACCELERATORS[name])
    assert budget.full_requests * budget.request_bytes <= max(budget.kv_room_bytes, 0)
    assert budget.kv_tokens >= budget.full_requests * context
    for problem in judge_budget(one, target, None, budget):
        _, found, rest = problem.hint.partition("It fits with: max_context_tokens ")
        if found:
            shorter = one.target.model_copy(
                update={"max_context_tokens": int(rest.split(";")[0].rstrip("."))}
            )
            assert make_budget(
                one.model_copy(update={"target": shorter}), target, None, ACCELERATORS[name]
            ).fits


def test_cpu_keeps_its_own_cache() -> None:
    """On CPU the KV cache is what the stack sets; without memory for it nothing fits."""
    target, on_cpu = (
        shape("qwen3-coder-30b-a3b"),
        stack(", max_context_tokens: 2048", ", cpu_kv_cache_gib: 2"),
    )
    budget = make_budget(on_cpu, target, None, this_machine(128 * GIB))
    assert budget.kv_room_bytes == 2 * GIB
    assert budget.fits
    small = make_budget(on_cpu, target, None, this_machine(16 * GIB))
    assert not small.fits
    assert "does not fit on this machine" in judge_budget(on_cpu, target, None, small)[0].message


def test_an_accelerator_that_is_shared_keeps_a_named_cache() -> None:
    """The rest of the engine's share is not counted as room; a cache that does not fit into it leaves none."""
    target, on = shape("llama-3.3-70b"), ACCELERATORS["h200"]
    more = ", quantization: fp8, max_context_tokens: 2048"
    named = make_budget(stack(more, ", kv_cache_gib: 16"), target, None, on)
    assert named.kv_room_bytes == 16 * GIB
    assert named.fits
    assert not make_budget(stack(more, ", kv_cache_gib: 120"), target, None, on).fits


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("H200", "h200"),
        ("nvidia-h200", "h200"),
        ("a100", "a100-80gb"),
        ("H100 80GB", "h100"),
        ("h200-mig-3g.71gb", "h200-mig-3g.71gb"),
        ("h200-3g.71gb", "h200-mig-3g.71gb"),
        ("mi300x", None),
    ],
)
def test_accelerator_names(written: str, meant: str | None) -> None:
    """Names as people and clusters write them are found; others are not guessed."""
    found = find_accelerator(written)
    assert (found.name if found else None) == meant
    assert nearest_accelerator("h200x") == "h200"


def test_slices_are_smaller_than_their_cards() -> None:
    """Every MIG slice is below its whole card, and every accelerator that is promised is there."""
    assert {
        "h100",
        "h200",
        "l40s",
        "a100-40gb",
        "a100-80gb",
        "h200-mig-1g.18gb",
        "h200-mig-7g.141gb",
        "h100-mig-1g.10gb",
    } <= set(ACCELERATORS)
    for name, one in ACCELERATORS.items():
        if "-mig-" in name:
            card = "a100-80gb" if name.startswith("a100") else name.partition("-")[0]
            assert one.memory_bytes < ACCELERATORS[card].memory_bytes


def test_two_engines_share_an_accelerator_by_halves() -> None:
    """Half of 139.80 GiB × 0.9 is left to each: a 30B in FP8 fits twice, a 70B does not, and that is the way out."""
    one = stack(draft=HEAD)
    both = load_stack_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: a/b, max_context_tokens: 8192, quantization: fp8}\n"
        f"draft: {HEAD}\nengine: {{device: cuda}}\npolicy: {{plain_engine: true}}\n",
        "x",
    )
    small, large, h200 = shape("qwen3-coder-30b-a3b"), shape("llama-3.3-70b"), ACCELERATORS["h200"]
    whole, half = (lines(make_budget(each, small, None, h200))["usable"] for each in (one, both))
    assert (whole, half) == (135_098_196_295, 67_549_098_147)
    assert make_budget(both, small, None, h200).fits
    budget = make_budget(both, large, None, h200)
    assert not budget.fits
    (problem,) = judge_budget(both, large, None, budget)
    assert problem.rule == "memory"
    assert "policy.plain_engine false" in problem.hint
    assert "half of it for the plain engine" in budget.lines[0].arithmetic


def test_two_engines_of_a_cpu_hold_everything_twice_but_the_draft() -> None:
    """Weights, working memory and the KV cache that is named; what does not fit twice is refused."""
    target = shape("qwen3-coder-30b-a3b")
    text = (
        "apiVersion: outrider/v1alpha1\ntarget: {model: a/b, max_context_tokens: 2048}\n"
        f"draft: {HEAD}\nengine: {{device: cpu}}\npolicy: {{plain_engine: %s}}\n"
    )
    alone, both = (load_stack_text(text % word, "x") for word in ("false", "true"))
    machine = this_machine(256 * GIB)
    once, twice = (lines(make_budget(each, target, None, machine)) for each in (alone, both))
    assert twice["plain"] == sum(once[name] for name in ("weights", "working", "KV cache"))
    assert twice == once | {"plain": twice["plain"]}
    assert make_budget(both, target, None, machine).fits
    tight = this_machine(96 * GIB)
    assert make_budget(alone, target, None, tight).fits
    assert not make_budget(both, target, None, tight).fits


def test_the_engines_of_a_stack() -> None:
    """One; or two with half of the memory each and no governor of their own, the second without a draft."""
    one = stack(", max_context_tokens: 8192", ", memory_fraction: 0.8, kv_cache_gib: 4", HEAD)
    assert engines_of(one) == (one,)
    asked = one.model_copy(update={"policy": one.policy.model_copy(update={"plain_engine": True})})
    own, plain = engines_of(asked)
    assert (own.engine.memory_fraction, own.engine.kv_cache_gib, own.draft) == (0.4, 4, one.draft)
    assert (plain.draft.method, plain.engine, plain.target) == ("none", own.engine, one.target)
    assert not own.policy.enabled
    assert engines_of(own) == (own,)
    assert memory_fraction(stack()) == 0.9

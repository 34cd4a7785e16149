"""Does the pair fit? Weights + draft + KV cache + working memory against one accelerator, with the arithmetic shown.

Refused: weights that do not fit, or no room for even one request of full context. Room for fewer full requests than may run
at once is a warning: the engine then makes them wait. Sizes are decimal GB (10⁹ bytes) unless they say GiB.

Source: KV cache as vLLM 0.32 allocates it (`vllm/v1/kv_cache_interface.py`: 2 × KV heads × head size × element size a layer and
token; a sliding layer keeps its window). Working memory is an estimate and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core.errors import Problem
from outrider.stack.accelerators import GIB, WHOLE_CARDS, Accelerator
from outrider.stack.facts import ModelFacts
from outrider.stack.models import Stack
from outrider.stack.plain_engine import memory_fraction, without_plain
from outrider.stack.weight_size import weight_size

GB = 10**9
DEFAULT_CPU_KV_GIB = 1.0
RUNTIME_BYTES = 2 * GIB
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: what, how many bytes on each accelerator, and how that was reckoned."""

    name: str
    size_bytes: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What the stack wants held at once: `context` tokens for each of `requests`."""

    context: int
    requests: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of one accelerator, of `tensor_parallel` that share the target."""

    accelerator: Accelerator
    tensor_parallel: int
    lines: tuple[Line, ...]
    kv_room_bytes: int
    request_bytes: int
    request_arithmetic: str
    ask: Ask

    @property
    def full_requests(self) -> int:
        """Requests of full context that fit at once."""
        return max(self.kv_room_bytes, 0) // self.request_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds, in requests of full context."""
        return max(self.kv_room_bytes, 0) * self.ask.context // self.request_bytes

    @property
    def fits(self) -> bool:
        """Whether at least one request of full context can be served."""
        return self.full_requests >= 1


def quantization_in_force(stack: Stack, target: ModelFacts) -> str:
    """How the target's weights lie in memory: the stack's word, else the checkpoint's."""
    return stack.target.quantization or target.quantization.label


def make_budget(stack: Stack, target: ModelFacts, draft: ModelFacts | None, on: Accelerator) -> Budget:
    """The budget of `stack` on accelerator `on`. Pure.

    Raises:
        FactsError: the weights' size cannot be known from these facts.
    """
    parallel = stack.engine.tensor_parallel
    ask = Ask(
        stack.target.max_context_tokens or target.max_positions or 4096, stack.engine.max_running_requests
    )
    lines = [*_usable(stack, on), *_weights(stack, target, draft), _working_memory(stack, target, on)]
    request, how = _kv_cache(stack, target, ask.context, parallel)
    if draft:
        more, draft_how = _kv_cache(stack, draft, ask.context, stack.draft.tensor_parallel or parallel)
        request, how = request + more, f"{how} + draft {draft_how}"
    key = "cpu_kv_cache_gib" if on.is_cpu else "kv_cache_gib"
    named = getattr(stack.engine, key) or (DEFAULT_CPU_KV_GIB if on.is_cpu else None)
    room = int(named * GIB) if named else sum(line.size_bytes for line in lines)
    if named:
        lines.append(Line("KV cache", -room, f"engine.{key}"))
        if on.is_cpu and stack.policy.plain_engine:
            lines.append(_plain_engine(lines))
        if sum(line.size_bytes for line in lines) < 0:
            room = 0
    return Budget(on, parallel, tuple(lines), room, max(request, 1), how, ask)


def _usable(stack: Stack, on: Accelerator) -> list[Line]:
    total = on.memory_bytes
    if on.is_cpu:
        return [Line("total", total, "as the system says")]
    fraction = memory_fraction(stack)
    shared = ", half of it for the plain engine" if stack.policy.plain_engine else ""
    return [
        Line("usable", int(total * fraction), f"{on.memory_gib:.2f} GiB = {total:,} B × {fraction:g}{shared}")
    ]


def _plain_engine(lines: list[Line]) -> Line:
    """The second engine of a CPU: all that the first holds, but for the draft. On an accelerator each has its half."""
    again = [line for line in lines if line.size_bytes < 0 and line.name != "draft"]
    return Line(
        "plain",
        sum(line.size_bytes for line in again),
        "policy.plain_engine: " + " + ".join(line.name for line in again),
    )


def _weights(stack: Stack, target: ModelFacts, draft: ModelFacts | None) -> list[Line]:
    parallel = stack.engine.tensor_parallel
    element = _ELEMENT_BYTES.get(stack.target.dtype, target.element_bytes)
    found = weight_size(target, quantization_in_force(stack, target), element)
    lines = [Line("weights", -(found.size_bytes // parallel), _shared(found.arithmetic, parallel))]
    if draft:
        ranks = stack.draft.tensor_parallel or parallel
        label = stack.draft.quantization or draft.quantization.label
        found = weight_size(draft, label, _ELEMENT_BYTES.get(stack.target.dtype, draft.element_bytes))
        lines.append(Line("draft", -(found.size_bytes // ranks), _shared(found.arithmetic, ranks)))
    return lines


def _shared(arithmetic: str, parallel: int) -> str:
    return f"({arithmetic}) / {parallel}" if parallel > 1 else arithmetic


def _working_memory(stack: Stack, target: ModelFacts, on: Accelerator) -> Line:
    """Activations of the largest batch, logits of a verify pass, graphs and runtime: an estimate on the safe side.

    Source of the batch sizes: `EngineArgs.get_batch_defaults`, vLLM 0.32.
    """
    given = stack.engine.extra_args.get(
        "max-num-batched-tokens", stack.engine.extra_args.get("max_num_batched_tokens")
    )
    default = 4096 if on.is_cpu else 8192 if on.memory_gib >= 70 else 2048
    tokens = given if isinstance(given, int) and given > 0 else default
    inner = target.experts.size * target.experts.per_token if target.experts else target.intermediate_size
    width = 4 * target.hidden_size + 3 * inner // stack.engine.tensor_parallel
    rows = stack.engine.max_running_requests * (stack.draft.length + 1)
    logits = rows * target.vocab_size * 4 * 2
    size = tokens * width * _ELEMENT_BYTES.get(stack.target.dtype, 2) + logits + RUNTIME_BYTES
    return Line("working", -size, f"estimate: {tokens:,} batched tokens, {rows} logit rows, 2 GiB runtime")


def _kv_cache(stack: Stack, facts: ModelFacts, context: int, parallel: int) -> tuple[int, str]:
    """KV cache of one request of `context` tokens on one accelerator. KV heads fewer than accelerators are copied."""
    element = 1 if stack.target.kv_cache_dtype == "fp8" else _ELEMENT_BYTES.get(stack.target.dtype, 2)
    if facts.latent_kv_size:
        per_token = facts.latent_kv_size * element
    else:
        per_token = 2 * -(-facts.kv_heads // parallel) * facts.head_dim * element
    size, parts = 0, []
    for kind, tokens in (("full", context), ("sliding", min(context, facts.sliding_window or context))):
        if layers := facts.layers_of(kind):
            size += layers * per_token * tokens
            kind_word = f"{kind} " if facts.layer_types else ""
            parts.append(f"{layers} {kind_word}layer{'s' * (layers > 1)} × {per_token:,} B × {tokens:,}")
    return size, " + ".join(parts)


def judge_budget(stack: Stack, target: ModelFacts, draft: ModelFacts | None, budget: Budget) -> list[Problem]:
    """What does not fit, and what to do."""
    ask, where = budget.ask, _where(budget)
    if not budget.fits:
        before_kv = budget.kv_room_bytes
        if before_kv <= 0:
            short = "weights and working memory need more than there is"
            if not budget.accelerator.is_cpu:
                short = f"weights and working memory need {-before_kv / GB:.2f} GB more than is usable"
            path = "target.model"
        else:
            short = (
                f"one request of {ask.context:,} tokens needs {budget.request_bytes / GB:.2f} GB of KV cache, "
                f"{before_kv / GB:.2f} GB are left"
            )
            path = "target.max_context_tokens"
        hint = _ways_out(stack, target, draft, budget) or "It needs a larger accelerator."
        return [Problem(f"does not fit on {where}: {short}", path, "memory", hint)]
    if budget.full_requests < ask.requests:
        message = (
            f"{budget.full_requests} of {ask.requests} requests at {ask.context:,} tokens each fit on {where}; "
            "when that many long ones come, the engine makes some wait or starts them again"
        )
        hint = f"Set max_running_requests to {budget.full_requests}, or a shorter max_context_tokens."
        return [Problem(message, "engine.max_running_requests", "memory-concurrency", hint, "warning")]
    return []


def _where(budget: Budget) -> str:
    count = f"{budget.tensor_parallel} × " if budget.tensor_parallel > 1 else "one "
    return budget.accelerator.label if budget.accelerator.is_cpu else f"{count}{budget.accelerator.label}"


def _ways_out(stack: Stack, target: ModelFacts, draft: ModelFacts | None, budget: Budget) -> str:
    """The changes that make it fit, each tried on its own."""
    on, ways = budget.accelerator, []
    if stack.policy.plain_engine and make_budget(without_plain(stack), target, draft, on).fits:
        ways.append("policy.plain_engine false")
    if quantization_in_force(stack, target) == "none" and not on.is_cpu:
        other = _with(stack, "target", quantization="fp8")
        tried = (
            make_budget(other, replace(target, tensors={}), draft, on) if not target.latent_kv_size else None
        )
        if tried and tried.fits:
            ways.append(f"FP8 weights ({tried.kv_tokens:,} KV tokens left)")
    if not on.is_cpu and "-mig-" not in on.name:  # slices of a card have no links to one another
        for parallel in (2, 4, 8):
            wide = _with(stack, "engine", tensor_parallel=budget.tensor_parallel * parallel)
            if make_budget(wide, target, draft, on).fits:
                ways.append(f"engine.tensor_parallel {budget.tensor_parallel * parallel}")
                break
    longest = min(budget.kv_tokens, target.max_positions or budget.kv_tokens)
    if budget.kv_room_bytes > 0 and (shorter := longest // 1024 * 1024) >= 1024:
        ways.append(f"max_context_tokens {shorter}")
    if on.is_cpu and budget.kv_room_bytes > 0:
        ways.append(f"engine.cpu_kv_cache_gib {budget.request_bytes / GIB:.1f}")
    if stack.target.kv_cache_dtype == "auto" and not on.is_cpu:
        halved = make_budget(_with(stack, "target", kv_cache_dtype="fp8"), target, draft, on)
        if halved.fits:
            ways.append("target.kv_cache_dtype fp8")
    larger = [card for card in WHOLE_CARDS if card.memory_gib > on.memory_gib and not on.is_cpu]
    fitting = [card.label for card in larger if make_budget(stack, target, draft, card).fits]
    if fitting:
        ways.append(f"an accelerator such as {fitting[-1]}")
    return f"It fits with: {'; '.join(ways)}." if ways else ""


def _with(stack: Stack, section: str, **changes: object) -> Stack:
    changed = getattr(stack, section).model_copy(update=changes)
    return stack.model_copy(update={section: changed})

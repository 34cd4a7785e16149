"""Names from older guides and from the engines' own command lines, with what they are called today.

Accepting an old key silently is the worst answer: vLLM read ``disable_by_batch_size`` and ignored it for a year, so people
believed that speculation was being switched off under load. Here each is refused, with its successor.

Source: vLLM's ``EngineArgs`` and ``SpeculativeConfig`` of 0.5 to 0.32 (`vllm/engine/arg_utils.py`,
`vllm/config/speculative.py`).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.core.errors import Problem
from outrider.stack.yaml_source import Document, Path, Text, walk_keys

MAX_LITERAL = 4096


@dataclass(frozen=True, slots=True)
class Successor:
    """Today's names: `stack` in this file ('' where there is none), `engine` in vLLM ('' where it is gone).

    `note`: what else to know, behind the hint.
    """

    stack: str
    engine: str = ""
    rule: str = "config-old-flags"
    note: str = ""

    def sentence(self, old: str) -> str:
        """What happened to `old`."""
        if not (self.stack or self.engine):
            return f"{old} no longer exists, and nothing took its place"
        today = f"vLLM calls it {self.engine} today" if self.engine else "vLLM dropped it"
        return f"{old} is gone: {today}"

    @property
    def hint(self) -> str:
        """What to write instead."""
        return f"{f'Write `{self.stack}`.' if self.stack else 'Take it out.'} {self.note}".strip()


_SCHEDULE = Successor(
    "draft.draft_length_by_batch: [[1, 8, 3], [9, 512, 0]]",
    "num_speculative_tokens_per_batch_size (inside --speculative-config)",
)
_IGNORED = Successor(_SCHEDULE.stack, _SCHEDULE.engine, "governor-ignored-key")

OLD: Mapping[str, Successor] = {
    "speculative-model": Successor("draft.model", "model (inside --speculative-config)"),
    "num-speculative-tokens": Successor(
        "draft.draft_length", "num_speculative_tokens (inside --speculative-config)"
    ),
    "speculative-disable-by-batch-size": _SCHEDULE,
    "disable-by-batch-size": _IGNORED,
    "speculative-draft-tensor-parallel-size": Successor(
        "draft.tensor_parallel", "draft_tensor_parallel_size (inside --speculative-config)"
    ),
    "speculative-model-quantization": Successor(
        "draft.quantization", "quantization (inside --speculative-config)"
    ),
    "speculative-max-model-len": Successor(
        "target.max_context_tokens", "max_model_len (inside --speculative-config)"
    ),
    "ngram-prompt-lookup-max": Successor(
        "draft.ngram.max_tokens", "prompt_lookup_max (inside --speculative-config)"
    ),
    "ngram-prompt-lookup-min": Successor(
        "draft.ngram.min_tokens", "prompt_lookup_min (inside --speculative-config)"
    ),
    "spec-decoding-acceptance-method": Successor("", "rejection_sample_method (inside --speculative-config)"),
    "typical-acceptance-sampler-posterior-threshold": Successor(""),
    "typical-acceptance-sampler-posterior-alpha": Successor(""),
    "speculative-disable-mqa-scorer": Successor(""),
    "disable-logprobs-during-spec-decoding": Successor(""),
    "use-v2-block-manager": Successor(""),
    "disable-log-requests": Successor(
        "",
        "enable-log-requests",
        note="Requests are not logged unless `enable-log-requests: true` asks for it.",
    ),
}

# Today's engine names in a place where the stack's own name belongs; under engine.extra_args the adapter judges them.
ENGINE_NAMES: Mapping[str, str] = {
    "num-speculative-tokens-per-batch-size": "draft.draft_length_by_batch",
    "draft-tensor-parallel-size": "draft.tensor_parallel",
    "prompt-lookup-max": "draft.ngram.max_tokens",
    "prompt-lookup-min": "draft.ngram.min_tokens",
    "parallel-drafting": "draft.method: p-eagle",
    "speculative-algorithm": "draft.method",
    "speculative-draft-model-path": "draft.model",
    "speculative-num-draft-tokens": "draft.draft_length",
    "gpu-memory-utilization": "engine.memory_fraction",
    "tensor-parallel-size": "engine.tensor_parallel",
    "max-model-len": "target.max_context_tokens",
    "max-num-seqs": "engine.max_running_requests",
    "served-model-name": "target.served_name",
}

SPECULATIVE_CONFIG = "speculative-config"
_FLAG = re.compile(r"--([a-z][a-z0-9_-]*)")
_METHODS = {"draft_model": "draft-model"}


def normal(name: str) -> str:
    """``--Speculative_Model`` -> ``speculative-model``"""
    return name.lstrip("-").replace("_", "-").lower()


def judge_old_names(document: Document) -> tuple[list[Problem], set[Path]]:
    """Problems about old names anywhere in the file, and the paths they are about (so that nobody reports them twice)."""
    problems: list[Problem] = []
    known: set[Path] = set()
    for path in walk_keys(document.value):
        name = normal(str(path[-1]))
        if _is_todays(path, name):
            continue
        if name in OLD:
            problems.append(_old(document, path, str(path[-1]), OLD[name]))
        elif name == SPECULATIVE_CONFIG:
            problems.extend(_judge_speculative_config(document, path))
        elif name in ENGINE_NAMES and "extra_args" not in path:
            message = f"{path[-1]} is the engine's name; here it is `{ENGINE_NAMES[name].partition(':')[0]}`"
            problems.append(
                document.problem(path, message, "config-engine-name", f"Write `{ENGINE_NAMES[name]}`.")
            )
        else:
            continue
        known.add(path)
    for text in document.texts:
        problems.extend(_flags_in(document, text))
    return problems, known


def _is_todays(path: Path, name: str) -> bool:
    """Inside an engine's speculative config this one flag of old is the name of today; the whole block is refused anyway."""
    inside = len(path) > 1 and normal(str(path[-2])) == SPECULATIVE_CONFIG
    return inside and (name == "num-speculative-tokens" or name in ENGINE_NAMES)


def _old(document: Document, path: Path, name: str, successor: Successor) -> Problem:
    return document.problem(path, successor.sentence(name), successor.rule, successor.hint)


def _flags_in(document: Document, text: Text) -> Iterator[Problem]:
    """Old flags inside a string, a command line pasted in for example."""
    for match in _FLAG.finditer(text.value):
        successor = OLD.get(normal(match[1]))
        if successor:
            place = text.place_of(match.start())
            yield document.problem(
                text.path, successor.sentence(match[0]), successor.rule, successor.hint, place
            )


def _judge_speculative_config(document: Document, path: Path) -> Iterator[Problem]:
    """`speculative_config` does not belong into a stack; say what to write, and where its text goes wrong."""
    text = next((text for text in document.texts if text.path == path), None)
    value: object = document.value
    for part in path:
        value = value[part]  # type: ignore[index]  # the path was walked a moment ago
    if text is None:
        yield document.problem(
            path, "the draft is described by `draft:` here", "config-engine-name", _advice(value)
        )
        return
    try:
        parsed: object = json.loads(text.value)
    except (json.JSONDecodeError, RecursionError) as error:
        index = error.pos if isinstance(error, json.JSONDecodeError) else 0
        parsed = _python_literal(text.value)
        place = text.place_of(index)
        character = f"character {index + 1} ({text.value[index : index + 1]!r})"
        if parsed is None:
            message = f"not JSON: {character} is wrong"
            yield document.problem(
                path, message, "config-python-repr", "Describe the draft by `draft:`.", place
            )
            return
        message = f"this is how Python prints it, not JSON: the first wrong one is {character}; JSON is {json.dumps(parsed)}"
        yield document.problem(path, message, "config-python-repr", _advice(parsed), place)
    else:
        yield document.problem(
            path, "the draft is described by `draft:` here", "config-engine-name", _advice(parsed)
        )
    for inner in walk_keys(parsed):
        successor = OLD.get(normal(str(inner[-1])))
        if successor and normal(str(inner[-1])) != "num-speculative-tokens":
            place = text.place_of(max(text.value.find(str(inner[-1])), 0))
            yield document.problem(
                path, successor.sentence(str(inner[-1])), successor.rule, successor.hint, place
            )


def _python_literal(text: str) -> dict[str, object] | None:
    if len(text) > MAX_LITERAL:
        return None
    try:
        value = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _advice(config: object) -> str:
    """The `draft:` block that says what an engine's speculative config says, in one line of YAML."""
    if not isinstance(config, dict):
        return "Describe the draft by `draft:`."
    method = str(config.get("method", "ngram"))
    if method == "eagle3" and config.get("parallel_drafting"):
        method = "p-eagle"
    parts = [f"method: {_METHODS.get(method, method)}"]
    for theirs, ours in (
        ("model", "model"),
        ("num_speculative_tokens", "draft_length"),
        ("num_speculative_tokens_per_batch_size", "draft_length_by_batch"),
        ("draft_tensor_parallel_size", "tensor_parallel"),
    ):
        if theirs in config:
            parts.append(f"{ours}: {json.dumps(config[theirs])}")
    return f"Write `draft: {{{', '.join(parts)}}}`."

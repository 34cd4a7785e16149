"""What aiperf is given: one conversation a session in a fixed order, a run's configuration, a tokenizer that counts nothing.

Everything is laid out beforehand, so that the order is ours: first the warm-up's conversations, each used once, then the counted
ones, so many that their turns are the plan's requests exactly. aiperf goes through the file in order and wraps around, and its
sampler goes on where the warm-up ended; a file without repeats makes both harmless.

Source: aiperf 0.13.0 ``dataset/loader/multi_turn.py`` (a leading system turn is sent with every turn of its conversation),
``config/phases.py`` (`sessions`), ``config/loader/env_vars.py`` (``${NAME}`` is taken from the environment).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from outrider.core.errors import MeasurementError
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt

KEY_VARIABLE = "OUTRIDER_LOAD_KEY"
INPUT, CONFIG, TOKENIZER, OUTPUT = "input.jsonl", "aiperf.yaml", "tokenizer", "aiperf"
SAMPLED_TEMPERATURE = 1.0


@dataclass(frozen=True, slots=True)
class Conversations:
    """Lines of the input file, and which prompt each counted conversation is."""

    lines: tuple[dict[str, object], ...]
    prompt_ids: Mapping[str, str]
    warmups: int
    counted: int


def check_plan(plan: LoadPlan) -> None:
    """Raises MeasurementError for a plan that cannot be run."""
    if not plan.prompts:
        raise MeasurementError("the prompt set is empty", hint="Name a prompt set with at least one prompt.")
    for prompt in plan.prompts:
        if not prompt.turns or not all(turn.strip() for turn in prompt.turns):
            raise MeasurementError(
                f"prompt {prompt.id} has an empty turn", hint="Leave it out, or give every turn a text."
            )
        if not all(_is_unicode(text) for text in (*prompt.turns, prompt.system or "")):
            raise MeasurementError(
                f"prompt {prompt.id} has half a character (a lone surrogate), which no server takes",
                hint="Leave it out, or mend its text.",
            )
    if min(plan.concurrency, plan.requests, plan.output_tokens) < 1 or plan.warmup_requests < 0:
        raise MeasurementError(
            f"nothing to send: concurrency {plan.concurrency}, {plan.requests} requests after {plan.warmup_requests} of "
            f"warm-up, {plan.output_tokens} output tokens",
            hint="All but the warm-up must be at least 1.",
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def conversations(plan: LoadPlan) -> Conversations:
    """The plan's requests as conversations, in the order they are to be started.

    Warm-up takes first turns only, every second one at another temperature (greedy beside sampled): both ways through the
    engine are warm. The last counted conversation is cut short where its turns would be more than the plan's requests.
    """
    names: dict[str, str] = {}
    lines = []
    for index, prompt in zip(range(plan.warmup_requests), cycle(plan.prompts), strict=False):
        other = 0.0 if plan.temperature else SAMPLED_TEMPERATURE
        temperature = other if index % 2 else plan.temperature
        lines.append(_conversation(f"warm-up-{index:06}", prompt, 1, plan, temperature))
    left = plan.requests
    for index, prompt in enumerate(cycle(plan.prompts)):
        if left <= 0:
            break
        name = f"counted-{index:06}"
        turns = min(left, len(prompt.turns))
        names[name] = prompt.id
        lines.append(_conversation(name, prompt, turns, plan, plan.temperature))
        left -= turns
    return Conversations(tuple(lines), names, plan.warmup_requests, len(names))


def _conversation(
    name: str, prompt: Prompt, turns: int, plan: LoadPlan, temperature: float
) -> dict[str, object]:
    extra: dict[str, object] = {"temperature": temperature}
    if plan.fixed_length:
        extra["ignore_eos"] = True
    system = [{"role": "system", "text": prompt.system}] if prompt.system else []
    user = [
        {"text": text, "output_length": plan.output_tokens, "extra": extra} for text in prompt.turns[:turns]
    ]
    return {"session_id": name, "turns": [*system, *user]}


def configuration(plan: LoadPlan, made: Conversations) -> dict[str, object]:
    """aiperf's configuration: where, what, how much. The key's place holds a variable's name, never the key."""
    endpoint: dict[str, object] = {
        "url": plan.url,
        "type": "chat",
        "streaming": True,
        "timeout": plan.timeout_s,
    }
    if plan.api_key is not None:
        endpoint["api_key"] = f"${{{KEY_VARIABLE}}}"
    benchmark: dict[str, object] = {
        "model": plan.model,
        "endpoint": endpoint,
        "dataset": {"type": "file", "path": INPUT, "format": "multi_turn", "sampling": "sequential"},
    }
    if made.warmups:
        benchmark["warmup"] = _phase(made.warmups, plan.concurrency)
    benchmark["profiling"] = _phase(made.counted, plan.concurrency)
    return {"schemaVersion": "2.0", "randomSeed": 0, "benchmark": benchmark}


def _phase(sessions: int, concurrency: int) -> dict[str, object]:
    return {"type": "concurrency", "sessions": sessions, "concurrency": min(concurrency, sessions)}


def write_input(plan: LoadPlan, folder: Path) -> Conversations:
    """Write all of it into `folder`. Raises MeasurementError (see `check_plan`)."""
    check_plan(plan)
    made = conversations(plan)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / INPUT).open("w", encoding="utf-8") as sink:
        sink.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in made.lines)
    (folder / CONFIG).write_text(json.dumps(configuration(plan, made), indent=1))  # JSON is YAML
    (folder / TOKENIZER).mkdir(exist_ok=True)
    for name, content in _tokenizer_files():
        (folder / TOKENIZER / name).write_text(json.dumps(content))
    return made


def _tokenizer_files() -> Iterator[tuple[str, dict[str, object]]]:
    """A tokenizer with one token. aiperf wants one for its data set, though counts come from the server's usage."""
    unknown = "<unk>"
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    yield (
        "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": 0, "content": unknown, **flags, "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": {unknown: 0}, "unk_token": unknown},
        },
    )
    names = {"unk_token": unknown, "eos_token": unknown}
    yield "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names}

"""The pair manifest of a head that was trained here: what it is made of, and what the engine accepted of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml
from pydantic import JsonValue

from outrider.core.files import put_whole
from outrider.core.provenance import provenance
from outrider.stack.content import part_of
from outrider.stack.digests import Digester
from outrider.stack.find_facts import Source, find_both
from outrider.stack.head_rows import MANIFEST
from outrider.stack.manifest import PairManifest, ServedAcceptance, write_manifest
from outrider.stack.models import Draft, Stack
from outrider.stack.pair_manifest import references, shape_of
from outrider.stack.weights_cache import Progress
from outrider.train.job import NOT_SETTINGS, read_job
from outrider.train.process import JOB, TrainSummary
from outrider.train.rows import unwritable
from outrider.train.run import Data
from outrider.train.wish import Wish, read_record

STACK = "stack.yaml"


def training_facts(
    wish: Wish,
    data: Data,
    summary: TrainSummary,
    command: Sequence[str],
    created: str,
) -> dict[str, JsonValue]:
    """How the head was made, for `pair.json`: data with what was dropped, settings, figures of the training, versions."""
    prompts, answers = data.prompts, data.answers
    record = read_record(wish) or {}  # another head's rows were answered as that was told
    found = {
        "data": {
            "conversations": answers.kept,
            "tokens": answers.tokens,
            "answer_tokens": answers.answer_tokens,
            "dropped": Counter(prompts.dropped) + Counter(answers.dropped),
            "sources": list(prompts.sources),
            "answer_temperature": record.get("temperature", wish.answers.temperature),
        },
        "settings": read_job(wish.work / JOB).model_dump(mode="json", exclude=set(NOT_SETTINGS)),
        "training": asdict(summary),
        "provenance": provenance(command, created),
    }
    plain: dict[str, JsonValue] = json.loads(json.dumps(found))  # tuples are lists, as they will be read
    return plain


def write_pair(
    stack: Stack,
    wish: Wish,
    served: Sequence[ServedAcceptance],
    facts: dict[str, JsonValue],
    note: Progress,
) -> PairManifest:
    """`pair.json` beside the head of `stack` (the one with the head as its draft).

    Raises:
        StackError, WeightsError: a half that cannot be read or hashed.
    """
    digester = Digester(note)
    target, draft = (part_of(one, digester) for one in references(stack))
    found = find_both(stack, Source())
    shape = shape_of(found.target, found.draft) if found.target and found.draft else None
    manifest = PairManifest(target, draft, wish.method, shape, wish.draft_length, tuple(served), facts)
    write_manifest(manifest, Path(wish.out) / MANIFEST)
    return manifest


def write_stack(stack: Stack, wish: Wish) -> Path:
    """``stack.yaml`` beside the head: the stack with this head as its draft, which `outrider serve` takes as it is.

    The head is named relative to the file, so that the folder can be moved. Raises TrainingError.
    """
    path = wish.out / STACK
    draft = Draft(method=wish.method, model="./", draft_length=wish.draft_length)
    value = stack.model_copy(update={"draft": draft}).model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    text = "# The pair that `outrider train` made; what the engine accepted of it: pair.json.\n"
    text += yaml.safe_dump(value, sort_keys=False)
    put_whole(path, text, lambda error: unwritable(path, error))
    return path

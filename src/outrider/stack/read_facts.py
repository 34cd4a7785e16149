"""Facts out of files on this machine: a model's folder, or a bare `config.json`. Weights are not read, only their headers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from outrider.stack.facts import FactsError, ModelFacts, TensorFacts, TokenizerFacts, facts_from_config
from outrider.stack.head_rows import is_stored, whole_tensors
from outrider.stack.safetensors_header import is_all_zero, read_tensors

MAX_CONFIG_BYTES = 4 * 1024 * 1024
MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model", "tiktoken.model")
_PARSED_TOKENIZERS = frozenset({"tokenizer.json", "vocab.json"})


def read_folder(folder: Path) -> ModelFacts:
    """Facts of a model's folder: config, safetensors headers, tokenizer.

    Raises:
        FactsError: a file is missing, too large, cut short or not what its name says.
    """
    try:
        config = folder / "config.json"
        if not config.is_file():
            raise FactsError(f"{folder} has no config.json")
        facts = facts_from_config(parse_json(_read(config, MAX_CONFIG_BYTES), str(config)), str(folder))
        facts = replace(facts, tensors=_tensors_in(folder), tokenizer=_tokenizer_in(folder))
        if facts.head and facts.tensor("d2t"):
            facts = replace(facts, head=replace(facts.head, d2t_all_zero=is_all_zero(folder, "d2t")))
    except OSError as error:
        raise FactsError(f"{folder}: {error.strerror or error}") from error
    return facts


def read_config_file(path: Path) -> ModelFacts:
    """Facts of a bare config file. Raises FactsError."""
    try:
        return facts_from_config(parse_json(_read(path, MAX_CONFIG_BYTES), str(path)), str(path))
    except OSError as error:
        raise FactsError(f"{path}: {error.strerror or error}") from error


def parse_json(raw: bytes, name: str) -> Mapping[str, object]:
    """A JSON object. Raises FactsError."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FactsError(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FactsError(f"{name} is not a JSON object")
    return value


def parse_tokenizer(raw: bytes, name: str) -> TokenizerFacts:
    """Which text stands behind which id. Formats that are not JSON give a fingerprint of the file alone. Raises FactsError."""
    base = Path(name).name
    if base not in _PARSED_TOKENIZERS:
        return TokenizerFacts(f"{base}:{hashlib.sha256(raw).hexdigest()}")
    parsed = parse_json(raw, name)
    tokens = _vocabulary(parsed) if base == "tokenizer.json" else _by_id(parsed)
    if not tokens:
        raise FactsError(f"{name} names no tokens")
    digest = hashlib.sha256()
    for number in sorted(tokens):
        text = tokens[number].encode("utf-8", "surrogatepass")
        digest.update(b"%d %d " % (number, len(text)) + text)
    return TokenizerFacts(digest.hexdigest(), tokens)


def _vocabulary(parsed: Mapping[str, object]) -> dict[int, str]:
    """Source: tokenizers' `tokenizer.json`: `model.vocab` maps text to id (Unigram: a list of pairs), plus `added_tokens`."""
    model = parsed.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):
        tokens = {i: str(entry[0]) for i, entry in enumerate(vocab) if isinstance(entry, list) and entry}
    else:
        tokens = _by_id(vocab if isinstance(vocab, dict) else {})
    added = parsed.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            tokens[entry["id"]] = str(entry.get("content", ""))
    return tokens


def _by_id(vocab: Mapping[str, object]) -> dict[int, str]:
    return {number: text for text, number in vocab.items() if isinstance(number, int)}


def _tensors_in(folder: Path) -> Mapping[str, TensorFacts]:
    return whole_tensors(folder) if is_stored(folder) else read_tensors(folder)


def _tokenizer_in(folder: Path) -> TokenizerFacts | None:
    for name in TOKENIZER_FILES:
        path = folder / name
        if path.is_file():
            return parse_tokenizer(_read(path, MAX_TOKENIZER_BYTES), str(path))
    return None


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise FactsError(f"{path} is larger than {limit // 2**20} MiB: not what its name says")
    return raw

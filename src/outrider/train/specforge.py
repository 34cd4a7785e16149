"""`outrider train --backend specforge`: a folder with all that SpecForge 0.2.0 needs to train the head, instead of our trainer.

::

    OUT/prompts.jsonl      the rows: token ids and loss mask, as the target wrote them (never text, never tokenised anew)
    OUT/vocabulary.json    the draft's vocabulary
    OUT/draft.json         the draft's config
    OUT/run.yaml           what `specforge train --config` reads
    OUT/target/            an index of the weights, where the target has none
    OUT/prepare.py         run there: vocabulary map, links to the target, its states of the rows
    OUT/launch.sh          everything in order; leaves OUT/head
    OUT/README.txt         what to run where, and how the head comes back

Nothing of SpecForge is imported here; its files and options are those of the version named, see `specforge_config`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import yaml

from outrider.core.errors import TrainingError
from outrider.stack.facts import FactsError
from outrider.stack.read_facts import parse_json, read_folder
from outrider.train.specforge_config import (
    DRAFT_CONFIG,
    PROMPTS,
    RUN_CONFIG,
    VIEW,
    draft_config,
    run_config,
)
from outrider.train.specforge_launch import (
    PREPARE,
    VOCABULARY,
    SpecForgeFiles,
    commands,
    counts_in_words,
    launch_script,
    readme,
)
from outrider.train.specforge_rows import AnswerRow, draft_vocabulary, write_rows
from outrider.train.specforge_target import (
    SpecForgeSettings,
    SpecForgeTarget,
    mask_token,
    refuse_settings,
    refuse_target,
)

__all__ = ["AnswerRow", "SpecForgeFiles", "SpecForgeSettings", "write_specforge"]

LAUNCH, README = "launch.sh", "README.txt"
INDEX = "model.safetensors.index.json"
PREPARE_SCRIPT = Path(__file__).parents[1] / "data" / "specforge_prepare.py"


def write_specforge(
    rows: Iterable[AnswerRow] | Path,
    target_folder: Path,
    target_name: str,
    out: Path,
    settings: SpecForgeSettings,
) -> SpecForgeFiles:
    """Write the folder `out` for SpecForge: whole, or not at all. A folder that holds the same already stays as it is.

    `rows`: OUT/work/rows.jsonl or its rows. `target_folder`: the target here, for its facts. `target_name`: what the machine that
    trains calls it: a hub id, or the whole path of a folder there.

    Raises:
        TrainingError: SpecForge cannot train this, a row is of another target, no row is left, `out` holds something else, or it
            cannot be written.
    """
    refuse_settings(settings)
    target = _read_target(target_folder, target_name)
    refuse_target(target)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        files = _write(rows, target, settings, beside)
        return _put(files, out)
    except OSError as error:
        raise TrainingError(
            f"cannot write {out}: {error.strerror or error}", hint="Free space there, or name another folder."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _read_target(folder: Path, name: str) -> SpecForgeTarget:
    try:
        facts = read_folder(folder)
        config = parse_json((folder / "config.json").read_bytes(), "config.json")
        indexes = list(folder.glob("*.index.json"))
        weights = tuple(sorted(path.name for path in folder.glob("*.safetensors")))
        return SpecForgeTarget(name, facts, config, _chat_template(folder), weights, len(indexes) == 1)
    except (FactsError, OSError) as error:
        raise TrainingError(
            f"the target cannot be read: {error}", hint="Name the folder of the target's weights."
        ) from error


def _chat_template(folder: Path) -> str:
    """The target's chat template: a file of its own, or in its tokenizer's config (where there may be several)."""
    if (path := folder / "chat_template.jinja").is_file():
        return path.read_text(encoding="utf-8")
    if not (path := folder / "tokenizer_config.json").is_file():
        return ""
    return json.dumps(parse_json(path.read_bytes(), path.name).get("chat_template") or "", ensure_ascii=False)


def _write(
    rows: Iterable[AnswerRow] | Path, target: SpecForgeTarget, settings: SpecForgeSettings, folder: Path
) -> SpecForgeFiles:
    vocab_size = target.facts.vocab_size
    count = write_rows(rows, folder / PROMPTS, vocab_size=vocab_size, max_length=settings.max_length)
    if not count.rows:
        raise TrainingError(
            f"no row is left for SpecForge ({counts_in_words(count.dropped) or 'there was none'})",
            hint="Write answers first, or raise max_length.",
        )
    ids, coverage = draft_vocabulary(count.answers, settings.draft_vocab_size, vocab_size)
    token = mask_token(target, settings, count.seen)
    vocabulary = {
        "draft_vocab_size": len(ids),
        "target_vocab_size": vocab_size,
        "coverage": coverage,
        "ids": ids,
    }
    (folder / VOCABULARY).write_text(json.dumps(vocabulary) + "\n", encoding="utf-8")
    (folder / DRAFT_CONFIG).write_text(
        json.dumps(draft_config(target, settings, token), indent=2) + "\n", encoding="utf-8"
    )
    (folder / RUN_CONFIG).write_text(
        yaml.safe_dump(run_config(target, settings, token), sort_keys=False), encoding="utf-8"
    )
    if not target.index:
        (folder / VIEW).mkdir()
        index = {
            "metadata": {},
            "weight_map": dict.fromkeys(sorted(target.facts.tensors), target.weight_files[0]),
        }
        (folder / VIEW / INDEX).write_text(json.dumps(index) + "\n", encoding="utf-8")
    shutil.copyfile(PREPARE_SCRIPT, folder / PREPARE)
    steps = commands(target, settings)
    (folder / LAUNCH).write_text(launch_script(steps), encoding="utf-8")
    (folder / LAUNCH).chmod(0o755)
    answered = sum(count.answers.values())
    files = SpecForgeFiles(folder, steps, count.rows, count.tokens, answered, coverage, dict(count.dropped))
    (folder / README).write_text(readme(files, target, settings), encoding="utf-8")
    return files


def _put(files: SpecForgeFiles, out: Path) -> SpecForgeFiles:
    """Move the finished folder into place; one that holds the same files (and what SpecForge left there) is kept."""
    put = replace(files, folder=out)
    if not out.exists():
        files.folder.rename(out)
        return put
    written = [path.relative_to(files.folder) for path in files.folder.rglob("*") if path.is_file()]
    other = [str(name) for name in sorted(written) if not _same(files.folder / name, out / name)]
    if other:
        raise TrainingError(
            f"{out} is there already and holds something else: {', '.join(other)}",
            hint="Name another folder, or take that one away first.",
        )
    return put


def _same(one: Path, other: Path) -> bool:
    return (
        other.is_file()
        and one.stat().st_size == other.stat().st_size
        and one.read_bytes() == other.read_bytes()
    )

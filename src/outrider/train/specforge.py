"""`outrider train --backend specforge`: a folder with all that SpecForge 0.2.0 needs to train the head, instead of our trainer.

::

    OUT/prompts.jsonl      the rows: token ids and loss mask, as the target wrote them (never text, never tokenised anew)
    OUT/vocabulary.json    the draft's vocabulary
    OUT/draft.json         the draft's config
    OUT/run.yaml           what `specforge train --config` reads
    OUT/target/            an index of the weights, where the target has none; gets links to the target's files
    OUT/steps.py           run there: vocabulary map, those links, the target's states of the rows; the exported head's name
    OUT/launch.sh          everything in order; leaves OUT/head
    OUT/README.txt         what to run where, and how the head comes back

Nothing of SpecForge is imported here; its files and options are those of the version named, see `specforge_config`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from outrider.core.errors import TrainingError
from outrider.stack.facts import FactsError
from outrider.stack.read_facts import parse_json, read_folder
from outrider.train.rows import Row, read_rows
from outrider.train.specforge_config import (
    DRAFT_CONFIG,
    PROMPTS,
    RUN_CONFIG,
    VIEW,
    draft_config,
    run_config,
)
from outrider.train.specforge_launch import (
    STEPS,
    VOCABULARY,
    SpecForgeFiles,
    commands,
    counts_in_words,
    launch_script,
    readme,
)
from outrider.train.specforge_rows import RowCount, write_rows
from outrider.train.specforge_target import (
    SpecForgeSettings,
    SpecForgeTarget,
    is_hub_id,
    refuse_settings,
    refuse_target,
)
from outrider.train.vocabulary import choose_mask_token, choose_vocabulary

__all__ = ["SpecForgeFiles", "SpecForgeSettings", "write_specforge"]

LAUNCH, README = "launch.sh", "README.txt"
INDEX = "model.safetensors.index.json"
STEPS_SCRIPT = Path(__file__).parents[1] / "data" / "specforge_steps.py"


def write_specforge(
    rows: Iterable[Row] | Path,
    target_folder: Path,
    target_name: str,
    out: Path,
    settings: SpecForgeSettings,
    *,
    revision: str = "",
) -> SpecForgeFiles:
    """Write the folder `out` for SpecForge: whole, or not at all. A folder that holds the same already stays as it is.

    `rows`: OUT/work/rows.jsonl or its rows. `target_folder`: the target on this machine, for its facts. `target_name`: its hub
    id, at `revision`; anything else means that SpecForge is to read it from `target_folder`.

    Raises:
        TrainingError: SpecForge cannot train this, a row is of another target, no row is left, `out` holds something else, or it
            cannot be written.
    """
    refuse_settings(settings)
    name = target_name if is_hub_id(target_name) else str(target_folder.absolute())
    target = _read_target(target_folder, name, revision)
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


def _read_target(folder: Path, name: str, revision: str) -> SpecForgeTarget:
    try:
        return SpecForgeTarget(
            name=name,
            revision=revision,
            facts=read_folder(folder),
            config=_json(folder / "config.json"),
            chat_template=_chat_template(folder),
            weight_files=tuple(sorted(path.name for path in folder.glob("*.safetensors"))),
            index=len(list(folder.glob("*.index.json"))) == 1,
            special=_special_tokens(_json(folder / "tokenizer.json").get("added_tokens")),
        )
    except (FactsError, OSError) as error:
        raise TrainingError(
            f"the target cannot be read: {error}", hint="Name the folder of the target's weights."
        ) from error


def _json(path: Path) -> Mapping[str, object]:
    return parse_json(path.read_bytes(), path.name) if path.is_file() else {}


def _special_tokens(added: object) -> tuple[int, ...]:
    entries = added if isinstance(added, list) else []
    ids = (one.get("id") for one in entries if isinstance(one, dict) and one.get("special"))
    return tuple(token for token in ids if isinstance(token, int))


def _chat_template(folder: Path) -> str:
    """The target's chat template: a file of its own, or in its tokenizer's config (where there may be several)."""
    if (path := folder / "chat_template.jinja").is_file():
        return path.read_text(encoding="utf-8")
    return json.dumps(_json(folder / "tokenizer_config.json").get("chat_template") or "", ensure_ascii=False)


def _write(
    rows: Iterable[Row] | Path, target: SpecForgeTarget, settings: SpecForgeSettings, folder: Path
) -> SpecForgeFiles:
    size = target.facts.vocab_size
    source = read_rows(rows) if isinstance(rows, Path) else rows
    count = write_rows(source, folder / PROMPTS, vocab_size=size, max_length=settings.max_length)
    if not count.rows:
        raise TrainingError(
            f"no row is left for SpecForge ({counts_in_words(count.dropped) or 'there was none'})",
            hint="Write answers first, or raise max_length.",
        )
    vocabulary = choose_vocabulary(count.answers, settings.draft_vocab_size, size)
    vocabulary.write(folder / VOCABULARY)
    token = _mask_token(target, settings, count)
    draft = draft_config(target, settings, len(vocabulary.ids), token)
    (folder / DRAFT_CONFIG).write_text(json.dumps(draft, indent=2) + "\n", encoding="utf-8")
    run = yaml.safe_dump(run_config(target, settings, token), sort_keys=False)
    (folder / RUN_CONFIG).write_text(run, encoding="utf-8")
    if not target.index:
        (folder / VIEW).mkdir()
        where = dict.fromkeys(sorted(target.facts.tensors), target.weight_files[0])
        index = json.dumps({"metadata": {}, "weight_map": where})
        (folder / VIEW / INDEX).write_text(index + "\n", encoding="utf-8")
    shutil.copyfile(STEPS_SCRIPT, folder / STEPS)
    steps = commands(target, settings)
    (folder / LAUNCH).write_text(launch_script(steps), encoding="utf-8")
    (folder / LAUNCH).chmod(0o755)
    files = SpecForgeFiles(
        folder=folder,
        commands=steps,
        rows=count.rows,
        tokens=count.seen.total(),
        answer_tokens=count.answers.total(),
        coverage=vocabulary.coverage,
        dropped=dict(count.dropped),
    )
    (folder / README).write_text(readme(files, target, settings), encoding="utf-8")
    return files


def _mask_token(target: SpecForgeTarget, settings: SpecForgeSettings, count: RowCount) -> int | None:
    if settings.method == "eagle3":
        return None
    size = target.facts.vocab_size
    named = target.facts.tokenizer.tokens if target.facts.tokenizer else {}
    token = settings.mask_token
    if token is None:
        return choose_mask_token(count.seen, max(named, default=size - 1) + 1, size, target.special)
    if 0 <= token < size:
        return token
    raise TrainingError(
        f"mask_token {token} is no token of {target.name}", hint=f"Name one from 0 to {size - 1:,}."
    )


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

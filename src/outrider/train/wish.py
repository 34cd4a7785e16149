"""What somebody wants trained, and whether a folder holds the beginning of just that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outrider.core.errors import TrainingError
from outrider.core.files import put_whole
from outrider.measure.prompts import PromptSet
from outrider.measure.served_acceptance import ServedSettings
from outrider.train.answers import AnswerSettings
from outrider.train.job import Method
from outrider.train.prompts import PromptSettings
from outrider.train.rows import unwritable

RECORD = "data.json"


@dataclass(frozen=True, slots=True)
class Wish:
    """`conversations` are written and answered, `concurrency` of them at a time (None: what suits the device).

    `settings` are members of `TrainJob` other than its method and paths. `sets` are held-out prompts: none of them is trained on,
    and their served acceptance at `draft_length` goes into the manifest. `rows_of`: another head's folder whose conversations are
    trained on, in place of new ones; `said` names, as its `data.json` does, what of them was asked for and must be so.
    """

    method: Method
    out: Path
    conversations: int
    prompts: PromptSettings = field(default_factory=PromptSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    settings: Mapping[str, object] = field(default_factory=dict)
    sets: Sequence[PromptSet] = ()
    draft_length: int = 3
    served: ServedSettings = field(default_factory=ServedSettings)
    concurrency: int | None = None
    rows_of: Path | None = None
    said: frozenset[str] = frozenset()

    @property
    def work(self) -> Path:
        """Folder of everything but the head."""
        return self.out / "work"

    @property
    def data(self) -> Path:
        """Folder of prompts and answers."""
        return (self.rows_of or self.out) / "work"


def keep_record(wish: Wish, target: Mapping[str, str]) -> None:
    """Note in the folder what its prompts and answers are made of, or hold it against the note that is there.

    `target`: content ids of the target. Method and training settings are not part of it: two heads may share their data.

    Raises:
        TrainingError: the folder was begun with other data; which settings differ is said.
    """
    path, asked = wish.data / RECORD, {"conversations": wish.conversations, **_data(wish)}
    if wish.rows_of:
        asked = {name: asked[name] for name in ("held_out", *wish.said)}
    mine = json.loads(json.dumps({"target": dict(target), **asked}))
    before = read_record(wish)
    if before is None:
        put_whole(
            path, json.dumps(mine, indent=1, sort_keys=True) + "\n", lambda error: unwritable(path, error)
        )
        return
    names = mine.keys() if wish.rows_of else mine.keys() | before.keys()
    if different := sorted(name for name in names if mine.get(name) != before.get(name)):
        raise TrainingError(
            f"{path.parent.parent} was begun with other data: {', '.join(different)} differ",
            hint=f"Give the same settings to go on, or another folder with --out. What it was begun with: {path}",
        )


def read_record(wish: Wish) -> dict[str, object] | None:
    """What the folder's prompts and answers are made of, or None where it is not begun. Raises TrainingError."""
    path = wish.data / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("not an object")
    except FileNotFoundError as error:
        if not wish.rows_of:
            return None
        hint = "Name the folder of a head that `outrider train` made, or leave --rows-of out."
        raise TrainingError(f"{wish.rows_of} holds no conversations of a training", hint=hint) from error
    except (OSError, ValueError, RecursionError) as error:
        hint = "Take another folder with --out, or leave --rows-of out."
        raise TrainingError(f"{path} cannot be read: {error}", hint=hint) from error
    return record


def _data(wish: Wish) -> dict[str, object]:
    """Names and values of what decides the rows, flat; of the held-out texts only how they hash."""
    prompts, answers = asdict(wish.prompts), asdict(wish.answers)
    play, _ = prompts.pop("play"), answers.pop("user")
    user = play.pop("user")
    held_out = sorted(one.prompts_sha256 for one in wish.sets)
    user.pop("held_out")
    return {
        **prompts,
        **play,
        **{f"user_{name}": value for name, value in user.items()},
        **answers,
        "held_out": held_out,
    }

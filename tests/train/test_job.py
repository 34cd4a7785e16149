"""The job file: what is filled in, what is refused, what a resumed run may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from outrider.core.errors import TrainingError
from outrider.train.job import FREE, SettledJob, TrainJob, read_job


def job(**changes: Any) -> TrainJob:
    """A job with what must be given."""
    return TrainJob(
        **{
            "method": "eagle3",
            "target": Path("t"),
            "target_name": "org/name",
            "rows": (Path("rows.jsonl"),),
            "out": Path("o"),
            "work": Path("w"),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("method", "device", "depth", "batch_tokens", "epochs"),
    [
        ("eagle3", "cuda", 4, 16384, 8),
        ("eagle3", "cpu", 3, 2048, 4),
        ("p-eagle", "cuda", 6, 16384, 8),
        ("p-eagle", "cpu", 5, 2048, 4),
    ],
)
def test_defaults_follow_method_and_device(
    method: Any, device: Any, depth: int, batch_tokens: int, epochs: int
) -> None:
    """As the fields' descriptions say."""
    settled = job(method=method).settled(device)
    assert (settled.depth, settled.batch_tokens, settled.epochs, settled.device) == (
        depth,
        batch_tokens,
        epochs,
        device,
    )


def test_what_was_given_stays() -> None:
    """A default never replaces a setting."""
    settled = job(depth=7, batch_tokens=100, epochs=2, device="auto").settled("cuda")
    assert (settled.depth, settled.batch_tokens, settled.epochs) == (7, 100, 2)


def test_every_setting_is_described_and_survives_the_file(tmp_path: Path) -> None:
    """No undocumented setting; JSON there and back is the same job."""
    assert all(field.description for field in TrainJob.model_fields.values())
    path = tmp_path / "job.json"
    before = job(aux_layers=(1, 2, 3), max_minutes=2.5)
    path.write_text(before.model_dump_json())
    assert read_job(path) == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epoch": 3}, "epoch"),
        ({"method": "eagle"}, "method"),
        ({"rows": []}, "rows"),
        ({"target_name": "/models/x"}, "target_name"),
        ({"target_name": "C:\\models"}, "target_name"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"loss": "mse"}, "loss"),
        ({"aux_layers": [2, 2, 3]}, "aux_layers must be three different layers"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    """Unknown ones too; a target's path never gets into a head's config."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**json.loads(job().model_dump_json()), **changes}))
    with pytest.raises(TrainingError, match=named) as caught:
        read_job(path)
    assert caught.value.hint


def test_no_file_is_said(tmp_path: Path) -> None:
    """With the command that writes it."""
    with pytest.raises(TrainingError, match="cannot be read"):
        read_job(tmp_path / "job.json")


def test_another_setting_is_seen_and_a_moved_folder_is_not() -> None:
    """What a checkpoint may go on with: places and pace are free, everything that the head's weights depend on is not."""
    before = job().settled("cpu").model_dump(mode="json")
    moved = job(out=Path("elsewhere"), target=Path("x"), max_minutes=9, cache_features=False).settled("cpu")
    assert moved.changes_from(before) == ()
    assert job(seed=1, loss="ce", epochs=9).settled("cpu").changes_from(before) == ("epochs", "loss", "seed")
    assert job().settled("cpu").changes_from({**before, "old": 1}) == ("old",)


def test_free_settings_exist() -> None:
    """A renamed setting is not silently held to account."""
    assert set(TrainJob.model_fields) >= FREE


def test_a_job_cannot_be_changed() -> None:
    """What was checked stays so."""
    with pytest.raises(ValidationError):
        job().seed = 3  # type: ignore[misc]
    assert isinstance(job().settled("cpu"), SettledJob)

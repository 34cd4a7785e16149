"""Where the shared material (cases, data, shapes of named targets) lies: beside the checkout, or where the environment says."""

import os
from pathlib import Path

import pytest


def shared_path(*parts: str) -> Path:
    """A path in the shared folder; the calling test is skipped, with the reason, where the folder is absent."""
    root = Path(os.environ.get("OUTRIDER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(
            f"not checked: {'/'.join(parts)} is not beside this checkout (OUTRIDER_SHARED names another place)"
        )
    return path

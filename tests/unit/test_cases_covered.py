"""Every case from the field that this part owes is a test."""

import re
from pathlib import Path

import yaml

from tests.shared import shared_path

AREAS = {"core", "stack", "telemetry", "bench", "train", "governor"}
TESTS = Path(__file__).parents[1]


def test_every_case_has_its_test() -> None:
    """A case `a-b` of areas core, stack, telemetry, bench, train and governor has a test function `test_a_b`."""
    cases = yaml.safe_load(shared_path("cases", "cases.yaml").read_text())
    owed = {case["id"] for case in cases if case["area"] in AREAS}
    assert len(owed) > 15
    source = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = set(re.findall(r"^(?:async )?def (test_\w+)\(", source, re.MULTILINE))
    missing = {case for case in owed if "test_" + case.replace("-", "_") not in named}
    assert not missing

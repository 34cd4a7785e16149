"""What Helm prints after an installation: the next steps, and what is still missing. Helm 4 tells it without a cluster."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from outrider.deploy.render import CHART, as_yaml
from tests.deploy.charts import CASES, NAMESPACE, RELEASE, Case, merged, tool, values

UNSEEN = "The profile `prometheus` gives them, and it is off"
ADAPTER = "get configmap llama-adapter-rules"
NO_RUNBOOK = "Alerts link to example.com"


def notes(case: Case, folder: Path) -> str:
    """What a person reads."""
    (folder / "values.yaml").write_text(as_yaml(values(case)))
    command = [tool("helm4"), "install", RELEASE, str(CHART), "--namespace", NAMESPACE]
    command += ["--dry-run=client", "--values", str(folder / "values.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_the_last_step_is_a_request_that_the_draft_answers(tmp_path: Path) -> None:
    """With the name that the engine serves, and nothing of what was not asked for."""
    said = notes(CASES["minimal"], tmp_path)
    assert f"--namespace {NAMESPACE} port-forward service/{RELEASE}-front 8000:80" in said
    assert '-d \'{"model": "llama-3.3-70b", "stream": true, ' in said
    assert not any(words in said for words in (UNSEEN, ADAPTER, NO_RUNBOOK))


def test_a_name_with_a_quote_stays_one_argument(tmp_path: Path) -> None:
    """The command is copied into a shell."""
    name = {"stack": {"target": {"served_name": "it's $(mine)"}}}
    said = notes(Case(more=merged(dict(CASES["minimal"].more), name)), tmp_path)
    command = said[said.index("curl -N") :].replace("\\\n", " ").splitlines()[0]
    assert json.loads(shlex.split(command)[-1])["model"] == "it's $(mine)"


@pytest.mark.parametrize(
    ("profiles", "words"),
    [
        (("keda",), {UNSEEN}),
        (("keda", "prometheus"), {NO_RUNBOOK}),
        (("hpa", "prometheus"), {ADAPTER, NO_RUNBOOK}),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, tuple) else "",
)
def test_what_a_profile_still_needs_is_said(
    profiles: tuple[str, ...], words: set[str], tmp_path: Path
) -> None:
    """Scaling without the labels it reads, rules that nobody has merged, links that lead nowhere."""
    said = notes(Case(profiles=profiles, more=CASES["minimal"].more), tmp_path)
    assert {one for one in (UNSEEN, ADAPTER, NO_RUNBOOK) if one in said} == words


def test_a_runbook_of_ones_own_is_linked(tmp_path: Path) -> None:
    """Nothing is left to say."""
    watching = {"watching": {"runbook": "https://wiki.example/runbook"}}
    case = Case(profiles=("prometheus",), more=merged(dict(CASES["minimal"].more), watching))
    assert NO_RUNBOOK not in notes(case, tmp_path)

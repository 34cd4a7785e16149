"""The rows of a target on a hub: of its files only the one that holds them, into the hub's own local cache."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.unit.pairs import write_head, write_target

from outrider.core.errors import WeightsError
from outrider.stack.head_rows import whole_head
from outrider.stack.hub_weights import hub_weights
from outrider.stack.store_head import store_head

COMMIT = "a" * 40


@dataclass
class Hub:
    """A folder as a hub gives it; `sent` are the files whose content was asked for."""

    folder: Path
    sent: list[str] = field(default_factory=list)
    forbidden: bool = False


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback that has `tmp_path`/target, and a local cache of its own."""
    state = Hub(tmp_path / "target")

    class Handler(BaseHTTPRequestHandler):
        """HEAD tells commit, size and hash; GET sends the file."""

        def do_HEAD(self) -> None:  # the name is http.server's
            """Metadata of one file."""
            self.answer(send=False)

        def do_GET(self) -> None:
            """One file."""
            self.answer(send=True)

        def answer(self, *, send: bool) -> None:
            """Either."""
            name = self.path.split("?")[0].rpartition("/")[2]
            path = state.folder / name
            if state.forbidden or not path.is_file():
                self.send_response(403 if state.forbidden else 404)
                self.send_header("X-Error-Code", "" if state.forbidden else "EntryNotFound")
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            raw = path.read_bytes()
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            if send:
                state.sent.append(name)
                self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def write_index(folder: Path) -> None:
    """`weight_map` of the target's shards, read plainly."""
    names = {}
    for path in folder.glob("*.safetensors"):
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        names |= dict.fromkeys(header, path.name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def silent(message: str) -> None:
    """Say nothing."""


@pytest.mark.parametrize("shards", [1, 3])
def test_a_head_is_made_whole_with_rows_of_a_hub(tmp_path: Path, hub: Hub, shards: int) -> None:
    """The one file that holds the rows is fetched, once, at its commit; no other shard is."""
    target = write_target(hub.folder, tied=False, shards=shards)
    head = write_head(tmp_path / "head", target, rows="lm_head.weight")
    store_head(head, target, tmp_path / "stored")
    if shards > 1:
        write_index(target)
    said: list[str] = []
    made = whole_head(
        tmp_path / "stored", hub_weights("org/target", None, said.append), said.append, tmp_path / "cache"
    )
    assert (made / "model.safetensors").read_bytes() == (head / "model.safetensors").read_bytes()
    weights = [name for name in hub.sent if name.endswith(".safetensors")]
    assert len(weights) == 1
    assert any(weights[0] in line for line in said)
    folder = hub_weights("org/target", None, silent)(["lm_head.weight"])
    assert folder.name == COMMIT
    assert [name for name in hub.sent if name.endswith(".safetensors")] == weights


def test_a_hub_that_does_not_give_them(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbidden, or not to be asked: one sentence, and how the rows come into the local cache."""
    write_target(hub.folder)
    hub.forbidden = True
    with pytest.raises(WeightsError, match="rows of org/target cannot be had") as caught:
        hub_weights("org/target", None, silent)(["x"])
    assert "hf download" in caught.value.hint
    hub.forbidden = False
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="cannot be had"):
        hub_weights("org/target", None, silent)(["x"])
    assert hub.sent == []


@pytest.mark.parametrize("name", ["../config.json", "pickled.bin", "/etc/x.safetensors", ".x.safetensors"])
def test_an_index_that_names_no_shard(tmp_path: Path, hub: Hub, name: str) -> None:
    """An index cannot lead out of the model, or to pickled weights."""
    target = write_target(hub.folder)
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(WeightsError, match="no safetensors"):
        hub_weights("org/target", None, silent)(["lm_head.weight"])


def test_another_target_on_a_hub(tmp_path: Path, hub: Hub) -> None:
    """An index without such a tensor is another target, which is what is said."""
    target = write_target(hub.folder, tied=False, shards=2)
    head = write_head(tmp_path / "head", target, rows="lm_head.weight")
    store_head(head, target, tmp_path / "stored")
    (target / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"other": "x.safetensors"}})
    )
    with pytest.raises(WeightsError, match="another target"):
        whole_head(tmp_path / "stored", hub_weights("org/target", None, silent), silent, tmp_path / "cache")

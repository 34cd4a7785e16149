"""The hub reader against a small hub on loopback: headers by range, never weights, and errors that say what to do."""

import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from outrider.core.errors import StackError
from outrider.stack import hub
from outrider.stack.facts import FactsError, HubError
from outrider.stack.find_facts import FactsNotHere, Source, find_facts
from outrider.stack.hub import read_hub
from outrider.stack.load import load_stack_text
from outrider.stack.shapes import shaped

COMMIT = "a" * 40
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}
WEIGHTS = 3_000_000


def shard(names: list[str], padding: int = 0) -> bytes:
    """A safetensors file whose weights are large beside its header; `padding` makes the header long."""
    size = WEIGHTS // len(names)
    entries: dict[str, object] = {
        name: {"dtype": "BF16", "shape": [size // 2], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    entries["__metadata__"] = {"note": "x" * padding}
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(WEIGHTS)


@dataclass
class FakeHub:
    """Files by name, and how the hub misbehaves. `sent` counts bytes of file bodies."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    error_code: str = ""
    ranges: bool = True
    sent: int = 0
    tokens: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One GET."""
        self.tokens.append(handler.headers.get("Authorization", ""))
        if self.status != 200:
            handler.send_response(self.status)
            if self.error_code:
                handler.send_header("X-Error-Code", self.error_code)
            handler.end_headers()
            return
        if handler.path.startswith("/api/models/"):
            self._send(handler, 200, json.dumps(self._info()).encode())
            return
        name = handler.path.split(f"/resolve/{COMMIT}/")[-1]
        content, wanted = self.files[name], handler.headers.get("Range")
        if wanted and self.ranges:
            begin, end = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
            content = content[begin : end + 1]
        self._send(handler, 206 if wanted and self.ranges else 200, content, count=True)

    def _info(self) -> dict[str, object]:
        siblings = [
            {"rfilename": name, "size": len(raw), "blobId": "b" * 40, **self._lfs(name, raw)}
            for name, raw in self.files.items()
        ]
        return {"id": "org/name", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}

    def _lfs(self, name: str, raw: bytes) -> dict[str, object]:
        large = name.endswith(".safetensors")
        return {"lfs": {"sha256": "c" * 64, "size": len(raw), "pointerSize": 134}} if large else {}

    def _send(self, handler: BaseHTTPRequestHandler, status: int, raw: bytes, *, count: bool = False) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        try:
            for i in range(0, len(raw), 65536):
                handler.wfile.write(raw[i : i + 65536])
                self.sent += len(raw[i : i + 65536]) if count else 0
        except ConnectionError:
            handler.close_connection = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub on loopback that the environment names as HF_ENDPOINT."""
    state = FakeHub({"config.json": json.dumps(CONFIG).encode()})

    class Handler(BaseHTTPRequestHandler):
        """Passes every GET to the state."""

        def do_GET(self) -> None:  # the name is http.server's
            """One request."""
            state.answer(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", state.url)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_facts_without_weights(fake: FakeHub) -> None:
    """Config, every shard's tensors, the commit and content ids are read; of the weights less than a tenth is sent."""
    fake.files["model-1.safetensors"] = shard(["a", "b"])
    fake.files["model-2.safetensors"] = shard(["c"], padding=hub.FIRST_BYTES)
    index = {"weight_map": {"a": "model-1.safetensors", "c": "model-2.safetensors"}}
    fake.files["model.safetensors.index.json"] = json.dumps(index).encode()
    fake.files["consolidated.safetensors"] = shard(["not in the index"])
    facts = read_hub("org/name")
    assert set(facts.tensors) == {"a", "b", "c"}
    assert sum(tensor.size_bytes for tensor in facts.tensors.values()) == 2 * WEIGHTS
    assert facts.commit == COMMIT
    assert facts.files["model-1.safetensors"] == "c" * 64
    assert facts.files["config.json"] == "b" * 40
    assert fake.sent < WEIGHTS / 5
    assert set(fake.tokens) == {"Bearer hf_test"}


def test_a_mirror_without_ranges_does_not_send_us_weights(fake: FakeHub) -> None:
    """Where ranges are ignored the connection is left after the header's bytes; a long header is then refused."""
    fake.ranges = False
    fake.files["model.safetensors"] = shard(["a"]) + bytes(30_000_000)
    assert set(read_hub("org/name").tensors) == {"a"}
    assert fake.sent < 15_000_000  # what socket buffers took before the connection was closed
    fake.files["model.safetensors"] = shard(["a"], padding=hub.FIRST_BYTES)
    with pytest.raises(HubError, match="parts of files"):
        read_hub("org/name")


def test_the_tokenizer_is_read_only_when_asked(fake: FakeHub) -> None:
    """A plain draft needs it for comparison, a head does not."""
    fake.files["tokenizer.json"] = b'{"model": {"vocab": {"a": 0}}}'
    assert read_hub("org/name").tokenizer is None
    tokenizer = read_hub("org/name", with_tokenizer=True).tokenizer
    assert tokenizer
    assert tokenizer.tokens == {0: "a"}


def test_size_limits_hold(fake: FakeHub) -> None:
    """A config beyond its limit is refused however large it is said to be."""
    fake.files["config.json"] = b" " * (hub.MAX_CONFIG_BYTES + 1)
    with pytest.raises(HubError, match="larger than"):
        read_hub("org/name")


def test_a_folder_without_a_config_is_told(fake: FakeHub) -> None:
    """A repository that is no model is named as such."""
    del fake.files["config.json"]
    with pytest.raises(HubError, match=r"has no config\.json"):
        read_hub("org/name")


def test_an_incomplete_upload_is_told(fake: FakeHub) -> None:
    """An index that names a shard the hub does not list is refused."""
    fake.files["model.safetensors.index.json"] = b'{"weight_map": {"a": "model-1.safetensors"}}'
    with pytest.raises(HubError, match=r"lacks model-1\.safetensors"):
        read_hub("org/name")


@pytest.mark.parametrize(
    ("status", "code", "message", "hint"),
    [
        (401, "RepoNotFound", "is not on", "HF_TOKEN"),
        (404, "RepoNotFound", "is not on", "Check the name"),
        (403, "GatedRepo", "is gated", "Accept the model's terms"),
        (404, "RevisionNotFound", "has no revision v9", "revision"),
        (429, "", "429", "HF_TOKEN"),
        (500, "", "500", "later"),
    ],
)
def test_errors_say_what_to_do(fake: FakeHub, status: int, code: str, message: str, hint: str) -> None:
    """Each refusal of the hub becomes one sentence and a next step; only passing ones count as unreachable."""
    fake.status, fake.error_code = status, code
    with pytest.raises(HubError) as caught:
        read_hub("org/name", "v9")
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert caught.value.unreachable == (status in (429, 500))


def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is 'unreachable', with the ways around it."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(HubError) as caught:
        read_hub("org/name")
    assert caught.value.unreachable
    assert "HF_ENDPOINT" in caught.value.hint


@pytest.mark.parametrize("by_environment", [True, False])
def test_offline_asks_nobody(fake: FakeHub, monkeypatch: pytest.MonkeyPatch, by_environment: bool) -> None:
    """HF_HUB_OFFLINE, or being told so, reads the local cache alone; what is not there is 'not known', not wrong."""
    if by_environment:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FactsNotHere, match="not in the local hub cache"):
        find_facts("org/name", None, Source(offline=not by_environment))
    assert fake.tokens == []


def test_offline_reads_a_cached_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A snapshot in the hub cache gives facts and its commit without a network."""
    snapshot = tmp_path / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    lookup = hub.try_to_load_from_cache
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *a, **k: lookup(*a, **k, cache_dir=tmp_path))
    facts = find_facts("org/name", None, Source(offline=True))
    assert (facts.commit, facts.source, facts.hidden_size) == (COMMIT, "org/name", 64)


def test_a_hub_that_fails_is_replaced_by_its_cache(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub out of order does not matter where the snapshot is here; one that refuses does."""
    cached = read_hub("org/name")
    monkeypatch.setattr(hub, "read_cached", lambda model, revision=None: cached)
    fake.status = 500
    assert find_facts("org/name", None, Source()) is cached
    fake.status, fake.error_code = 404, "RepoNotFound"
    with pytest.raises(HubError):
        find_facts("org/name", None, Source())


def test_a_hub_answer_that_is_no_json_is_told(fake: FakeHub) -> None:
    """A proxy's HTML page instead of a config is an error with the file's name."""
    fake.files["config.json"] = b"<html>sign in</html>"
    with pytest.raises(FactsError, match="not JSON"):
        read_hub("org/name")


def test_a_shape_of_a_hub_model_is_its_config_alone(fake: FakeHub, tmp_path: Path) -> None:
    """A forecast reads config.json of a hub id and not one byte of weights; the folder holds that config as it is written."""
    fake.files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": shard(["a"])}
    stack = load_stack_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: org/name}\ndraft: {method: none}\nforecast: {}\n", "x"
    )
    made = shaped(stack, tmp_path)
    assert json.loads((Path(made.target.model) / "config.json").read_text()) == CONFIG
    assert made.served_name == "name"
    assert fake.sent == len(fake.files["config.json"])


def test_a_shape_asks_no_hub_when_none_may_be_asked(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline and not in the cache: refused with what to name instead, and the hub hears nothing."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    stack = load_stack_text("apiVersion: outrider/v1alpha1\ntarget: {model: org/name}\nforecast: {}\n", "x")
    with pytest.raises(StackError) as caught:
        shaped(stack, tmp_path)
    assert "HF_HUB_OFFLINE" in caught.value.problems[0].hint
    assert fake.tokens == []

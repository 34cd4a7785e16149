"""Sets from a hub, here a small one on loopback: the right file of the right commit, checked, cached, read offline."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets import PromptOptions, load_prompt_set
from outrider.stack import hub_data

COMMIT = "ab" * 20
QUESTIONS = b"".join(
    json.dumps({"question_id": i, "category": "writing", "turns": [f"q{i}", "and?"]}).encode() + b"\n"
    for i in range(3)
)


def blob_id(content: bytes) -> str:
    """Git's id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass
class DataHub:
    """A hub of data sets; each has these files. `asked` holds the paths of all requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    large: tuple[str, ...] = ()
    status: int = 200
    spoil: bool = False
    asked: list[str] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One GET: the listing, or a file of the commit."""
        self.asked.append(handler.path)
        body, status = b"", self.status
        if status == 200 and handler.path.startswith("/api/datasets/"):
            body = json.dumps(self._listing()).encode()
        elif (
            status == 200 and f"/resolve/{COMMIT}/" in handler.path and handler.path.startswith("/datasets/")
        ):
            body = self.files[handler.path.split(f"/resolve/{COMMIT}/")[-1]]
            body = body.replace(b"q1", b"Q1") if self.spoil else body
        elif status == 200:
            status = 404
        handler.send_response(status)
        if status == 401:
            handler.send_header("X-Error-Code", "GatedRepo")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, raw in self.files.items():
            one: dict[str, object] = {"rfilename": name, "size": len(raw), "blobId": blob_id(raw)}
            if name in self.large:
                digest = hashlib.sha256(raw).hexdigest()
                one |= {"blobId": "0" * 40, "lfs": {"sha256": digest, "size": len(raw), "pointerSize": 134}}
            siblings.append(one)
        return {"id": "org/name", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DataHub]:
    """A hub that HF_ENDPOINT names, an empty cache, and no data folder."""
    state = DataHub({"README.md": b"# x", "raw/question.jsonl": QUESTIONS})

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
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.delenv("OUTRIDER_DATA", raising=False)
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def refused(spec: str) -> MeasurementError:
    """The refusal of this spec, which has a hint."""
    with pytest.raises(MeasurementError) as caught:
        load_prompt_set(spec)
    assert caught.value.hint
    return caught.value


def test_a_named_set_without_a_file_comes_from_its_hub_id(hub: DataHub) -> None:
    """MT-Bench's known repository and file are asked for; the source tells id, commit and file; no temporary file stays."""
    found = load_prompt_set("mt-bench")
    assert [prompt.id for prompt in found.prompts] == ["mt-bench/0", "mt-bench/2", "mt-bench/1"]
    assert found.source == f"HuggingFaceH4/mt_bench_prompts@{COMMIT[:12]}:raw/question.jsonl"
    assert found.sha256 == hashlib.sha256(QUESTIONS).hexdigest()
    assert hub.asked[0].startswith("/api/datasets/HuggingFaceH4/mt_bench_prompts")


def test_a_file_is_fetched_once_a_commit(hub: DataHub, tmp_path: Path) -> None:
    """The second load asks what the branch is today and takes the file from the cache; nothing half-written is left."""
    assert load_prompt_set("mt-bench=org/name") == load_prompt_set("mt-bench=org/name")
    assert sum("/resolve/" in path for path in hub.asked) == 1
    assert not list((tmp_path / "cache").rglob(".*"))


def test_the_hubs_own_field_names(hub: DataHub) -> None:
    """The hub's copy of MT-Bench calls the turns `prompt`."""
    hub.files["raw/question.jsonl"] = b'{"prompt_id": 7, "category": "stem", "prompt": ["a", "b"]}'
    assert load_prompt_set("mt-bench").prompts[0].turns == ("a", "b")


@pytest.mark.parametrize("by", ["offline", "unreachable"])
def test_what_was_read_once_is_read_without_the_hub(
    hub: DataHub, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Offline, or with a hub that fails, the cached commit stands in, by branch and by commit, and the set says so."""
    before = load_prompt_set("mt-bench=org/name")
    hub.status = 503
    if by == "offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(hub.asked)
    for spec in ("mt-bench=org/name", f"mt-bench=org/name@{COMMIT}"):
        after = load_prompt_set(spec)
        assert (after.prompts, after.sha256, after.source) == (before.prompts, before.sha256, before.source)
        assert after.notes == (
            f"Read from the cache without the hub: what the revision meant then, commit {COMMIT[:12]}.",
        )
    assert (len(hub.asked) == asked) == (by == "offline")
    assert refused("mt-bench=org/other").hint
    assert refused("mt-bench=org/name@v2").hint


def test_a_revision_is_passed_on(hub: DataHub) -> None:
    """A branch with a slash is asked for as it is named."""
    load_prompt_set("mt-bench=org/name@refs/pr/1")
    assert "/revision/refs%2Fpr%2F1" in hub.asked[0]


def test_content_that_is_not_what_the_hub_lists(hub: DataHub, tmp_path: Path) -> None:
    """A file changed on its way is refused by git's id and by SHA-256 alike, and is not cached."""
    hub.spoil = True
    assert "is not what" in str(refused("mt-bench=org/name"))
    hub.large = ("raw/question.jsonl",)
    assert "is not what" in str(refused("mt-bench=org/name"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    hub.spoil = False
    assert len(load_prompt_set("mt-bench=org/name").prompts) == 3


def test_a_file_larger_than_the_limit_is_left(
    hub: DataHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The download ends at the limit and leaves nothing behind."""
    monkeypatch.setattr(hub_data, "MAX_BYTES", 50)
    assert "larger than 50 bytes" in str(refused("mt-bench=org/name"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_parquet_is_told_with_the_way_round_it(hub: DataHub) -> None:
    """HumanEval and GSM8K lie on the hub as Parquet: the refusal says where the JSONL is and how to convert."""
    hub.files = {"main/test-00000-of-00001.parquet": b"PAR1", "dataset_infos.json": b"{}"}
    error = refused("gsm8k")
    assert "only Parquet files" in str(error)
    assert "OUTRIDER_DATA names no data folder" in str(error)
    assert "to_json('gsm8k.jsonl')" in error.hint


def test_one_of_several_files_must_be_named(hub: DataHub) -> None:
    """Nothing is guessed among several; the names are listed, one of them is taken by name, others are refused."""
    hub.files = {"a.jsonl": b'"a"', "sub/b.jsonl": b'"b"', "config.json": b"{}"}
    error = refused("jsonl=org/name")
    assert "2 data files" in str(error)
    assert "org/name:FILE" in error.hint
    assert "a.jsonl, sub/b.jsonl" in error.hint
    found = load_prompt_set("jsonl=org/name@main:sub/b.jsonl")
    assert (found.name, found.prompts[0].id, found.prompts[0].turns) == ("name", "name/1", ("b",))
    assert "no data file c.jsonl" in str(refused("jsonl=org/name:c.jsonl"))


def test_names_that_leave_the_cache_are_not_taken(hub: DataHub, tmp_path: Path) -> None:
    """A listing cannot name a file outside its folder."""
    hub.files = {"../../../../evil.jsonl": b'"a"', "/abs.jsonl": b'"a"', "a/../../b.jsonl": b'"a"'}
    assert "has no .json" in str(refused("jsonl=org/name"))
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "is not on"), (401, "is gated"), (500, "answered 500"), (429, "slow down")],
)
def test_a_hub_that_refuses(hub: DataHub, status: int, message: str) -> None:
    """Each refusal is one of measurement, with the hub's reason and a hint."""
    hub.status = status
    with pytest.raises(MeasurementError, match=message) as caught:
        load_prompt_set("jsonl=org/name")
    assert caught.value.hint


def test_a_cache_that_cannot_be_written(
    hub: DataHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the cache's place is a file, the refusal names the variable that moves it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "file"))
    assert "OUTRIDER_CACHE" in refused("mt-bench=org/name").hint


def test_a_local_file_comes_before_the_hub(hub: DataHub, tmp_path: Path) -> None:
    """With the file in the data folder nobody is asked."""
    (tmp_path / "mt-bench.jsonl").write_bytes(QUESTIONS)
    found = load_prompt_set("mt-bench", options=PromptOptions(data_folder=tmp_path))
    assert (len(found.prompts), hub.asked) == (3, [])

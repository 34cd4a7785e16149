"""`outrider pair` and what `check` says of a manifest: one half changed is refused, whichever half, with every reason."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.check import check_command
from outrider.cli.pair import pair_command
from outrider.core.acceptance import SpecCounters
from outrider.core.errors import EngineNotInstalled, StackError, WeightsError
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack import hub
from outrider.stack.digests import blob_id, file_digest
from outrider.stack.hub import Listing
from outrider.stack.load import load_stack
from outrider.stack.manifest import PairPart, ServedAcceptance, read_manifest, write_manifest
from outrider.stack.pair_manifest import judge_manifest
from outrider.stack.read_facts import read_folder
from outrider.stack.shapes import read_config
from outrider.stack.store_head import store_head
from tests.unit.pairs import head_config, target_config, write_head, write_stack, write_target

SERVED = ServedAcceptance.counted(
    SpecCounters(100, 300, 131, (70, 40, 21)),
    prompt_set="humaneval",
    draft_length=3,
    requests=9,
    output_tokens=231,
)


@pytest.fixture(autouse=True)
def own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of its own, and no engine: the pair's side alone."""

    def find(self: VllmEngine, stack: object) -> None:
        raise EngineNotInstalled("no vLLM here")

    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(VllmEngine, "find", find)


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack of a target and its whole head, which has a manifest with served acceptance."""
    target = write_target(tmp_path / "target")
    write_head(tmp_path / "head", target)
    path = write_stack(tmp_path / "stack.yaml", "./target", "./head")
    written(path)
    manifest = read_manifest(tmp_path / "head" / "pair.json")
    write_manifest(
        replace(manifest, served=(SERVED,), training={"date": "2026-11-30"}), tmp_path / "head" / "pair.json"
    )
    return path


def pair(*arguments: object) -> Result:
    """`outrider pair ARGUMENTS`."""
    return CliRunner().invoke(pair_command, [str(one) for one in arguments])


def written(stack: Path, *more: object) -> str:
    """The pair's name, out of `outrider pair write`."""
    result = pair("write", stack, *more)
    assert result.exit_code == 0, result.exception
    return result.stdout.split()[1].rstrip(":")


def refused(result: Result) -> list[str]:
    """What a refusal says: every problem's path and message."""
    assert isinstance(result.exception, StackError), result.output
    assert result.exception.exit_code == 10
    assert result.exception.problems
    assert result.exception.hint or all(one.hint for one in result.exception.problems)
    return [f"{one.path}: {one.message}" for one in result.exception.problems]


def flip(path: Path) -> None:
    """One bit of a file's last byte."""
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


# ---- verify ------------------------------------------------------------------------------------------------


def test_the_pair_passes(stack: Path, tmp_path: Path) -> None:
    """Nothing changed: exit 0, and the pair's name."""
    result = pair("verify", stack)
    assert result.exit_code == 0, result.exception
    assert read_manifest(tmp_path / "head" / "pair.json").id in result.stdout


@pytest.mark.parametrize("name", ["another", "", "..", "smollm2-135m-eagle3/", "x" * 300])
@pytest.mark.parametrize("command", ["verify", "show"])
def test_a_head_that_is_not_built_in_is_told_from_one_without_a_manifest(
    tmp_path: Path, command: str, name: str
) -> None:
    """Those there are stand in the hint."""
    write_target(tmp_path / "target")
    result = pair(command, write_stack(tmp_path / "stack.yaml", "./target", f"builtin:{name}"))
    assert isinstance(result.exception, WeightsError), result.exception
    assert "no built-in head" in str(result.exception)
    assert "smollm2-135m-eagle3" in result.exception.hint


@pytest.mark.parametrize("make", [lambda at: at.symlink_to("nowhere"), Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("side", ["target", "head"])
def test_weights_that_are_no_file_are_no_part_of_a_pair(
    stack: Path, tmp_path: Path, side: str, make: Callable[[Path], None]
) -> None:
    """Something of that name which cannot be hashed: the engine would open it, so it is not passed over."""
    make(tmp_path / side / "more.safetensors")
    said = refused(pair("verify", stack))
    assert any("more.safetensors is not a file" in one for one in said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda at: flip(at / "target" / "model.safetensors"),
            ["target.model", "model.safetensors is another"],
        ),
        (lambda at: flip(at / "head" / "model.safetensors"), ["draft.model", "model.safetensors is another"]),
        (
            lambda at: (at / "head" / "config.json").write_text(json.dumps(head_config())),
            ["draft.model", "config.json"],
        ),
        (
            lambda at: (at / "target" / "chat_template.jinja").write_text("{{ x }}"),
            ["target.model", "was not there"],
        ),
        (lambda at: (at / "target" / "model.safetensors").unlink(), ["target.model", "no *.safetensors"]),
    ],
)
def test_one_half_changed_is_refused(
    stack: Path, tmp_path: Path, change: Callable[[Path], None], said: list[str]
) -> None:
    """One bit of either half, a config, a chat template, a missing file: exit 10, and the half and file by name."""
    change(tmp_path)
    (reason,) = [one for one in refused(pair("verify", stack)) if "not the" in one]
    for words in said:
        assert words in reason


def test_both_halves_changed_are_told_at_once(stack: Path, tmp_path: Path) -> None:
    """Every reason, with its line in the stack."""
    flip(tmp_path / "target" / "model.safetensors")
    flip(tmp_path / "head" / "model.safetensors")
    result = pair("verify", stack)
    assert [one.partition(":")[0] for one in refused(result)] == ["target.model", "draft.model"]
    assert isinstance(result.exception, StackError)
    assert [one.line for one in result.exception.problems] == [2, 3]


def test_the_hint_says_which_half(stack: Path, tmp_path: Path) -> None:
    """A target that was upgraded alone, and a head that was, are two different mistakes."""
    target, head = tmp_path / "target" / "model.safetensors", tmp_path / "head" / "model.safetensors"
    for changed, words in ((target, "The target changed, the head did not"), (head, "The head changed")):
        flip(changed)
        error = pair("verify", stack).exception
        flip(changed)
        assert isinstance(error, StackError)
        assert error.hint.startswith(words)


def test_another_method_or_shape_is_refused(stack: Path, tmp_path: Path) -> None:
    """A manifest of another method, and one that states other aux layers, is not this stack's although all hashes agree."""
    path = tmp_path / "head" / "pair.json"
    manifest = read_manifest(path)
    write_manifest(replace(manifest, method="p-eagle"), path)
    assert any("method p-eagle" in one for one in refused(pair("verify", stack)))
    assert manifest.shape
    write_manifest(replace(manifest, shape=replace(manifest.shape, aux_layers=(1, 2, 3))), path)
    assert any("aux layers [2, 4, 5], in the pair [1, 2, 3]" in one for one in refused(pair("verify", stack)))


def test_a_manifest_elsewhere(stack: Path, tmp_path: Path) -> None:
    """`--manifest` names one that is not beside the head; without any there is nothing to verify, which is said."""
    elsewhere = tmp_path / "elsewhere.json"
    (tmp_path / "head" / "pair.json").rename(elsewhere)
    assert pair("verify", stack, "--manifest", elsewhere).exit_code == 0
    result = pair("verify", stack)
    assert isinstance(result.exception, StackError)
    assert "pair write" in result.exception.hint


def test_fresh_believes_nothing(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cache of digests says wrongly is believed, unless every file is to be hashed anew."""
    monkeypatch.setattr("outrider.stack.digests._kept", lambda place, stamp: "0" * 64)
    refused(pair("verify", stack))
    assert pair("verify", stack, "--fresh").exit_code == 0


def test_a_stored_head_is_verified_whole(stack: Path, tmp_path: Path) -> None:
    """Beside the stored form the same manifest holds; a target of other rows is refused even where only its rows differ."""
    store_head(tmp_path / "head", tmp_path / "target", tmp_path / "stored")
    path = write_stack(tmp_path / "stack.yaml", "./target", "./stored")
    assert pair("verify", path).exit_code == 0
    manifest = read_manifest(tmp_path / "stored" / "pair.json")
    write_target(tmp_path / "target", seed=9)
    changed = replace(
        manifest.target,
        content={
            **manifest.target.content,
            "model.safetensors": file_digest(tmp_path / "target" / "model.safetensors"),
        },
    )
    write_manifest(replace(manifest, target=changed), tmp_path / "stored" / "pair.json")
    (reason,) = refused(pair("verify", path))
    assert "with its rows the head's model.safetensors is another file" in reason
    flip(tmp_path / "stored" / "model.safetensors")
    assert any("not the file that was stored" in one for one in refused(pair("verify", path)))


def test_a_target_that_is_not_here_yet(stack: Path, tmp_path: Path) -> None:
    """A package that was not fetched is verified by its digest, and it is said that the rows were not recomputed."""
    store_head(tmp_path / "head", tmp_path / "target", tmp_path / "stored")
    (tmp_path / "stored" / "pair.json").unlink()
    path = write_stack(tmp_path / "stack.yaml", f"'pypi:name==1', sha256: {'a' * 64}", "./stored")
    (path.parent / "stored" / "pair.json").unlink(missing_ok=True)
    manifest = read_manifest(tmp_path / "head" / "pair.json")
    packaged = replace(manifest, target=replace(manifest.target, content={"wheel": "a" * 64}))
    write_manifest(packaged, tmp_path / "stored" / "pair.json")
    result = pair("verify", path)
    assert result.exit_code == 0, result.exception
    assert "not recomputed" in result.stdout
    write_manifest(
        replace(packaged, target=replace(packaged.target, content={"wheel": "b" * 64})),
        tmp_path / "stored" / "pair.json",
    )
    assert "wheel is another" in refused(pair("verify", path))[0]


def test_a_pair_on_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves on a hub: written by what it lists, refused when a listed hash changed, not judged when it is silent."""
    target = write_target(tmp_path / "target")
    head = write_head(tmp_path / "head", target)
    listings = {"org/target": listing(target, "1" * 40), "org/head": listing(head, "2" * 40)}
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub, "list_files", lambda model, revision=None: listings[model])
    monkeypatch.setattr(
        hub, "read_hub", lambda model, *a, **k: hub.read_folder(tmp_path / model.split("/")[1])
    )
    path = write_stack(tmp_path / "stack.yaml", "org/target", "org/head")
    result = pair("write", path)
    assert isinstance(result.exception, StackError)
    assert "--out" in result.exception.hint
    place = tmp_path / "pair.json"
    written(path, "--out", place)
    assert read_manifest(place).target.content["commit"] == "1" * 40
    assert pair("verify", path, "--manifest", place).exit_code == 0
    listings["org/head"] = Listing(
        "org/head", "3" * 40, {**listings["org/head"].files, "model.safetensors": "f" * 64}
    )
    assert "draft.model" in refused(pair("verify", path, "--manifest", place))[0]

    def silent(model: str, revision: str | None = None) -> Listing:
        raise hub.HubError("no answer", "Later.", unreachable=True)

    monkeypatch.setattr(hub, "list_files", silent)
    result = pair("verify", path, "--manifest", place)
    assert isinstance(result.exception, WeightsError)


def listing(folder: Path, commit: str) -> Listing:
    """What a hub would list of a folder: SHA-256 of weights, git's id of the rest."""
    files = {
        path.name: file_digest(path) if path.suffix == ".safetensors" else blob_id(path)
        for path in folder.iterdir()
    }
    return Listing(f"org/{folder.name}", commit, files)


# ---- write and show ---------------------------------------------------------------------------------------


def test_writing_keeps_what_was_measured(stack: Path, tmp_path: Path) -> None:
    """The same pair keeps its manifest; another pair's is only written over when that is asked for."""
    path = tmp_path / "head" / "pair.json"
    before = path.read_bytes()
    assert "already" in pair("write", stack).stdout
    assert path.read_bytes() == before
    flip(tmp_path / "target" / "model.safetensors")
    result = pair("write", stack)
    assert isinstance(result.exception, StackError)
    assert "--replace" in result.exception.hint
    assert path.read_bytes() == before
    name = written(stack, "--replace")
    assert name == read_manifest(path).id != json.loads(before)["id"]
    assert read_manifest(path).served == ()
    assert pair("verify", stack).exit_code == 0


def test_a_written_manifest_has_the_shape(stack: Path, tmp_path: Path) -> None:
    """Sizes, layers and tokenizer of both sides, and no folder of this machine."""
    path = tmp_path / "head" / "pair.json"
    shape = read_manifest(path).shape
    assert shape
    assert (shape.hidden_size, shape.vocab_size, shape.aux_layers, shape.draft_vocab_size) == (
        16,
        64,
        (2, 4, 5),
        12,
    )
    assert len(shape.tokenizer) == 64
    assert str(tmp_path) not in path.read_text()


def test_show(stack: Path, tmp_path: Path) -> None:
    """The same page by stack, file or folder, within 80 columns; `--json` is the file itself."""
    pages = {pair("show", one).stdout for one in (stack, tmp_path / "head" / "pair.json", tmp_path / "head")}
    (page,) = pages
    assert max(map(len, page.splitlines())) <= 80
    assert re.search(r"humaneval +3 +0 +9 +231 +2\.31 +\.70 \.40 \.21", page)
    assert pair("show", stack, "--json").stdout == (tmp_path / "head" / "pair.json").read_text()


def test_a_stack_without_a_pair(tmp_path: Path) -> None:
    """N-gram drafts have no second half: there is nothing to verify, show or write."""
    path = tmp_path / "stack.yaml"
    path.write_text("apiVersion: outrider/v1alpha1\ntarget: {model: org/name}\ndraft: {method: ngram}\n")
    for command in ("verify", "show", "write"):
        assert "draft.method: method ngram has no weights" in refused(pair(command, path))[0]


def test_nothing_of_what_is_damaged_is_shown(stack: Path, tmp_path: Path) -> None:
    """A manifest that is none: exit 10, by the file's name."""
    (tmp_path / "head" / "pair.json").write_text("{}")
    for command in ("verify", "show"):
        assert refused(pair(command, stack))


def test_exit_codes_of_the_command_line(stack: Path, tmp_path: Path) -> None:
    """As a user runs it: 0 and the words on stdout, 10 and the reasons on stderr."""

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "outrider", "pair", "verify", stack],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    assert run()[0] == 0
    flip(tmp_path / "head" / "model.safetensors")
    status, said = run()
    assert status == 10
    assert "stack.yaml:3:" in said
    assert "[pair-content]" in said
    assert "→" in said


# ---- what check says, without hashing weights -------------------------------------------------------------


def problems(stack: Path) -> list[dict[str, str]]:
    """The problems of `outrider check` about manifests."""
    report = json.loads(CliRunner().invoke(check_command, [str(stack), "--json", "--offline"]).stdout)
    return [one for one in report["problems"] if one["rule"].startswith("pair-")]


def named(stack: Path) -> str | None:
    """The pair's name as check prints it."""
    name: str | None = json.loads(
        CliRunner().invoke(check_command, [str(stack), "--json", "--offline"]).stdout
    )["pair"]
    return name


def test_check_names_the_pair(stack: Path, tmp_path: Path) -> None:
    """Nothing speaks against the manifest beside the head: its name is printed."""
    assert problems(stack) == []
    assert named(stack) == read_manifest(tmp_path / "head" / "pair.json").id


@pytest.mark.parametrize(
    ("change", "rule", "severity"),
    [
        (lambda at: (at / "head" / "pair.json").write_text("{"), "pair-manifest", "error"),
        (
            lambda at: (at / "head" / "config.json").write_text(json.dumps(head_config())),
            "pair-content",
            "error",
        ),
        (
            lambda at: (at / "target" / "config.json").write_text(json.dumps(target_config())),
            "pair-content",
            "warning",
        ),
        (lambda at: write_target(at / "target", shards=2), "pair-content", "warning"),
        (
            lambda at: (at / "target" / "tokenizer.json").write_text('{"model": {"vocab": {"other": 0}}}'),
            "pair-shape",
            "error",
        ),
    ],
)
def test_check_sees_what_contradicts(
    stack: Path, tmp_path: Path, change: Callable[[Path], None], rule: str, severity: str
) -> None:
    """The head's own config, a tokenizer and a broken manifest refuse; another target only warns, and the name is gone."""
    if rule == "pair-content" and severity == "warning":
        (tmp_path / "target" / "config.json").write_text(json.dumps(target_config(), indent=2))
        written(stack, "--replace")
    change(tmp_path)
    assert {(one["rule"], one["severity"]) for one in problems(stack)} == {(rule, severity)}
    assert named(stack) is None


def test_check_refuses_a_head_of_another_size(stack: Path, tmp_path: Path) -> None:
    """A head whose file has another length than the pair's, told without hashing."""
    other = write_head(tmp_path / "other", tmp_path / "target")
    raw = (other / "model.safetensors").read_bytes().replace(b'"t2d"', b'"t2d" ', 1)
    (tmp_path / "head" / "model.safetensors").write_bytes((len(raw)).to_bytes(8, "little") + raw[8:])
    told = [one["message"] for one in problems(stack) if one["rule"] == "pair-content"]
    assert any("model.safetensors has" in one for one in told)


def test_check_refuses_another_shape(stack: Path, tmp_path: Path) -> None:
    """Widths, layers and vocabularies that are not the pair's are refused one by one."""
    path = tmp_path / "head" / "pair.json"
    manifest = read_manifest(path)
    assert manifest.shape
    shape = replace(manifest.shape, hidden_size=17, vocab_size=65, aux_layers=(1, 2), draft_vocab_size=13)
    write_manifest(replace(manifest, shape=shape), path)
    assert sorted((one["rule"], one["message"]) for one in problems(stack)) == [
        ("pair-shape", "aux layers [2, 4, 5], in the pair [1, 2]"),
        ("pair-shape", "draft vocabulary 12, in the pair 13"),
        ("pair-shape", "hidden size 16, in the pair 17"),
        ("pair-shape", "vocabulary 64, in the pair 65"),
    ]


def test_check_of_a_stored_head(stack: Path, tmp_path: Path) -> None:
    """A stored head is judged as the whole one, and its memory reckoned with the rows that it lacks."""
    store_head(tmp_path / "head", tmp_path / "target", tmp_path / "stored")

    def report(draft: str) -> dict[str, object]:
        path = write_stack(tmp_path / "other.yaml", "./target", draft)
        value = json.loads(CliRunner().invoke(check_command, [str(path), "--json", "--offline"]).stdout)
        return {key: value[key] for key in ("refused", "pair", "memory", "problems")}

    assert report("./stored") == report("./head")
    assert report("./stored")["pair"] == read_manifest(tmp_path / "head" / "pair.json").id


def target_warnings(stack: Path, content: dict[str, str], files: dict[str, str] | None = None) -> list[str]:
    """What is said of the stack's target where the manifest beside the head has this target; `files`: as a hub lists them."""
    place = stack.parent / "head" / "pair.json"
    manifest = read_manifest(place)
    write_manifest(replace(manifest, target=PairPart("t", content), shape=None), place)
    listed = replace(read_folder(stack.parent / "target"), files=files or {}, commit="1" * 40)
    told = judge_manifest(load_stack(stack), listed if files else None, None)
    assert {(one.rule, one.severity, one.path) for one in told} <= {
        ("pair-content", "warning", "target.model")
    }
    return [one.message for one in told]


def test_check_tells_another_target_of_every_kind(stack: Path, tmp_path: Path) -> None:
    """Package, GGUF file, folder and hub: the pair's own says nothing, another is told, and so is what cannot be compared."""
    here, a, b = "./head", "a" * 64, "b" * 64
    package = write_stack(stack, f"'pypi:name==1', sha256: {a}", here)
    assert target_warnings(package, {"wheel": a}) == []
    assert "wheel is another" in target_warnings(package, {"wheel": b})[0]
    assert "cannot be compared" in target_warnings(package, {"gguf": a})[0]
    (tmp_path / "t.gguf").write_bytes(b"GGUF")
    gguf = write_stack(stack, "./t.gguf", here)
    assert target_warnings(gguf, {"gguf": a}) == []
    assert "cannot be compared" in target_warnings(gguf, {"wheel": a})[0]
    folder = write_stack(stack, "./target", here)
    config = tmp_path / "target" / "config.json"
    for known in (file_digest(config), blob_id(config)):
        assert target_warnings(folder, {"config.json": known}) == []
    assert "config.json is another" in target_warnings(folder, {"config.json": a})[0]
    assert "cannot be compared" in target_warnings(folder, {"wheel": a})[0]
    listed = write_stack(stack, "org/name", here)
    files = {"model.safetensors": a, "README.md": b}
    assert target_warnings(listed, {"commit": "2" * 40, "model.safetensors": a}, files) == []
    assert "model.safetensors is another" in target_warnings(listed, {"model.safetensors": b}, files)[0]


def test_a_gguf_target_of_another_size(stack: Path, tmp_path: Path) -> None:
    """A GGUF file is not hashed by check, but another length is told."""
    (tmp_path / "t.gguf").write_bytes(b"GGUF")
    path = write_stack(stack, "./t.gguf", "./head")
    place = tmp_path / "head" / "pair.json"
    manifest = replace(read_manifest(place), shape=None)
    for size, said in ((4, []), (5, ["t.gguf has 4 bytes, in the pair 5"])):
        write_manifest(replace(manifest, target=PairPart("t", {"gguf": "a" * 64}, {"t.gguf": size})), place)
        told = judge_manifest(load_stack(path), None, None)
        assert [one.message.rpartition(": ")[2] for one in told] == said


def test_a_stored_head_on_a_hub(stack: Path, tmp_path: Path) -> None:
    """The engine would load it without its rows, so it is refused with what to do."""
    head = replace(read_folder(tmp_path / "head"), files={"rows.json": "a" * 40})
    (problem,) = judge_manifest(load_stack(stack), None, head)
    assert "cannot be loaded from a hub" in problem.message
    assert "Download it" in problem.hint


def test_a_built_in_head(stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``builtin:NAME`` is checked, verified and shown as a folder is; an unknown one is refused, and none is a target."""
    monkeypatch.setattr("outrider.stack.head_rows.BUILT_IN_HEADS", tmp_path / "heads")
    store_head(tmp_path / "head", tmp_path / "target", tmp_path / "stored")
    shutil.copytree(tmp_path / "stored", tmp_path / "heads" / "small")
    path = write_stack(tmp_path / "other.yaml", "./target", "builtin:small")
    assert problems(path) == []
    assert "pinned" not in CliRunner().invoke(check_command, [str(path), "--offline"]).output
    assert named(path) == read_manifest(tmp_path / "head" / "pair.json").id
    assert pair("verify", path).exit_code == 0
    assert "humaneval" in pair("show", path).stdout
    assert read_config("builtin:small") == json.loads((tmp_path / "head" / "config.json").read_text())
    unknown = write_stack(tmp_path / "other.yaml", "./target", "builtin:large")
    result = CliRunner().invoke(check_command, [str(unknown), "--offline"])
    assert result.exit_code == 10
    assert "no built-in head 'large'" in " ".join(result.output.split())
    as_target = write_stack(tmp_path / "other.yaml", "'builtin:small'", "./head")
    result = CliRunner().invoke(check_command, [str(as_target), "--offline"])
    assert result.exit_code == 10
    assert "is a draft head" in " ".join(result.output.split())

"""`outrider render` as a user meets it, the pair block behind it, and what is in the wheel."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from outrider.cli.main import explain
from outrider.cli.render import render_command
from outrider.core.errors import OutriderError, RenderError, StackError
from outrider.deploy.pair_block import pair_block
from outrider.deploy.render import CHART, PROFILES, as_yaml, manifests, with_profiles
from outrider.deploy.values import Wish, installed, values_of
from outrider.engines.choose import engine_of
from outrider.engines.vllm.adapter import VllmEngine
from outrider.stack.facts import ModelFacts, facts_from_config
from outrider.stack.find_facts import Found, Source
from outrider.stack.load import load_stack, load_stack_text
from outrider.stack.manifest import PairManifest, PairPart, ServedAcceptance, pair_id
from outrider.stack.models import ApiKey
from tests.deploy.charts import HERE, SHAPES, Case, template, tool, values

ROOT = Path(__file__).parents[2]
LLAMA = HERE / "stacks" / "llama.yaml"
COMMON = ("--facts", str(SHAPES), "--offline", "--front-image", "f:1", "--engine-image", "e:1")


def render(*arguments: object) -> str:
    """What the command prints."""
    done = CliRunner().invoke(
        render_command, [str(one) for one in arguments], catch_exceptions=False, standalone_mode=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_manifests_come_out_of_one_command(helm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--manifests` gives what `helm template` gives, under the names that were asked for."""
    monkeypatch.setenv("HELM_BIN", tool(helm))
    text = render(
        LLAMA, *COMMON, "--manifests", "--release", "pair-a", "--namespace", "serving", "--profile", "keda"
    )
    kinds = {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(text) if one}
    assert {("Deployment", "pair-a-front"), ("ScaledObject", "pair-a-engine")} <= kinds
    assert 'namespace=\\"serving\\"' in text


def test_values_are_written_whole(tmp_path: Path) -> None:
    """`-o`, with a first line that says what made them."""
    out = tmp_path / "values.yaml"
    assert render(LLAMA, *COMMON, "-o", out) == ""
    text = out.read_text()
    assert text.startswith("# Made by `outrider render`")
    assert yaml.safe_load(text)["images"] == {"front": "f:1", "engine": "e:1"}


def test_what_check_refuses_is_not_rendered(tmp_path: Path) -> None:
    """70 B in FP8 on a slice of an H200: the reasons are check's."""
    path = tmp_path / "stack.yaml"
    path.write_text(LLAMA.read_text().replace("accelerator: h200", "accelerator: h200-mig-2g.35gb"))
    with pytest.raises(StackError) as refused:
        render(path, *COMMON)
    assert any(problem.rule == "memory" for problem in refused.value.problems)


def test_what_the_engine_cannot_do_is_refused_with_the_rest(tmp_path: Path) -> None:
    """All reasons at once, the engine's and check's."""
    path = tmp_path / "stack.yaml"
    text = LLAMA.read_text().replace("accelerator: h200", "accelerator: h200-mig-2g.35gb, name: sglang")
    path.write_text(text.replace("method: eagle3", "method: p-eagle"))
    with pytest.raises(StackError) as refused:
        render(path, *COMMON)
    assert {"engine-feature", "memory"} <= {problem.rule for problem in refused.value.problems}


def test_a_given_image_and_version_of_another_engine() -> None:
    """The image is the project's own of that version, unless one is given; that the version was not read is said."""
    stack, said = load_stack(HERE / "stacks" / "sglang.yaml"), list[str]()
    wish = Wish("f:1", "", version="0.5.21")
    made: Any = values_of(stack, engine_of(stack), wish, Source(SHAPES, offline=True), said.append)
    assert made["images"]["engine"] == "lmsysorg/sglang:v0.5.21"
    assert any("of 0.5.23, not of 0.5.21" in line for line in said)
    wish = Wish("f:1", "mine:1", version="0.5.21")
    made = values_of(stack, engine_of(stack), wish, Source(SHAPES, offline=True), said.append)
    assert made["images"]["engine"] == "mine:1"


def test_slices_cannot_share_a_model(tmp_path: Path) -> None:
    """Tensor parallelism over MIG slices is refused with the reason."""
    text = (
        (HERE / "stacks" / "mig.yaml")
        .read_text()
        .replace("max_running_requests: 8", "max_running_requests: 8, tensor_parallel: 2")
    )
    stack = load_stack_text(text.replace("  chat_template: chat.jinja\n", ""), "mig")
    with pytest.raises(StackError) as refused:
        values_of(stack, VllmEngine(), Wish(), Source(SHAPES, offline=True), lambda line: None)
    assert "cannot be shared by MIG slices" in refused.value.problems[0].message


def test_a_named_cache_is_what_a_slice_must_hold() -> None:
    """KV cache that the stack names, in place of one request: the least slice that is taken has room for it."""
    text = (HERE / "stacks" / "mig.yaml").read_text().replace("  chat_template: chat.jinja\n", "")
    needed = {}
    for named in ("", ", kv_cache_gib: 1", ", kv_cache_gib: 20"):
        stack = load_stack_text(
            text.replace("max_running_requests: 8", f"max_running_requests: 8{named}"), "mig"
        )
        made: Any = values_of(
            stack, VllmEngine(), Wish("f:1", "e:1"), Source(SHAPES, offline=True), lambda line: None
        )
        needed[named] = made["engines"]["engine"]["resources"]["neededGiB"]
    assert needed[", kv_cache_gib: 20"] - needed[", kv_cache_gib: 1"] == pytest.approx(19 / 0.9, abs=0.02)
    made["engines"]["engine"]["resources"]["gpu"] = "nvidia.com/mig-1g.18gb"
    done = template("helm4", made)
    assert "take a larger slice" in done.stderr


def test_made_up_weights_are_not_for_clients(tmp_path: Path) -> None:
    """A front would refuse such a stack at every start."""
    path = tmp_path / "stack.yaml"
    path.write_text(LLAMA.read_text() + "forecast: {position_rates: [0.8, 0.6, 0.4]}\n")
    with pytest.raises(StackError) as refused:
        render(path, *COMMON)
    assert refused.value.problems[0].rule == "forecast-served"


@pytest.mark.parametrize(
    ("option", "name"),
    [("--release", "My App"), ("--release", "a" * 41), ("--namespace", "a b"), ("--namespace", "a" * 57)],
)
def test_names_that_no_cluster_takes_are_refused(option: str, name: str) -> None:
    """Before an ApplicationSet has them."""
    with pytest.raises(click.BadParameter, match="small letters"):
        render("--applicationset", "https://git.example/serving.git", option, name)


def test_both_scalers_are_refused() -> None:
    """Never two that scale the same Deployment."""
    with pytest.raises(RenderError) as refused:
        with_profiles({}, ["keda", "hpa"])
    assert "both scale the same Deployment" in explain(refused.value)
    assert refused.value.exit_code == 14


def test_without_helm_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out that needs no Helm is named."""
    monkeypatch.delenv("HELM_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RenderError) as refused:
        manifests("{}", "a", "b")
    assert "-o values.yaml" in refused.value.hint


def test_helms_refusal_is_passed_on_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys: the chart's sentence, not Helm's chain."""
    monkeypatch.setenv("HELM_BIN", tool("helm4"))
    path = tmp_path / "stack.yaml"
    text = re.sub(r"  keys:\n(    - .*\n)+", "", LLAMA.read_text())
    path.write_text(text)
    with pytest.raises(OutriderError, match="Helm refuses the values: No API keys"):
        render(path, *COMMON, "--manifests")


def test_every_profile_is_a_choice_and_every_choice_a_profile() -> None:
    """Files and names agree."""
    assert {path.stem for path in (CHART / "profiles").glob("*.yaml")} == set(PROFILES)


@pytest.mark.parametrize(
    "text",
    ["1e5", "0x1f", "1_000", "12", "-1", ".5", "0o7", "yes", "y", "N", "null", "a: b", "two\nlines\n", "é"],
)
def test_no_reader_takes_a_text_for_something_else(text: str) -> None:
    """Also a YAML reader that knows more numbers than ours: such texts are quoted."""
    written = as_yaml({"key": text})
    assert yaml.safe_load(written) == {"key": text}
    if text in "yN" or (re.match(r"[-+.0-9]", text) and re.search(r"\d", text)):
        assert written == f"key: '{text}'\n"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profiles_file_gives_helm_what_the_option_gives(name: str) -> None:
    """`-f profiles/NAME.yaml` after the values, or `--profile NAME`: the same manifests, and not those of none."""
    wish = {"split_lanes": True} if name == "kueue" else {}
    more = {"engineKey": {"existingSecret": "outrider-engine-key"}}
    plain = values(Case(wish=wish, more=more))
    by_option = template("helm4", values(Case(profiles=(name,), wish=wish, more=more)))
    by_file = template("helm4", plain, "--values", str(CHART / "profiles" / f"{name}.yaml"))
    assert by_option.returncode == 0, by_option.stderr
    assert by_option.stdout == by_file.stdout
    assert by_option.stdout != template("helm4", plain).stdout


def test_flags_stay_readable() -> None:
    """A flag is no number."""
    assert as_yaml(["--port", "8000"]) == "- --port\n- '8000'\n"


def facts(model: str, commit: str, **files: str) -> ModelFacts:
    """Facts of a hub model."""
    from dataclasses import replace

    config = json.loads((SHAPES / "rehearsal.config.json").read_text())
    return replace(facts_from_config(config, model), commit=commit, files=files)


def test_a_hub_pair_is_pinned_with_all_its_hashes() -> None:
    """Also where the stack has no revision: the commit is the one that the hub has now, and the hash is `check`'s."""
    stack = load_stack_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: a/t}\ndraft: {method: eagle3, model: a/d}\n", "s"
    )
    found = Found(facts("a/t", "1" * 40, weights="2" * 64), facts("a/d", "3" * 40, weights="4" * 64))
    counted: Any = {"requests": 8, "output_tokens": 900, "acceptance_length": 2.0, "per_position": (0.6, 0.4)}
    served = ServedAcceptance("mine", 2, drafts=400, accepted=400, **counted)
    manifest = PairManifest(PairPart("t"), PairPart("d"), "eagle3", served=(served,))
    said: list[str] = []
    block: Any = pair_block(stack, found, manifest, said.append, offline=False)
    contents = [{"commit": "1" * 40, "weights": "2" * 64}, {"commit": "3" * 40, "weights": "4" * 64}]
    assert block["hash"] == pair_id(*contents)
    assert [block[side]["revision"] for side in ("target", "draft")] == ["1" * 40, "3" * 40]
    assert [block[side]["content"] for side in ("target", "draft")] == contents
    assert block["baseline"] == {"acceptanceLength": 2.0, "source": "pair.json, mine"}
    assert said == []


NO_HUB = "http://127.0.0.1:9"  # the discard port: nobody answers


def render_without_hub(*arguments: object) -> str:
    """The command, and its error where it refuses, in a process of its own: the hub's address is read when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "outrider", "render", *(str(one) for one in arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "HF_ENDPOINT": NO_HUB, "HF_HUB_OFFLINE": "0"},
    )
    return f"exit {done.returncode}\n{done.stderr}{done.stdout}"


@pytest.mark.parametrize("facts", [(), ("--facts", str(SHAPES))])
def test_without_a_hub_nothing_is_rendered(facts: tuple[str, ...], tmp_path: Path) -> None:
    """Values that hold the pods to no pair are not written in silence: exit 11 as `check`, and the way out is named.

    Facts of one's own do not change that: they have no commits and no hashes."""
    out = tmp_path / "values.yaml"
    said = render_without_hub(LLAMA, *facts, "-o", out)
    assert said.startswith("exit 11\n"), said
    assert "nothing was rendered" in said
    assert "--offline" in said
    assert not out.exists()


def test_without_a_hub_what_check_refuses_is_still_refused_as_that(tmp_path: Path) -> None:
    """A stack that cannot work is exit 10, whatever the hub does."""
    path = tmp_path / "stack.yaml"
    path.write_text(LLAMA.read_text().replace("accelerator: h200", "accelerator: h201"))
    assert render_without_hub(path).startswith("exit 10\n")


def test_offline_is_the_way_without_a_hub(tmp_path: Path) -> None:
    """Asked for, it is rendered, and what the values lack is said."""
    out = tmp_path / "values.yaml"
    said = render_without_hub(LLAMA, "--offline", "--facts", SHAPES, "-o", out)
    assert said.startswith("exit 0\n"), said
    assert "files are not checked in the pod" in said
    assert yaml.safe_load(out.read_text())["pair"]["target"]["revision"] == "1" * 40


def test_a_side_that_no_hub_lists_is_said() -> None:
    """Unpinned and unchecked: both are told, and the block says so too."""
    stack = load_stack_text(
        "apiVersion: outrider/v1alpha1\ntarget: {model: a/t}\ndraft: {method: none}\n", "s"
    )
    said: list[str] = []
    block: Any = pair_block(stack, Found(None, None), None, said.append, offline=True)
    assert "not even pinned" in said[0]
    assert block["target"]["content"] == {"model": "a/t", "commit": "unpinned"}
    assert block["draft"]["content"] == {"method": "none"}


def test_a_folder_of_this_machine_becomes_the_pods(tmp_path: Path) -> None:
    """Its path is not told; its files' hashes are."""
    from tests.unit.test_placed import model

    folder = model(tmp_path / "secret-place", b"w")
    stack = load_stack_text(
        f"apiVersion: outrider/v1alpha1\ntarget: {{model: {folder}}}\ndraft: {{method: ngram}}\n", "s"
    )
    block: Any = pair_block(stack, Found(None, None), None, lambda line: None, offline=False)
    assert block["target"]["model"] == "/models/target"
    assert set(block["target"]["content"]) == {"config.json", "model.safetensors"}
    assert "secret-place" not in json.dumps(block)


def test_the_chart_is_in_the_wheel(tmp_path: Path) -> None:
    """All of it, so that `outrider render` works where it is installed."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("outrider-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name.removeprefix("outrider/data/chart/outrider/") for name in archive.namelist()}
    assert {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()} <= inside


def test_the_images_hold_what_the_core_needs() -> None:
    """requirements/core.txt, which the front's image installs, names every dependency of the distribution."""
    import tomllib

    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "core.txt").read_text(), re.MULTILINE)
    names = {re.split(r"[><=]", one)[0].lower().replace("_", "-") for one in wanted}
    assert names <= set(locked)
    recipe = (ROOT / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM .* AS (\S+)$", recipe, re.MULTILINE)) == {
        "wheels",
        "front",
        "engine-cuda",
        "engine-cpu",
        "bench",
    }
    for stage in re.split(r"^FROM ", recipe, flags=re.MULTILINE)[2:]:
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE)[-1] == "10001:10001"
    for line in re.findall(r"^ARG \w+_IMAGE=(.*)$", recipe, re.MULTILINE):
        assert re.search(r":v?\d+\.\d+\.\d+", line), f"{line} is not pinned"
    # the command is rendered for the version that the image has
    assert f"vllm-openai:v{installed(load_stack(LLAMA), VllmEngine(), '').version}" in recipe


def test_the_chart_knows_every_member_of_a_key() -> None:
    """A member that the stack gets and the chart's schema does not would refuse every rendering with keys."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["properties"]["keys"]["properties"]["list"]["items"]["properties"]
    assert known.keys() == ApiKey.model_fields.keys()

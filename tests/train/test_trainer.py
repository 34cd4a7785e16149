"""A real training on this machine's CPU: a tiny head for a tiny target, in the trainer's own process, to a folder for vLLM.

Also the ways it ends early: killed, told to stop, told another setting, out of memory, out of disk; and that it goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from outrider.core.errors import TrainingError
from outrider.stack.models import API_VERSION, Stack
from outrider.stack.pair_heads import judge_head
from outrider.stack.read_facts import read_folder
from outrider.stack.store_head import store_head
from outrider.train import process as starting
from outrider.train.events import Planned, Progressed, TrainerEvent
from outrider.train.job import TrainJob
from outrider.train.process import TrainerFailed, TrainSummary, train
from tests.train.tiny import HIDDEN, SPECIAL, VOCABULARY

Trained = tuple[str, Path, TrainSummary, list[TrainerEvent]]

METHODS = ("eagle3", "p-eagle")
AUX = (1, 3, 4)
DRAFTED = 64


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices on a busy machine: threads that wait for each other take longer than the work."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    yield
    os.environ.pop("OMP_NUM_THREADS")
    if before:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target and the rows it wrote, made in a process of its own."""
    folder = tmp_path_factory.mktemp("tiny")
    make = "import sys; from pathlib import Path; from tests.train.tiny import *; t = Path(sys.argv[1]); "
    make += "write_target(t); write_rows(t, t / 'rows.jsonl')"
    subprocess.run([sys.executable, "-c", make, str(folder)], check=True, cwd=Path(__file__).parents[2])
    return folder


def job(target: Path, out: Path, **changes: Any) -> TrainJob:
    """A training of seconds."""
    settings = {
        "method": "eagle3",
        "target": target,
        "target_name": "tiny/target",
        "rows": (target / "rows.jsonl",),
        "out": out,
        "work": out / "work",
        "draft_vocab_size": DRAFTED,
        "aux_layers": AUX,
        "batch_tokens": 256,
        "max_row_tokens": 64,
        "epochs": 6,
        "held_out_ratio": 0.2,
        "device": "cpu",
        "progress_every_s": 0,
    }
    return TrainJob(**{**settings, **changes})


@pytest.fixture(scope="module")
def heads(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """A head of each method: the method, its folder, what `train` returned and what it said."""
    made: dict[str, Trained] = {}
    for method in METHODS:
        out, heard = tmp_path_factory.mktemp("head"), list[TrainerEvent]()
        made[method] = (method, out, train(job(target, out, method=method), heard.append), heard)
    return made


@pytest.fixture(params=METHODS)
def trained(request: pytest.FixtureRequest, heads: dict[str, Trained]) -> Trained:
    """Each of them."""
    return heads[request.param]


def test_the_head_learns(trained: Trained) -> None:
    """The loss falls on held-out rows too, and the head comes to say what the target says."""
    _, _, summary, _ = trained
    assert [one.epoch for one in summary.curve] == [1, 2, 3, 4, 5, 6]
    first, last = summary.curve[0], summary.curve[-1]
    assert last.loss is not None
    assert first.loss is not None
    assert last.loss < 0.6 * first.loss
    assert last.held_out_loss < 0.8 * first.held_out_loss
    assert last.accuracy[0] > 0.25  # one of 64 tokens
    assert last.length == pytest.approx(1 + sum(last.accuracy))
    assert list(last.accuracy) == sorted(last.accuracy, reverse=True)
    assert (summary.done.accuracy, summary.done.held_out_loss) == (last.accuracy, last.held_out_loss)


def test_what_is_said_on_the_way(trained: Trained) -> None:
    """The plan first, progress with the time left, an evaluation an epoch, and the log holds all but most of the progress."""
    _, out, summary, heard = trained
    plan, done = summary.plan, summary.done
    assert heard[0] == plan
    assert heard[-1] == done
    steps = [one.step for one in heard if isinstance(one, Progressed)]
    assert steps == sorted(steps)
    assert steps[-1] == plan.steps == done.steps == summary.curve[-1].step
    progress = [one for one in heard if isinstance(one, Progressed)]
    assert progress[1].seconds_left > progress[-1].seconds_left >= 0
    assert max(one.learning_rate for one in progress) > 20 * progress[-1].learning_rate
    assert any(one.target_share for one in progress)
    assert 0.75 < done.tokens / (plan.epochs * plan.tokens) < 0.85  # the rest is held out
    assert done.tokens % plan.epochs == 0
    assert done.tok_s > 0
    assert 0 < done.first_step_s < 600
    assert done.versions["speculators"] == "0.9.0"
    lines = [json.loads(line) for line in (out / "work" / "train_log.jsonl").read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert [kinds[0], kinds[-1], kinds.count("epoch")] == ["plan", "done", 6]


def test_the_size_is_known_before_the_first_step(trained: Trained) -> None:
    """Bytes without the target's rows, and of the whole file; what is stored for a built-in head is the former."""
    method, out, summary, _ = trained
    plan, weights = summary.plan, out / "model.safetensors"
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    assert plan.file_bytes == weights.stat().st_size - header
    assert plan.file_bytes - plan.head_bytes == 2 * DRAFTED * HIDDEN
    assert summary.done.file_bytes == weights.stat().st_size
    rows = (target_of(trained) / "rows.jsonl").read_text().splitlines()
    used = {token for row in rows for token in json.loads(row)["input_ids"]}
    special = set(range(len(SPECIAL)))
    assert plan.mask_token is None if method == "eagle3" else plan.mask_token in special - used
    assert (plan.depth, plan.aux_layers, plan.draft_vocab_size) == (
        3 if method == "eagle3" else 5,
        AUX,
        DRAFTED,
    )


def test_the_folder_is_what_the_engine_loads(trained: Trained) -> None:
    """The tensors vLLM asks for, none of the target's, no code, no path, readable by all; `check` has nothing to say."""
    method, out, _, _ = trained
    facts = read_folder(out)
    wide = 3 * HIDDEN
    expected = {
        "fc.weight": (HIDDEN, wide),
        "input_norm.weight": (wide,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFTED, HIDDEN),
        "d2t": (DRAFTED,),
        "t2d": (VOCABULARY,),
        "layers.0.hidden_norm.weight": (HIDDEN,),
        "layers.0.input_layernorm.weight": (HIDDEN,),
        "layers.0.post_attention_layernorm.weight": (HIDDEN,),
        "layers.0.mlp.gate_proj.weight": (2 * HIDDEN, HIDDEN),
        "layers.0.mlp.up_proj.weight": (2 * HIDDEN, HIDDEN),
        "layers.0.mlp.down_proj.weight": (HIDDEN, 2 * HIDDEN),
        "layers.0.self_attn.q_proj.weight": (HIDDEN, 2 * HIDDEN),
        "layers.0.self_attn.k_proj.weight": (HIDDEN // 2, 2 * HIDDEN),
        "layers.0.self_attn.v_proj.weight": (HIDDEN // 2, 2 * HIDDEN),
        "layers.0.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    }
    if method == "p-eagle":
        expected["mask_hidden"] = (1, 1, wide)
    assert {name: one.shape for name, one in facts.tensors.items()} == expected
    assert {one.dtype for name, one in facts.tensors.items() if name not in ("d2t", "t2d")} == {"BF16"}
    text = (out / "config.json").read_text()
    assert "auto_map" not in text
    assert "/" not in text.replace("tiny/target", "")
    for name in ("config.json", "model.safetensors"):
        assert stat.S_IMODE((out / name).stat().st_mode) == 0o644
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors", "work"]
    stack = Stack.model_validate(
        {
            "apiVersion": API_VERSION,
            "target": {"model": "tiny/target"},
            "draft": {"method": method, "model": str(out), "draft_length": 3},
        }
    )
    assert list(judge_head(stack, read_folder(target_of(trained)), facts)) == []


def target_of(trained: Trained) -> Path:
    """The folder of the target that a head was trained for."""
    return Path(json.loads((trained[1] / "work" / "train_job.json").read_text())["target"])


def test_what_is_the_targets_can_be_left_out(trained: Trained, tmp_path: Path) -> None:
    """`lm_head` is the target's rows bit for bit: the stored form is smaller by them, and refuses a head where they are not."""
    _, out, summary, _ = trained
    store_head(out, target_of(trained), tmp_path / "stored")
    stored = (tmp_path / "stored" / "model.safetensors").stat().st_size
    assert stored == pytest.approx(summary.plan.head_bytes, abs=4096)
    assert stored < summary.done.file_bytes - 2 * DRAFTED * HIDDEN + 4096


def test_vllms_own_reader_takes_the_config(heads: dict[str, Trained]) -> None:
    """Speculators' format, turned into the draft's config and the speculation's: layers, norms, mask token, method."""
    ask = (
        "import json, sys; from vllm.transformers_utils.configs.speculators.base import SpeculatorsConfig as S\n"
        "for path in sys.argv[1:]:\n  c = json.load(open(path))\n"
        "  print(json.dumps([S.extract_vllm_speculative_config(c), S.extract_transformers_pre_trained_config(c)]))"
    )
    configs = [str(out / "config.json") for _, out, _, _ in heads.values()]
    asked = [sys.executable, "-c", ask, *configs]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[-2:]
    (speculation, draft), (parallel, masked) = map(json.loads, told)
    assert speculation == {"method": "eagle3", "num_speculative_tokens": 3}
    assert parallel == {"method": "eagle3", "num_speculative_tokens": 5, "parallel_drafting": True}
    assert draft["architectures"] == ["Eagle3LlamaForCausalLM"]
    assert masked["architectures"] == ["PeagleLlamaForCausalLM"]
    for one in (draft, masked):
        assert one["eagle_aux_hidden_state_layer_ids"] == list(AUX)
        assert (one["draft_vocab_size"], one["vocab_size"]) == (DRAFTED, VOCABULARY)
        assert (one["norm_before_residual"], one["norm_before_fc"]) == (True, True)
    assert draft["norm_output"] is True
    assert not masked.get("norm_output")
    assert masked["pard_token"] == heads["p-eagle"][2].plan.mask_token


def test_a_killed_run_goes_on_and_ends_with_the_same_steps(
    heads: dict[str, Trained], target: Path, tmp_path: Path
) -> None:
    """SIGKILL, then Ctrl-C, then to the end, as if nobody had disturbed it; once more, the head is only written."""
    _, _, whole, _ = heads["eagle3"]
    mine = job(target, tmp_path, checkpoint_every_s=0)

    def at_step(step: int, do: Callable[[], None]) -> Callable[[TrainerEvent], None]:
        def say(event: TrainerEvent) -> None:
            if isinstance(event, Progressed) and event.step == step:
                do()

        return say

    with pytest.raises(TrainerFailed, match=r"killed .*memory") as killed:
        train(mine, at_step(11, kill_trainer))
    assert killed.value.kind == "killed"
    assert not (tmp_path / "model.safetensors").exists()
    stopped = mine.model_copy(update={"checkpoint_every_s": 1e6})
    with pytest.raises(KeyboardInterrupt):
        train(stopped, at_step(20, interrupt))
    heard: list[TrainerEvent] = []
    again = train(stopped, heard.append)
    assert isinstance(heard[0], Planned)
    assert heard[0].resumed_steps >= 20  # kept when it was told to stop: nothing else had kept it
    assert again.done.steps == whole.done.steps == again.plan.steps
    assert again.done.tokens == whole.done.tokens
    assert again.done.held_out_loss == pytest.approx(whole.done.held_out_loss, rel=0.03)
    made = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "config.json").unlink()
    once_more = train(stopped, heard.append)
    assert once_more.plan.resumed_steps == once_more.done.steps == whole.done.steps
    assert [one.step for one in again.curve] == [one.step for one in whole.curve]
    assert once_more.curve == again.curve
    assert once_more.done.tok_s == pytest.approx(again.done.tok_s)
    assert (tmp_path / "model.safetensors").read_bytes() == made
    assert (tmp_path / "config.json").exists()


def kill_trainer() -> None:
    """As the kernel does when memory is short."""
    trainer().kill()


def interrupt() -> None:
    """Ctrl-C in this process."""
    raise KeyboardInterrupt


def trainer() -> psutil.Process:
    """The trainer that this process started."""
    children = psutil.Process().children()
    return next(one for one in children if "outrider.train.trainer" in " ".join(one.cmdline()))


def test_told_to_stop_it_keeps_what_it_has(target: Path, tmp_path: Path) -> None:
    """SIGTERM to the trainer alone, with a time limit: kept, said so; then the rest of the time, and the rate ends with it."""

    def say(event: TrainerEvent) -> None:
        if isinstance(event, Progressed) and event.step == 5:
            trainer().terminate()

    timed = job(target, tmp_path, epochs=1000, max_minutes=0.05, muon_learning_rate=6e-3)
    with pytest.raises(TrainerFailed, match="interrupted at step") as stopped:
        train(timed, say)
    assert stopped.value.kind == "interrupted"
    assert "goes on" in stopped.value.hint
    assert (tmp_path / "work" / "checkpoint" / "state.pt").exists()
    with pytest.raises(TrainerFailed, match="other settings: loss, seed") as refused:
        train(timed.model_copy(update={"seed": 7, "loss": "ce"}), say)
    assert refused.value.kind == "refused"
    heard: list[TrainerEvent] = []
    summary = train(timed, heard.append)
    assert summary.plan.resumed_steps >= 5
    assert summary.done.steps < summary.plan.steps
    assert 3 <= summary.done.elapsed_s < 30
    last = [one for one in heard if isinstance(one, Progressed)][-1]
    assert last.learning_rate < 0.2 * 6e-3
    assert (tmp_path / "config.json").exists()


def test_a_full_disk_is_said_and_nothing_half_written_stays(target: Path, tmp_path: Path) -> None:
    """Another Python, under a limit of file size (the kernel's EFBIG): a clear end, no head, no half a checkpoint."""
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/bash\nulimit -f 64\nexec {sys.executable} "$@"\n')
    limited.chmod(0o755)
    with pytest.raises(TrainerFailed, match="disk is full") as full:
        train(job(target, tmp_path / "head", checkpoint_every_s=0), lambda event: None, python=str(limited))
    assert full.value.kind == "disk-full"
    assert "goes on" in full.value.hint
    assert [path.name for path in (tmp_path / "head").iterdir()] == ["work"]
    assert list((tmp_path / "head" / "work" / "checkpoint").iterdir()) == []


def test_one_training_at_a_time_in_a_folder(target: Path, tmp_path: Path) -> None:
    """The second is refused before it loads anything."""
    (tmp_path / "work").mkdir()
    with (tmp_path / "work" / ".trainer.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TrainerFailed, match="another training is at work") as refused:
            train(job(target, tmp_path), lambda event: None)
    assert refused.value.hint


def test_what_is_not_installed_is_named(target: Path, tmp_path: Path) -> None:
    """A Python without torch: every missing module and how to get them, before anything is started."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/bash\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(TrainingError, match=r"torch, transformers, .*speculators, hs_connectors") as missing:
        train(job(target, tmp_path), lambda event: None, python=str(bare))
    assert "train-env" in missing.value.hint
    with pytest.raises(TrainingError, match="cannot be run"):
        train(job(target, tmp_path), lambda event: None, python=str(tmp_path / "none"))


def test_a_trainer_that_dies_without_a_word_is_quoted(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signal or status and the last lines of its log."""
    dying = tmp_path / "python"
    dying.write_text("#!/bin/bash\necho 'the last words' >&2; kill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(starting, "check_installed", lambda python: None)
    with pytest.raises(TrainerFailed, match="ended by SIGSEGV: the last words") as died:
        train(job(target, tmp_path), lambda event: None, python=str(dying))
    assert "trainer.log" in died.value.hint


def test_torch_stays_in_the_trainers_process() -> None:
    """Starting a training imports none of what trains."""
    ask = "import sys, outrider.train.process; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"

"""Parts of a step without a target: the rate, the pace, batches made ahead, a loss that is no number, files that do not fit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outrider.core.errors import TrainingError
from outrider.train.job import TrainJob
from tests.train.tiny import load_trainer


@pytest.fixture(scope="module", autouse=True)
def trainer() -> None:
    """Its libraries, imported once."""
    load_trainer()


def settled(work: Path, **changes: Any) -> Any:
    """A job on a CPU."""
    given = {
        "method": "eagle3",
        "target": work,
        "target_name": "tiny",
        "rows": (work / "rows.jsonl",),
        "out": work,
        "work": work,
        **changes,
    }
    return TrainJob(**given).settled("cpu")


def test_the_rate_warms_up_and_ends_with_steps_or_time() -> None:
    """Linear to the top, then a cosine to 2 %; whichever limit comes first bends it down."""
    from outrider.train.trainer.optimizer import rate_share

    shares = [rate_share(step, 1000, 0.0, 100) for step in range(1001)]
    assert shares[0] == pytest.approx(1 / 50)  # a twentieth of all steps is warm-up
    assert max(shares) > 0.99
    assert shares[500] == pytest.approx(0.51, abs=0.01)
    assert shares[-1] == pytest.approx(0.02)
    assert rate_share(500, 1000, 1.0, 100) == pytest.approx(0.02)
    assert rate_share(500, 1000, 0.2, 100) == shares[500]
    assert rate_share(0, 1000, 0.0, 0) == pytest.approx(1.0)


def test_which_weights_muon_moves() -> None:
    """Matrices that are trained; AdamW has the rest, and with `adamw` all; frozen ones nobody has."""
    import torch

    from outrider.train.trainer.optimizer import build_optimizers, set_rate

    module = torch.nn.Module()
    module.matrix = torch.nn.Linear(4, 3)
    module.frozen = torch.nn.Linear(4, 3).requires_grad_(False)
    module.state = torch.nn.Parameter(torch.zeros(1, 1, 4))
    muon, adamw = build_optimizers(module, settled(Path(), muon_learning_rate=0.5, learning_rate=0.25), 4)
    assert [one.shape for one in muon.param_groups[0]["params"]] == [(3, 4)]
    assert [one.shape for one in adamw.param_groups[0]["params"]] == [(1, 1, 4), (3,)]
    assert set_rate([muon, adamw], 0.5) == 0.25
    assert adamw.param_groups[0]["lr"] == 0.125
    (alone,) = build_optimizers(module, settled(Path(), optimizer="adamw"), 4)
    assert len(alone.param_groups[0]["params"]) == 3


@pytest.mark.parametrize("shape", [(24, 16), (16, 24)])
def test_muon_in_float32_goes_where_torch_s_goes(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bf16 instructions nothing is cast to bf16, which is up to fifty times slower there; the steps are the same."""
    import torch

    from outrider.train.trainer.optimizer import build_optimizers

    torch.manual_seed(0)
    start, gradients = torch.randn(shape), torch.randn(3, *shape)

    def moved(*, bf16: bool) -> Any:
        module = torch.nn.Module()
        module.matrix = torch.nn.Parameter(start.clone())
        (muon,) = build_optimizers(module, settled(Path(), muon_learning_rate=0.5), 4, bf16=bf16)
        for gradient in gradients:
            module.matrix.grad = gradient.clone()
            muon.step()
        return module.matrix.detach() - start, list(muon.state[module.matrix])

    theirs, their_state = moved(bf16=True)
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: pytest.fail("cast to bf16"))
    ours, our_state = moved(bf16=False)
    assert float((ours - theirs).norm() / theirs.norm()) < 0.02
    assert our_state == their_state


@pytest.mark.parametrize(("width", "rate"), [(64, 6e-3), (576, 6e-3), (1536, 3.5 / 1536), (8192, 3.5 / 8192)])
def test_a_wider_target_gets_a_lower_rate(width: int, rate: float) -> None:
    """At 0.006 a head of width 1,536 unlearned for three epochs what it had learned in the first."""
    import torch

    from outrider.train.trainer.optimizer import build_optimizers

    module = torch.nn.Module()
    module.matrix = torch.nn.Linear(4, 3, bias=False)
    (muon,) = build_optimizers(module, settled(Path()), width)
    assert muon.param_groups[0]["peak"] == pytest.approx(rate)


def test_a_loss_that_rises_halves_the_rate() -> None:
    """Once for each epoch over the lowest yet; what was lowest stays."""
    from outrider.train.trainer.checkpoint import Position
    from outrider.train.trainer.loop import judged

    at, rates = Position(), []
    for loss in (2.28, 2.62, 2.80, 2.10, 2.09):
        at = judged(at, loss)
        rates.append(at.rate)
    assert rates == [1, 0.5, 0.25, 0.25, 0.25]
    assert at.lowest_loss == 2.09


def test_measuring_is_time_and_no_pace() -> None:
    """Tokens a second of steps alone; the time that a limit counts is all of it, and that of earlier runs."""
    from outrider.train.trainer.meters import Pace

    now = [100.0]
    pace = Pace(spent_s=40.0, paced_tokens=500, paced_s=5.0, clock=lambda: now[0])
    pace.start()
    pace.begin_lap(1000, 10)

    def pass_(seconds: float) -> None:
        now[0] += seconds

    pass_(2)
    pace.pause()
    pass_(5)
    pace.measured(5.0)
    pace.go_on()
    pass_(2)
    assert pace.untold_s == 4
    assert pace.lap(1400, 14) == 100
    assert pace.elapsed_s == 49
    assert pace.seconds_left(steps=6, evaluations=1) == 6 + 5
    pass_(1)
    pace.lap(1500, 15)
    assert pace.tok_s == 100


def test_batches_come_in_order_and_a_fault_comes_in_its_turn() -> None:
    """Made by another thread, which ends when nobody wants more."""
    from outrider.train.rows import Row
    from outrider.train.trainer.corpus import gather
    from outrider.train.trainer.feed import AHEAD, ahead
    from outrider.train.trainer.packing import Batch, assemble

    corpus = gather([Row((5, 6, 7, 8), (0, 0, 1, 1), (), "stop", "data")] * 40, 8, 9)
    made: list[int] = []

    def maker(number: int) -> Callable[[], Batch]:
        def make() -> Batch:
            if number == 30:
                raise ValueError("the thirtieth")
            made.append(number)
            return assemble(corpus, np.asarray([number]), 1)

        return make

    seen: list[int] = []

    def take_all() -> None:
        with closing(ahead(map(maker, range(40)), False)) as feed:
            seen.extend(int(placed.batch.rows[0]) for placed in feed)

    with pytest.raises(ValueError, match="the thirtieth"):
        take_all()
    assert seen == list(range(30))
    made.clear()
    with closing(ahead(map(maker, range(40)), False)) as feed:
        next(feed)
        time.sleep(0.3)
    assert len(made) <= AHEAD + 2
    assert "feed" not in {thread.name for thread in threading.enumerate()}


def test_a_loss_that_is_no_number_ends_the_run_before_it_is_kept(tmp_path: Path) -> None:
    """The checkpoint before stays the last one."""
    import torch

    from outrider.train.trainer.checkpoint import FILE, Position
    from outrider.train.trainer.loop import Diverged, Loop

    loop = Loop.__new__(Loop)
    loop.__dict__.update(
        _losses=[torch.tensor(1.0), torch.tensor(float("nan"))],
        _epoch_losses=[],
        at=replace(Position(), step=7),
    )
    with pytest.raises(Diverged, match="at step 7") as diverged:
        loop._keep()
    assert "learning rate" in diverged.value.hint
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_held_out_loss_that_is_no_number_ends_the_run_too(
    loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step may be what spoilt the weights, and no training loss saw it: they are not kept, exported or judged by."""
    from outrider.train.trainer import loop as trainer
    from outrider.train.trainer.checkpoint import Position
    from outrider.train.trainer.evaluate import HeldOut
    from outrider.train.trainer.meters import Pace

    said: list[Any] = []
    loop = trainer.Loop.__new__(trainer.Loop)
    parts = SimpleNamespace(**dict.fromkeys(("head", "target", "store", "probes", "distance")))
    parts.arithmetic = nullcontext
    loop.__dict__.update(
        _losses=[],
        _epoch_losses=[],
        _parts=parts,
        _say=said.append,
        _job=SimpleNamespace(max_minutes=None, epochs=3),
        pace=Pace(0.0, 0, 0.0),
        at=replace(Position(), step=7, epoch=1),
    )
    loop.pace.start()
    loop.pace.begin_lap(0, 7)
    monkeypatch.setattr(trainer, "evaluate", lambda *_: HeldOut(loss, (0.0,), 1))
    with pytest.raises(trainer.Diverged, match=r"held-out rows is (nan|inf) at step 7"):
        loop._measure()
    assert said == []
    assert loop.at.lowest_loss == Position().lowest_loss


@pytest.fixture
def small() -> Any:
    """A head's stand-in: what a checkpoint holds of it, and an optimiser with a state."""
    import torch

    module = torch.nn.Linear(8, 8)
    moves = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 8)).sum().backward()
    moves.step()
    return SimpleNamespace(torch=torch, module=module, moves=moves)


DATA = {"rows": 3, "tokens": 30, "answer_tokens": 10, "sum": 99}


def test_a_checkpoint_brings_back_weights_and_optimiser(tmp_path: Path, small: Any) -> None:
    """Into other objects, where the run was; with nothing there, the beginning."""
    from outrider.train.trainer.checkpoint import Position, load, save

    at = Position(step=5, epoch=1, batch=2, tokens=100, elapsed_s=3.5, first_step_s=1.0)
    job = settled(tmp_path)
    other = small.torch.nn.Linear(8, 8)
    moves = small.torch.optim.AdamW(other.parameters())
    assert load(tmp_path, job, DATA, other, [moves]) == Position()
    save(tmp_path, job, DATA, small.module, [small.moves], at)
    assert load(tmp_path, job, DATA, other, [moves]) == at
    assert small.torch.equal(other.weight, small.module.weight)
    kept, given = (one.state_dict()["state"][0]["exp_avg"] for one in (moves, small.moves))
    assert small.torch.equal(kept, given)


def test_another_trainings_checkpoint_is_refused(tmp_path: Path, small: Any) -> None:
    """Other settings and other rows, each named; a damaged file too."""
    from outrider.train.trainer.checkpoint import FILE, Position, load, save

    save(tmp_path, settled(tmp_path), DATA, small.module, [small.moves], Position(step=1))
    with pytest.raises(TrainingError, match=r"other settings: layers, data\.tokens") as refused:
        load(tmp_path, settled(tmp_path, layers=2), {**DATA, "tokens": 31}, small.module, [small.moves])
    assert "checkpoint" in refused.value.hint
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:100])
    with pytest.raises(TrainingError, match="cannot be read"):
        load(tmp_path, settled(tmp_path), DATA, small.module, [small.moves])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: [], "cannot be read"),
        (lambda state: {}, "cannot be read"),
        (lambda state: {**state, "job": None}, "cannot be read"),
        (lambda state: {**state, "data": 5}, "cannot be read"),
        (lambda state: {**state, "head": {"another": state["head"]["weight"]}}, "cannot be read"),
        (lambda state: {**state, "head": {"weight": state["head"]["bias"][:3]}}, "cannot be read"),
        (lambda state: {**state, "optimizers": []}, "cannot be read"),
        (lambda state: {**state, "position": {"step": 1, "later": 2}}, "cannot be read"),
        (lambda state: {"format": 2, "everything": "else"}, "another format"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    tmp_path: Path, small: Any, change: Any, said: str
) -> None:
    """Whole, and no state of this training, or a later version's: in words, and what to remove."""
    from outrider.train.trainer.checkpoint import FILE, Position, load, save

    save(tmp_path, settled(tmp_path), DATA, small.module, [small.moves], Position(step=1))
    state = small.torch.load(tmp_path / FILE, weights_only=True)
    small.torch.save(change(state), tmp_path / FILE)
    with pytest.raises(TrainingError, match=said) as refused:
        load(tmp_path, settled(tmp_path), DATA, small.module, [small.moves])
    assert "checkpoint" in refused.value.hint


def test_a_checkpoint_without_the_newer_fields_goes_on(tmp_path: Path, small: Any) -> None:
    """One of before the rate was halved: at the whole rate, with no lowest loss yet."""
    from outrider.train.trainer.checkpoint import FILE, Position, load, save

    save(tmp_path, settled(tmp_path), DATA, small.module, [small.moves], Position(step=4, rate=0.5))
    state = small.torch.load(tmp_path / FILE, weights_only=True)
    del state["position"]["rate"], state["position"]["lowest_loss"]
    small.torch.save(state, tmp_path / FILE)
    at = load(tmp_path, settled(tmp_path), DATA, small.module, [small.moves])
    assert at == Position(step=4)


def test_a_checkpoint_runs_no_code(tmp_path: Path, small: Any) -> None:
    """A file that would call something when it is unpickled is refused."""
    from outrider.train.trainer.checkpoint import FILE, load

    class Call:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "ran"),))

    (tmp_path / FILE).parent.mkdir()
    small.torch.save({"format": Call()}, tmp_path / FILE)
    with pytest.raises(TrainingError, match="cannot be read"):
        load(tmp_path, settled(tmp_path), DATA, small.module, [small.moves])
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path: Path, small: Any) -> None:
    """The kernel's own ENOSPC."""
    from outrider.train.trainer.checkpoint import FILE, Position, load, save

    job = settled(tmp_path)
    save(tmp_path, job, DATA, small.module, [small.moves], Position(step=1))
    (tmp_path / FILE).with_name(f".state.pt.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, job, DATA, small.module, [small.moves], Position(step=2))
    assert load(tmp_path, job, DATA, small.module, [small.moves]).step == 1
    assert [path.name for path in (tmp_path / FILE).parent.iterdir()] == ["state.pt"]


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_head_that_does_not_fit_leaves_the_one_before(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two files it is; then, with space, both are replaced."""
    import torch

    from outrider.train.trainer import export as exporting

    tensors = {"norm.weight": torch.ones(64, dtype=torch.bfloat16)}
    monkeypatch.setattr(exporting, "written_tensors", lambda head: tensors)
    monkeypatch.setattr(exporting, "head_config", lambda head: {"name": head})
    exporting.export("old", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["config.json", "model.safetensors"]
    scratch = tmp_path / f".{file}.{os.getpid()}"
    scratch.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        exporting.export("new", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    exporting.export("new", tmp_path)
    assert "new" in (tmp_path / "config.json").read_text()

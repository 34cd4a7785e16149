"""Our forward against Speculators' own: the same loss and the same gradients, though rows stand side by side and not in a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outrider.train.job import TrainJob
from outrider.train.rows import Row
from tests.train.tiny import HIDDEN, LAYERS, VOCABULARY, load_trainer, write_target

DEPTH = 4
AUX = (1, 3, 4)
PROMPTS, ANSWERS = (6, 5, 9, 7), (20, 31, 12, 25)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A float32 target, rows of random tokens, a head of each method, and the modules that make them."""
    load_trainer()
    import torch

    from outrider.train.trainer import evaluate, feed, forward, head, losses, packing, probes, target
    from outrider.train.trainer.corpus import gather
    from outrider.train.vocabulary import Vocabulary

    folder = write_target(tmp_path_factory.mktemp("target"))
    generator = np.random.default_rng(0)
    rows = [
        Row(
            tuple(generator.integers(3, VOCABULARY, prompt + answer).tolist()),
            (0,) * prompt + (1,) * answer,
            (),
            "stop",
            "data",
        )
        for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)
    ]
    model = target.Target(folder, "cpu", torch.float32)
    model.watch(AUX)

    def build(method: Any, layers: int = 1) -> Any:
        job = TrainJob(
            method=method,
            target=folder,
            target_name="tiny",
            rows=(Path("r"),),
            out=Path("o"),
            work=Path("w"),
            layers=layers,
            depth=DEPTH,
        )
        return head.build_head(
            job.settled("cpu"), model, Vocabulary(VOCABULARY, tuple(range(0, VOCABULARY, 2)), 0.5), 2
        )

    return SimpleNamespace(
        torch=torch,
        target=model,
        corpus=gather(rows, 256, VOCABULARY),
        build=build,
        distance=losses.choose_distance("kl_div", "cpu"),
        packing=packing,
        feed=feed,
        forward=forward,
        evaluate=evaluate,
        probes=probes,
        stores=target,
    )


def states(parts: Any, placed: Any) -> Any:
    """The target's states in float32, so that no rounding hides a difference."""
    kept = parts.target.features(placed.tokens)
    return type(kept)(kept.aux.float(), kept.last.float())


def packed(parts: Any, placed: Any, features: Any) -> dict[str, Any]:
    """A batch as Speculators' trainer packs it: row after row, shifted, each place (aux[t], x[t + 1], last[t + 1])."""
    torch = parts.torch
    made: dict[str, list[Any]] = {key: [] for key in ("aux", "last", "ids", "mask", "positions", "documents")}
    for line, number in enumerate(placed.batch.rows):
        tokens, answers = (torch.from_numpy(one.copy()) for one in parts.corpus.row(number))
        made["aux"].append(features.aux[line, : len(tokens) - 1])
        made["last"].append(features.last[line, 1 : len(tokens)])
        made["ids"].append(tokens[1:].long())
        made["mask"].append(answers[1:])
        made["positions"].append(torch.arange(1, len(tokens)))
        made["documents"].append(torch.full((len(tokens) - 1,), line))
    whole = {key: torch.cat(values).unsqueeze(0) for key, values in made.items()}
    return {
        "hidden_states": whole["aux"],
        "verifier_last_hidden_states": whole["last"],
        "input_ids": whole["ids"],
        "loss_mask": whole["mask"],
        "position_ids": whole["positions"],
        "document_ids": whole["documents"],
    }


def theirs(parts: Any, head: Any, rows: dict[str, Any], **settings: Any) -> Any:
    """Speculators' own loss of packed rows, with the target's norm and rows where its trainer has copies of them."""
    from speculators.losses import resolve_loss_config

    head.verifier_lm_head, head.verifier_norm = head.lm_head, parts.target.base.norm
    try:
        return head(**rows, loss_config=resolve_loss_config("kl_div", "eager"), **settings)[1]
    finally:
        del head.verifier_lm_head, head.verifier_norm


def gradients(head: Any, loss: Any) -> dict[str, Any]:
    """Of every trained weight."""
    head.zero_grad()
    loss.backward()
    return {name: one.grad.clone() for name, one in head.named_parameters() if one.requires_grad}


def assert_same(parts: Any, head: Any, ours: Any, other: Any) -> None:
    """Loss and gradients, to float32's noise."""
    assert ours.item() == pytest.approx(other.item(), rel=2e-5)
    mine, reference = gradients(head, ours), gradients(head, other)
    assert mine.keys() == reference.keys()
    for name, gradient in mine.items():
        assert gradient.abs().max() > 0, name
        assert parts.torch.allclose(gradient, reference[name], rtol=2e-3, atol=2e-6), name


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_eagle3_is_speculators_own_loss(parts: Any, layers: int, weight: float) -> None:
    """Every round, each with its weight, one layer and two."""
    head = parts.build("eagle3", layers)
    batch = parts.feed.place(parts.packing.assemble(parts.corpus, np.asarray([2, 0, 3, 1]), DEPTH))
    features = states(parts, batch)
    ours = parts.forward.loss_of(head, parts.target, batch, features, parts.distance, weight)
    rows = packed(parts, batch, features)
    other = theirs(parts, head, rows, ttt_steps=DEPTH, ttt_step_loss_decay=weight)
    assert_same(parts, head, ours * sum(weight**one for one in range(DEPTH)), other)


@pytest.mark.parametrize("layers", [1, 2])
def test_p_eagle_is_speculators_own_loss(parts: Any, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same chains: ours are drawn by row on the host, Speculators' at random on the device."""
    from speculators.models.peagle import core

    torch = parts.torch
    head = parts.build("p-eagle", layers)
    rows = np.asarray([2, 0, 3, 1])
    made = parts.packing.assemble_chains(
        parts.corpus, rows, parts.packing.ChainPlan(DEPTH), np.random.default_rng(5)
    )
    lengths = parts.corpus.lengths[rows] - 1
    lines, columns = np.divmod(made.learns.places, made.tokens.shape[1] + made.learns.anchors.shape[1])
    slots = columns - made.tokens.shape[1]
    chained = slots >= 0
    starts = np.cumsum(lengths) - lengths
    anchors = (made.learns.anchors[lines, slots] + starts[lines])[chained]
    every = np.concatenate((np.arange(lengths.sum()), anchors))
    depths = np.concatenate((np.zeros(lengths.sum(), np.int64), made.learns.of_depth[chained]))
    drawn = (torch.from_numpy(every), torch.from_numpy(depths))
    monkeypatch.setattr(core, "generate_cod_sample_indices", lambda **_: drawn)
    batch = parts.feed.place(made)
    features = states(parts, batch)
    ours = parts.forward.loss_of(head, parts.target, batch, features, parts.distance, 1.0)
    assert chained.sum() > len(made.answers) / 2
    assert_same(parts, head, ours, theirs(parts, head, packed(parts, batch, features), num_depths=DEPTH))


def test_the_targets_states_are_those_of_its_layers(parts: Any) -> None:
    """Aux id i is the input of layer i; the last state is the one before the final norm, which transformers does not show."""
    torch = parts.torch
    tokens = torch.from_numpy(parts.corpus.row(1)[0].astype(np.int64)).unsqueeze(0)
    features = parts.target.features(tokens)
    with torch.no_grad():
        shown = parts.target.model(input_ids=tokens, output_hidden_states=True)
    assert len(shown.hidden_states) == LAYERS + 1
    for place, layer in enumerate(AUX):
        mine = features.aux[..., place * HIDDEN : (place + 1) * HIDDEN]
        assert torch.equal(mine, shown.hidden_states[layer].to(torch.bfloat16))
    normed = parts.target.normed(features.last)
    assert torch.allclose(normed, shown.hidden_states[-1], atol=0.05)
    assert not torch.allclose(features.last.float(), shown.hidden_states[-1], atol=0.05)
    agree = (parts.target.choices(features.last[0]) == shown.logits[0].argmax(-1)).float().mean()
    assert agree > 0.9  # the states are kept in bf16


def test_kept_states_are_those_that_were_given(parts: Any) -> None:
    """A row that comes again beside others gets what it got before, from memory."""
    torch, packing = parts.torch, parts.packing
    store = parts.stores.FeatureStore(parts.target, parts.corpus, cached=True)
    first = {}
    for row in (0, 2):
        placed = parts.feed.place(packing.assemble(parts.corpus, np.asarray([row]), 1))
        first[row] = store.of(placed).aux[0]
    forwards: list[int] = []
    hook = parts.target.base.register_forward_pre_hook(lambda *_: forwards.append(1))
    both = store.of(parts.feed.place(packing.assemble(parts.corpus, np.asarray([2, 0]), 1)))
    mixed = store.of(parts.feed.place(packing.assemble(parts.corpus, np.asarray([2, 1]), 1)))
    hook.remove()
    assert len(forwards) == 1
    for line, row in enumerate((2, 0)):
        size = int(parts.corpus.lengths[row])
        assert torch.equal(both.aux[line, :size], first[row][:size])
    assert torch.allclose(mixed.aux[0, : len(first[2])].float(), first[2].float(), atol=0.05)


@pytest.mark.parametrize("method", ["eagle3", "p-eagle"])
def test_a_head_that_says_the_targets_choices_has_them_all_accepted(
    parts: Any, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring: an oracle agrees everywhere; one that errs at the second token alone has nothing from there on."""
    torch = parts.torch
    head = parts.build(method)
    chained = method == "p-eagle"
    made = parts.evaluate.make_probes(parts.corpus, np.arange(4), 512, DEPTH, chained)
    store = parts.stores.FeatureStore(parts.target, parts.corpus, cached=False)
    ids = torch.arange(0, VOCABULARY, 2)

    def measure(wrong_at: int) -> Any:
        from outrider.train.trainer.forward import Drafted

        def oracle(_head: Any, placed: Any, features: Any) -> Iterator[Any]:
            choices = parts.target.choices(features.last.flatten(0, 1)[placed.answers])
            one = next(probe for probe in made if probe.batch is placed.batch)
            size = max(int(states.max()) for states in one.states) + 1
            for depth in range(1 if chained else DEPTH):
                drafted = torch.zeros(size, len(ids))
                for place in range(DEPTH) if chained else [depth]:
                    said = choices[torch.from_numpy(one.choices[:, place])] // 2
                    drafted[torch.from_numpy(one.states[place]), said + (place == wrong_at)] = 1.0
                yield Drafted(depth, drafted)

        monkeypatch.setattr(parts.evaluate, "drafts", oracle)
        monkeypatch.setattr(parts.target, "choices", lambda last: last.float().abs().argmax(-1) // 2 * 2)
        return parts.evaluate.evaluate(head, parts.target, store, made, parts.distance)

    class Identity(torch.nn.Module):  # type: ignore[misc]
        """Lets an oracle's logits through; the target's states go through the real rows."""

        def __init__(self, real: Any) -> None:
            super().__init__()
            self.real, self.weight = real, real.weight

        def forward(self, states: Any) -> Any:
            return states if states.shape[-1] == len(ids) else self.real(states)

    head.lm_head = Identity(head.lm_head)
    assert measure(wrong_at=9).accuracy == (1.0,) * DEPTH
    assert measure(wrong_at=1).accuracy == (1.0, 0.0, 0.0, 0.0)
    assert measure(wrong_at=9).length == 1 + DEPTH

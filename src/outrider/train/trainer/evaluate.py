"""The head on held-out rows: how far it and the target (greedy, over its whole vocabulary) agree.

Counted jointly: token d of a draft counts where every earlier one agreed too. That is what the engine's counters say when it
serves these rows greedily, up to the noise of bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from outrider.core.errors import TrainingError
from outrider.train.trainer.corpus import Corpus, Ints
from outrider.train.trainer.feed import place
from outrider.train.trainer.forward import drafts, wanted_logits
from outrider.train.trainer.losses import Distance
from outrider.train.trainer.packing import epoch_batches
from outrider.train.trainer.probes import Probe, probe
from outrider.train.trainer.target import FeatureStore, Target


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Mean distance over all drafted places; for each place the share of drafts that agree up to it; how many drafts."""

    loss: float
    accuracy: tuple[float, ...]
    drafts: int

    @property
    def length(self) -> float:
        """Tokens a step with drafts of this many: 1 + the accuracies (vLLM's acceptance length)."""
        return 1 + sum(self.accuracy)


def make_probes(
    corpus: Corpus, rows: Ints, batch_tokens: int, depth: int, chained: bool
) -> tuple[Probe, ...]:
    """The held-out rows as batches. Raises TrainingError: no answer is as long as a draft."""
    batches = epoch_batches(corpus.lengths, rows, batch_tokens, (0,))
    made = tuple(one for numbers in batches if (one := probe(corpus, numbers, depth, chained)) is not None)
    if not made:
        raise TrainingError(
            f"no held-out answer has {depth} tokens",
            hint="Write more rows or longer answers, or train fewer tokens ahead: depth.",
        )
    return made


def evaluate(
    head: Any, target: Target, store: FeatureStore, made: tuple[Probe, ...], distance: Distance
) -> HeldOut:
    """Run head and target over the probes. The caller sets the arithmetic type (autocast)."""
    device = target.embedding.device
    sums: Any = None
    with torch.no_grad():
        for one in made:
            part = _agree(head, target, store, one, distance, device)
            sums = part if sums is None else sums + part
    loss, drafts_made, *agreed = sums.tolist()
    depth = len(agreed)
    return HeldOut(loss / (drafts_made * depth), tuple(one / drafts_made for one in agreed), int(drafts_made))


def _agree(
    head: Any, target: Target, store: FeatureStore, one: Probe, distance: Distance, device: Any
) -> Any:
    """Sums over a batch [2 + depth], float64: distances, drafts, and for each place the drafts that agree up to it."""
    placed = place(one.batch).on(device)
    features = store.of(placed)
    last = features.last.flatten(0, 1)[placed.answers]
    wanted, choices = wanted_logits(head, target, last), target.choices(last)
    numbers = torch.from_numpy(one.choices).to(device)
    agree = torch.ones(len(numbers), dtype=torch.bool, device=device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    sums = []
    every = list(drafts(head, placed, features))
    for depth, places in enumerate(one.states):
        states = every[min(depth, len(every) - 1)].states[torch.from_numpy(places).to(device)]
        logits = head.lm_head(states.to(head.lm_head.weight.dtype))
        drafted = logits.argmax(-1)
        if head.d2t is not None:
            drafted = drafted + head.d2t[drafted]
        agree = agree & (drafted == choices[numbers[:, depth]])
        total = total + distance.of(logits, wanted[numbers[:, depth]]).double().sum()
        sums.append(agree.sum().double())
    return torch.stack([total, total.new_tensor(float(len(numbers))), *sums])

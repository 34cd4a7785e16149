"""The two ways a head is trained, on batches of rows side by side.

EAGLE-3 (training-time test): round 0 reads the target's states; each later round reads the head's own output of the round
before, at the same places, one token further. In round d, place t attends to the first round's keys up to t and to its own of
the rounds in between.

P-EAGLE: all depths in one pass. A masked place (the mask token, a learned state) of depth d after anchor t attends to the
places up to t and to the masked ones between.

The modules and their order are Speculators'; that these functions agree with its own forward on documents packed one after
another is a test (`tests/train/test_trainer_forward.py`).

Source: `Eagle3DraftModel.forward`, `PEagleDraftModel.forward`, speculators 0.9.0; EAGLE-3: arXiv 2503.01840.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from outrider.train.trainer.feed import Placed
from outrider.train.trainer.losses import Distance
from outrider.train.trainer.target import Features, Target


@dataclass(frozen=True, slots=True)
class Drafted:
    """What `lm_head` reads [rows × places, hidden]: the normed states of round `depth` (P-EAGLE: of its one pass, 0)."""

    depth: int
    states: Any


def drafts(head: Any, placed: Placed, features: Features) -> Iterator[Drafted]:
    """Run the head over a batch: one item a round for EAGLE-3, one in all for P-EAGLE."""
    return _chained(head, placed, features) if placed.chains else _rounds(head, placed, features)


def loss_of(
    head: Any, target: Target, placed: Placed, features: Features, distance: Distance, depth_weight: float
) -> Any:
    """The batch's loss, a scalar: the mean distance over the places that learn, for EAGLE-3 the weighted mean of the rounds'."""
    wanted = wanted_logits(head, target, features.last.flatten(0, 1)[placed.answers])
    total, weights = torch.zeros((), device=wanted.device), 0.0
    for drafted in drafts(head, placed, features):
        places, answers = placed.learns[drafted.depth]
        if not len(places):  # no answer of the batch is that long
            continue
        logits = head.lm_head(drafted.states[places].to(head.lm_head.weight.dtype))
        every = placed.chains is None and len(answers) == len(wanted)
        weight = depth_weight**drafted.depth
        total = total + weight * distance.of(logits, wanted if every else wanted[answers]).mean()
        weights += weight
    return total / weights


def wanted_logits(head: Any, target: Target, last: Any) -> Any:
    """What the target says of the head's tokens [places, draft vocabulary] after its states `last` [places, hidden]."""
    with torch.no_grad():
        return head.lm_head(target.normed(last).to(head.lm_head.weight.dtype))


def _rounds(head: Any, placed: Placed, features: Features) -> Iterator[Drafted]:
    length = placed.tokens.shape[1]
    hidden = head.fc(head.input_norm(features.aux))
    cache = DynamicCache()
    positions = torch.arange(1, length + 1, device=hidden.device).unsqueeze(0)
    own = torch.eye(length, dtype=torch.bool, device=hidden.device)
    mask = torch.ones_like(own).tril()
    for depth in range(len(placed.learns)):
        tokens = torch.nn.functional.pad(placed.tokens[:, 1 + depth :], (0, 1 + depth))
        hidden = _layers(
            head,
            torch.cat([head.embed_tokens(tokens), hidden], dim=-1),
            positions + depth,
            mask.unsqueeze(0).unsqueeze(0) if depth else None,
            cache,
        )
        normed = head.norm(hidden)
        hidden = normed if head.config.norm_output else hidden
        yield Drafted(depth, normed.flatten(0, 1))
        mask = torch.cat([mask, own], dim=1)


def _chained(head: Any, placed: Placed, features: Features) -> Iterator[Drafted]:
    assert placed.chains is not None  # noqa: S101  (asked by `drafts`)
    anchors, depths = placed.chains
    lines, length = placed.tokens.shape
    slots = anchors.shape[1]
    tokens = torch.nn.functional.pad(placed.tokens[:, 1:], (0, 1))
    masked = tokens.new_full((1, 1), head.mask_token_id)
    given = head.fc(head.input_norm(features.aux))
    waiting = head.fc(head.input_norm(head.mask_hidden))
    embedded = [head.embed_tokens(tokens), head.embed_tokens(masked).expand(lines, slots, -1)]
    states = [given, waiting.expand(lines, slots, -1)]
    own = torch.arange(length, device=tokens.device)
    anchor = torch.cat([own.expand(lines, -1), anchors], dim=1)
    depth = torch.cat([torch.zeros_like(own).expand(lines, -1), depths], dim=1)
    hidden = _layers(
        head,
        torch.cat([torch.cat(embedded, dim=1), torch.cat(states, dim=1)], dim=-1),
        (anchor + depth).clamp(min=0),
        chain_mask(anchor, depth),
        None,
    )
    yield Drafted(0, head.norm(hidden).flatten(0, 1))


def chain_mask(anchor: Any, depth: Any) -> Any:
    """Who attends to whom [rows, 1, places, places], of `anchor` and `depth` [rows, places].

    An unused slot (anchor -1) sees its like alone.
    """
    q_anchor, k_anchor = anchor.unsqueeze(2), anchor.unsqueeze(1)
    q_depth, k_depth = depth.unsqueeze(2), depth.unsqueeze(1)
    of_row = (k_depth == 0) & (k_anchor >= 0) & (k_anchor <= q_anchor)
    of_chain = (k_anchor == q_anchor) & (k_depth <= q_depth)
    return (of_row | of_chain).unsqueeze(1)


def _layers(head: Any, hidden: Any, positions: Any, mask: Any, cache: Any) -> Any:
    rotary = head.rotary_emb(hidden, positions)
    for layer in head.layers:
        hidden = layer(
            hidden,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            position_embeddings=rotary,
        )
    return hidden

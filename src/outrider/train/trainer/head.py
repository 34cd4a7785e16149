"""The head: Speculators' modules around the target's own rows, and its size.

Embedding and `lm_head` are the target's rows, frozen: bf16 rows are written bit for bit, and can be left out of a stored head.
The layer is a Llama layer of the target's shape, whatever the target is: vLLM loads Llama and Qwen3 layers.

What vLLM takes (0.26.0 and 0.32.0, `configs/speculators/algos.py`, `models/llama_eagle3.py`): `norm_before_residual` and
`norm_before_fc` for both methods, `norm_output` for EAGLE-3 alone; three aux layers; for P-EAGLE `mask_token_id` and the tensor
`mask_hidden`.

Source: `Eagle3DraftModel`, `PEagleDraftModel` of speculators 0.9.0 (`models/eagle3/core.py`, `models/peagle/core.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig
from speculators.proposals import GreedyTokenProposalConfig
from transformers import LlamaConfig

from outrider.core.errors import TrainingError
from outrider.train.job import SettledJob
from outrider.train.trainer.target import Target
from outrider.train.vocabulary import Vocabulary, draft_to_target

LEFT_OUT = ("verifier_lm_head.weight", "verifier_norm.weight", "embed_tokens.weight")


@dataclass(frozen=True, slots=True)
class HeadSize:
    """Parameters that are trained; bytes in bf16 without the target's rows, and with the rows of `lm_head` and the maps."""

    trained: int
    head_bytes: int
    file_bytes: int


def default_aux_layers(layers: int) -> tuple[int, int, int]:
    """The three layers that vLLM taps when a head does not say. Raises TrainingError: too few layers for three."""
    ids = (2, layers // 2, layers - 3)
    if len(set(ids)) < 3 or not 0 <= min(ids) <= max(ids) < layers:
        raise TrainingError(
            f"a target of {layers} layers has no default aux layers", hint="Name three layers: aux_layers."
        )
    return ids


def build_head(job: SettledJob, target: Target, vocabulary: Vocabulary, mask_token: int | None) -> Any:
    """A new head on the job's device, float32, seeded by the job."""
    torch.manual_seed(job.seed)
    eagle3 = job.method == "eagle3"
    settings: dict[str, Any] = {
        "transformer_layer_config": _layer_config(job, target),
        "draft_vocab_size": len(vocabulary.ids),
        "target_hidden_size": target.config.hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(target.aux_layers),
        "norm_before_residual": True,
        "norm_before_fc": True,
        "norm_output": eagle3,
        "embed_requires_grad": False,
        "speculators_config": SpeculatorsConfig(
            algorithm="eagle3" if eagle3 else "peagle",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=job.depth)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(
                name_or_path=job.target_name, architectures=list(target.config.architectures or ())
            ),
        ),
    }
    if eagle3:
        head = Eagle3DraftModel(Eagle3SpeculatorConfig(**settings))
    else:
        head = PEagleDraftModel(PEagleSpeculatorConfig(**settings, mask_token_id=mask_token))
    head.float().to(job.device)
    del head.verifier_lm_head, head.verifier_norm  # the target itself says what to learn
    _take_rows(head, target, vocabulary)
    return head.train()


def _layer_config(job: SettledJob, target: Target) -> Any:
    theirs = target.config
    heads = theirs.num_attention_heads
    layer = LlamaConfig(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        intermediate_size=job.intermediate_size
        or getattr(theirs, "intermediate_size", 3 * theirs.hidden_size),
        num_hidden_layers=job.layers,
        num_attention_heads=heads,
        num_key_value_heads=getattr(theirs, "num_key_value_heads", None) or heads,
        head_dim=getattr(theirs, "head_dim", None) or theirs.hidden_size // heads,
        hidden_act="silu",
        max_position_embeddings=theirs.max_position_embeddings,
        rms_norm_eps=theirs.rms_norm_eps,
        initializer_range=getattr(theirs, "initializer_range", 0.02),
        bos_token_id=theirs.bos_token_id,
        eos_token_id=theirs.eos_token_id,
        rope_parameters=dict(theirs.rope_parameters),
        tie_word_embeddings=False,
    )
    layer._attn_implementation = "sdpa"
    return layer


def _take_rows(head: Any, target: Target, vocabulary: Vocabulary) -> None:
    """The target's embedding, shared; its output rows of the head's tokens, copied (on a CPU the head calculates in float32); the
    maps between the two."""
    ids = torch.tensor(vocabulary.ids, device=target.output_rows.device)
    head.embed_tokens.weight = torch.nn.Parameter(target.embedding, requires_grad=False)
    rows = target.output_rows[ids]
    head.lm_head.weight = torch.nn.Parameter(
        rows.float() if rows.device.type == "cpu" else rows, requires_grad=False
    )
    if not vocabulary.is_whole:
        head.d2t.copy_(torch.tensor(draft_to_target(vocabulary.ids)))
        head.t2d.zero_()
        head.t2d[ids] = True


def trained_parameters(head: Any) -> list[tuple[str, Any]]:
    """What the optimiser moves, by name."""
    return [(name, one) for name, one in head.named_parameters() if one.requires_grad]


def head_size(head: Any) -> HeadSize:
    """How large it is, and will be on disk."""
    trained = sum(one.numel() for _, one in trained_parameters(head))
    maps = sum(one.numel() * one.element_size() for one in (head.d2t, head.t2d) if one is not None)
    return HeadSize(trained, 2 * trained + maps, 2 * (trained + head.lm_head.weight.numel()) + maps)


def written_tensors(head: Any) -> dict[str, Any]:
    """What the head's file holds, on the host: bf16 (the target's rows are that already), and the maps."""
    return {
        name: (one.to(torch.bfloat16) if one.is_floating_point() else one).detach().cpu().contiguous()
        for name, one in head.state_dict().items()
        if name not in LEFT_OUT
    }

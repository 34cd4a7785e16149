"""One training, from its job to the head's folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from outrider.core.errors import TrainingError
from outrider.train.events import Finished, Planned, TrainerEvent
from outrider.train.job import VOCABULARY, Device, SettledJob, TrainJob
from outrider.train.trainer.checkpoint import Position, load
from outrider.train.trainer.corpus import Corpus, read_corpus
from outrider.train.trainer.evaluate import make_probes
from outrider.train.trainer.export import export
from outrider.train.trainer.head import build_head, default_aux_layers, head_size
from outrider.train.trainer.log import TrainLog
from outrider.train.trainer.loop import Loop, Parts
from outrider.train.trainer.losses import choose_distance
from outrider.train.trainer.meters import free_memory_bytes, peak_memory_bytes
from outrider.train.trainer.optimizer import build_optimizers
from outrider.train.trainer.target import FeatureStore, Target, feature_bytes, tokenizer_sizes
from outrider.train.vocabulary import choose_mask_token, choose_vocabulary, larger

CACHE_SHARE = 0.7  # of the free memory, at most
VERSIONS = ("torch", "transformers", "speculators", "safetensors", "numpy", "triton")
_KERNELS = {
    "auto": [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
    "math": [SDPBackend.MATH],
}

Say = Callable[[TrainerEvent], None]


def train_head(job: TrainJob, say: Say, stop: threading.Event, process_began: float) -> None:
    """Train, or go on with a training, and write the head.

    Raises:
        TrainingError: what it was given does not fit together, or it was interrupted, or its loss is no number.
        OSError: a file cannot be written.
    """
    settled = job.settled(_device(job))
    notes: list[str] = []
    with _attention(settled.attention):
        parts, coverage, cache_bytes = _parts(settled, notes)
        at = load(settled.work, settled, parts.data, parts.head, parts.optimizers)
        log = TrainLog(settled.work, say)
        loop = Loop(parts, at, log, stop, process_began)
        log(_plan(parts, loop.steps, at, coverage, cache_bytes, notes))
        loop.run()
        log(_finish(loop, settled.device, export(parts.head, settled.out)))


def _device(job: TrainJob) -> Device:
    there = torch.cuda.is_available()
    if job.device == "cuda" and not there:
        raise TrainingError(
            "no GPU that PyTorch can use is there", hint="Train with `device: cpu` or `auto`."
        )
    return "cuda" if there and job.device != "cpu" else "cpu"


def _target_dtype(device: Device, notes: list[str]) -> Any:
    """bf16 on a GPU, and on a CPU that multiplies it in hardware (a third of float32's time there); float32 elsewhere."""
    if _multiplies_bf16(device):
        return torch.bfloat16
    notes.append("This CPU does not multiply bf16: the training runs in float32.")
    return torch.float32


def _multiplies_bf16(device: Device) -> bool:
    able = torch.cpu.get_capabilities()
    return device == "cuda" or any(able.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def _attention(name: str) -> AbstractContextManager[Any]:
    kernels = _KERNELS.get(name)
    return sdpa_kernel(kernels) if kernels else nullcontext()


def _parts(job: SettledJob, notes: list[str]) -> tuple[Parts, float, int]:
    """Everything loaded and built; the vocabulary's coverage; bytes of kept states."""
    target = Target(job.target, job.device, _target_dtype(job.device, notes))
    target.watch(job.aux_layers or default_aux_layers(target.config.num_hidden_layers))
    corpus = read_corpus(job.rows, job.max_row_tokens, target.config.vocab_size)
    if corpus.dropped:
        notes.append(f"{corpus.dropped:,} rows have no answer within {job.max_row_tokens:,} tokens.")
    counts = corpus.count_answers()
    vocabulary = choose_vocabulary(counts, job.draft_vocab_size, target.config.vocab_size)
    vocabulary.write(job.work / VOCABULARY)
    if more := larger(vocabulary, counts):
        wider = f"--draft-vocab {len(more.ids)}, for more memory."
        notes.append(f"{len(more.ids):,} draft tokens would cover {more.coverage:.1%}: {wider}")
    train_rows, held_out = corpus.split(job.held_out_ratio, job.seed)
    mask_token = _mask_token(job, corpus, target, notes)
    head = build_head(job, target, vocabulary, mask_token)
    cache_bytes = _cache_bytes(job, corpus, target)
    distance = choose_distance(job.loss, job.device)
    notes += [distance.note] if distance.note else []
    parts = Parts(
        job,
        corpus,
        train_rows,
        target,
        FeatureStore(target, corpus, cached=cache_bytes > 0),
        head,
        build_optimizers(head, job, target.config.hidden_size, bf16=_multiplies_bf16(job.device)),
        distance,
        make_probes(corpus, held_out, job.batch_tokens, job.depth, job.method == "p-eagle"),
    )
    return parts, vocabulary.coverage, cache_bytes


def _mask_token(job: SettledJob, corpus: Corpus, target: Target, notes: list[str]) -> int | None:
    if job.method == "eagle3":
        return None
    size, spare = tokenizer_sizes(job.target)
    used = set(np.unique(corpus.tokens).tolist())
    token = choose_mask_token(used, size, target.config.vocab_size, spare)
    notes.append(f"Token {token:,}, which no row has, stands for a masked place.")
    return token


def _cache_bytes(job: SettledJob, corpus: Corpus, target: Target) -> int:
    """Bytes of the states to keep; 0: none are."""
    wanted = feature_bytes(len(corpus.tokens), target.config.hidden_size, len(target.aux_layers))
    if job.cache_features is not None:
        return wanted if job.cache_features else 0
    return wanted if job.epochs > 1 and wanted <= CACHE_SHARE * free_memory_bytes(job.device) else 0


def _plan(
    parts: Parts, steps: int, at: Position, coverage: float, cache_bytes: int, notes: list[str]
) -> Planned:
    job, corpus, size = parts.job, parts.corpus, head_size(parts.head)
    return Planned(
        method=job.method,
        device=job.device,
        dtype="bfloat16" if job.device == "cuda" else "float32",
        target_dtype=str(parts.target.embedding.dtype).removeprefix("torch."),
        rows=len(parts.train_rows),
        held_out_rows=len(corpus.lengths) - len(parts.train_rows),
        tokens=len(corpus.tokens),
        answer_tokens=corpus.answer_tokens,
        epochs=job.epochs,
        steps=steps,
        resumed_steps=at.step,
        depth=job.depth,
        aux_layers=parts.target.aux_layers,
        draft_vocab_size=parts.head.config.draft_vocab_size,
        coverage=coverage,
        mask_token=getattr(parts.head, "mask_token_id", None),
        trained_parameters=size.trained,
        head_bytes=size.head_bytes,
        file_bytes=size.file_bytes,
        optimizer=job.optimizer,
        loss=job.loss,
        loss_kernel=parts.distance.kernel,
        attention=job.attention,
        cache_bytes=cache_bytes,
        notes=tuple(notes),
    )


def _finish(loop: Loop, device: Device, file_bytes: int) -> Finished:
    assert loop.held_out is not None  # noqa: S101  (measured at the end of every run)
    return Finished(
        steps=loop.at.step,
        epochs=loop.at.epoch,
        tokens=loop.at.tokens,
        elapsed_s=loop.at.elapsed_s,
        tok_s=loop.pace.tok_s,
        first_step_s=loop.at.first_step_s,
        target_share=loop.share.overall,
        gpu_use=loop.use.overall,
        peak_memory_bytes=peak_memory_bytes(device),
        held_out_loss=loop.held_out.loss,
        accuracy=loop.held_out.accuracy,
        length=loop.held_out.length,
        file_bytes=file_bytes,
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

"""A tiny Llama of random weights as a target, and conversations that it wrote itself, greedily: learnt in seconds."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

VOCABULARY, HIDDEN, LAYERS, END = 96, 32, 6, 1
SPECIAL = ("<pad>", "<end>", "<spare>")


def load_trainer() -> None:
    """Import the trainer and its libraries: what these deprecate in each other as they load is no test's failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("outrider.train.trainer.training")


def write_target(folder: Path, vocabulary: int = VOCABULARY, embedded: int | None = None) -> Path:
    """Config, weights and tokenizer; `embedded` rows of the embedding, more than the tokenizer's tokens where it is padded."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=embedded or vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.15,  # its answers neither repeat one token nor are chaos
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder, vocabulary)
    return folder


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A word a token; the first ones are special."""
    words = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), vocabulary))]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": word,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for number, word in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "<pad>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_rows(target: Path, path: Path, count: int = 126, answer: int = 24, seed: int = 0) -> Path:
    """`count` conversations: prompts of 6 to 14 random tokens, each answered greedily by the target with `answer` tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for prompt in range(6, 15):
        ids = torch.randint(3, VOCABULARY, (-(-count // 9), prompt), generator=generator)
        with torch.no_grad():
            for _ in range(answer):
                following = model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, following], dim=1)
        mask = [0] * prompt + [1] * answer
        rows += [{"input_ids": one, "loss_mask": mask, "kind": "selfplay"} for one in ids.tolist()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    return path

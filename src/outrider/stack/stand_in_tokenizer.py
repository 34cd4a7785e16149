"""A tokenizer for a model whose own was not fetched: right in size, cheap to make, every id readable.

Text is cut into pieces of two characters, each printable ASCII pair being one token: N tokens are 2 N characters, and
different text gives different ids (a mixture of experts sends them to different experts). The other ids stand for words that no
text encodes to, so that whatever a model of random weights says can be printed. The chat template adds nothing.

Source: `tokenizer.json` of tokenizers 0.22 (WordLevel, Split, Fuse), read by transformers' PreTrainedTokenizerFast.
"""

from __future__ import annotations

import json
from itertools import product

UNKNOWN, END = "<unknown>", "<end>"
CHARACTERS_PER_TOKEN = 2
_CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokenizer_files(vocabulary: int) -> dict[str, str]:
    """Names and contents of the files, for a vocabulary of this many ids."""
    words = _words(vocabulary)
    specials = [
        {
            "id": i,
            "content": words[i],
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        | {"normalized": False}
        for i in (vocabulary - 2, vocabulary - 1)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": f"[\\s\\S]{{1,{CHARACTERS_PER_TOKEN}}}"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: i for i, word in enumerate(words)},
            "unk_token": UNKNOWN,
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNKNOWN,
        "eos_token": END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    return {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(settings, indent=1)}


def _words(vocabulary: int) -> list[str]:
    """The two special ones last: random weights with equal logits say id 0, and a special token prints as nothing."""
    words = [*_CHARACTERS, *map("".join, product(_CHARACTERS, repeat=2))][: vocabulary - 2]
    words += [f" word{i}" for i in range(len(words), vocabulary - 2)]
    return [*words, UNKNOWN, END]

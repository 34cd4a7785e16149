"""The names of drafts: the one list, which the front, the control loop and the engine share; and the stamp of a request."""

from __future__ import annotations

from typing import Any

# What a server can be started with; `none` is a server without speculation.
METHODS = ("none", "ngram", "suffix", "draft-model", "eagle3", "p-eagle")

# What one request can be told beside its server's method: no draft; no draft but the head keeps reading;
# n-gram where it matches, else the head.
MODES = ("off", "warm", "mix")

NAMES = frozenset(METHODS + MODES)

# Drafts that are made by a model, which reads every token of the request; a draft model is one, too.
HEADS = frozenset({"draft-model", "eagle3", "p-eagle"})
# A request that is stamped with one of these is read by the head from its first token to its last, and no other is. So what
# they leave in the prefix cache is whole for the head, what others leave is not: the two must not share blocks. The stamp of
# these carries SALT as `cache_salt`.
READ_BY_HEAD = HEADS | {"mix", "warm"}
SALT = "outrider-head"

# The key under which a request carries its draft: `vllm_xargs` over HTTP, `SamplingParams.extra_args` inside.
STAMP = "outrider_draft"


def server_draft(config: Any) -> str:
    """The name of the draft that vLLM's `SpeculativeConfig` describes."""
    method = str(config.method)
    if method == "eagle3" and config.parallel_drafting:
        return "p-eagle"
    return method.replace("_", "-")


def answered(draft: str) -> frozenset[str]:
    """What a request can be stamped with on a server that was started with this draft."""
    return frozenset({draft, "ngram", "off", *(("mix", "warm") if draft in HEADS else ())})


def draft_of(params: Any, draft: str) -> str:
    """The draft of a request by its sampling parameters; the server's, `draft`, where they ask for none that it has."""
    asked = (getattr(params, "extra_args", None) or {}).get(STAMP)
    return asked if isinstance(asked, str) and asked in answered(draft) else draft

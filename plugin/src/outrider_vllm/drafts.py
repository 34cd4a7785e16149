"""The names of drafts: the one list, which the front, the control loop and the engine share."""

from __future__ import annotations

# What a server can be started with; `none` is a server without speculation.
METHODS = ("none", "ngram", "suffix", "draft-model", "eagle3", "p-eagle")

# What one request can be told beside its server's method: no draft; no draft but the head keeps reading;
# n-gram where it matches, else the head.
MODES = ("off", "warm", "mix")

NAMES = frozenset(METHODS + MODES)

# The key under which a request carries its draft: `vllm_xargs` over HTTP, `SamplingParams.extra_args` inside.
STAMP = "outrider_draft"

"""One engine that is kept: a line on stdin is a batch, a line on stdout what it took.

``{"draft", "tokens", "rows", "repeat"}``: so many rows of a few openings, each of exactly so many tokens.
``{"draft", "tokens", "prompt"}``: a user's turn, answered to its natural end. Both greedily.
Back: ``{"seconds": of the batch, "decode_s": of its first request from the first token on, "tokens": that request's}``.
"""

from __future__ import annotations

import json
import os
import sys
import time

OPENINGS = (
    "The history of Rome begins",
    "def add(a, b):",
    "Q: Why is the sky blue? A:",
    "Once upon a time there was",
    "import numpy as np\n",
    "Dear Sir or Madam,",
    "The recipe needs flour, eggs and",
    "In the year 1969, the first",
)


def main() -> None:
    """Start vLLM with the arguments given as JSON, say that it is ready, and answer lines."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints goes with its log
    from vllm import LLM, SamplingParams  # noqa: PLC0415  (only now: its import prints)

    llm = LLM(enforce_eager=True, max_num_seqs=16, disable_log_stats=False, **json.loads(sys.argv[1]))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        stamp = {"outrider_draft": job["draft"]} if job["draft"] else None
        params = SamplingParams(
            temperature=0, max_tokens=job["tokens"], ignore_eos="rows" in job, extra_args=stamp
        )
        began = time.perf_counter()
        if "rows" in job:
            prompts = [OPENINGS[(job["repeat"] + i) % len(OPENINGS)] for i in range(job["rows"])]
            done = llm.generate(prompts, params, use_tqdm=False)
        else:
            done = llm.chat([{"role": "user", "content": job["prompt"]}], params, use_tqdm=False)
        took, times = time.perf_counter() - began, done[0].metrics
        answer = {
            "seconds": took,
            "decode_s": times.last_token_ts - times.first_token_ts,
            "tokens": list(done[0].outputs[0].token_ids),
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

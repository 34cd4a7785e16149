"""One engine that is kept: a line ``{"draft", "rows", "tokens", "repeat"}`` on stdin is a batch, a line on stdout its seconds."""

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

    llm = LLM(enforce_eager=True, max_model_len=1024, max_num_seqs=16, **json.loads(sys.argv[1]))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        stamp = {"outrider_draft": job["draft"]} if job["draft"] else None
        params = SamplingParams(temperature=0, max_tokens=job["tokens"], ignore_eos=True, extra_args=stamp)
        prompts = [OPENINGS[(job["repeat"] + i) % len(OPENINGS)] for i in range(job["rows"])]
        began = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        print(json.dumps(time.perf_counter() - began), file=answers, flush=True)


if __name__ == "__main__":
    main()

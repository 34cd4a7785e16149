"""One engine, run to its end in its own process: ``python switch_probe.py '{job}' RESULT`` writes JSON.

Job: ``engine`` (arguments of vLLM's LLM), ``batches``: a list of lists of requests, each with ``prompt`` (text), ``draft`` (None:
not stamped), ``salt``, ``params``. The requests of a batch run together. One that ``follows`` another, by its ``name``, goes on
from that one's answer: a conversation.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

PAGE = ("vllm:spec_decode", "vllm:num_preemptions_total", "outrider_vllm_")


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Tokens of every request, seconds of every batch, and the page of counters after each."""
    from prometheus_client import REGISTRY, generate_latest
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(dtype="float32", enforce_eager=True, disable_log_stats=False, **job["engine"])
    tokenizer = llm.get_tokenizer()
    said: dict[str, list[int]] = {}
    results = []
    for batch in job["batches"]:
        prompts, params = [], []
        for one in batch:
            ids = said.get(one.get("follows"), []) + tokenizer.encode(one["prompt"])
            prompts.append(
                {"prompt_token_ids": ids} | ({"cache_salt": one["salt"]} if one.get("salt") else {})
            )
            given = {"temperature": 0.0, "ignore_eos": True, **one["params"]}
            if "structured" in given:
                given["structured_outputs"] = StructuredOutputsParams(**given.pop("structured"))
            stamp = {"outrider_draft": one["draft"]} if one.get("draft") else None
            params.append(SamplingParams(extra_args=stamp, **given))
        began = time.monotonic()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.monotonic() - began
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        for one, prompt, answer in zip(batch, prompts, tokens, strict=True):
            if "name" in one:
                said[one["name"]] = prompt["prompt_token_ids"] + answer
        page = generate_latest(REGISTRY).decode()
        results.append(
            {
                "tokens": tokens,
                "cached": [output.num_cached_tokens for output in outputs],
                "seconds": seconds,
                "page": "\n".join(line for line in page.splitlines() if line.startswith(PAGE)),
            }
        )
    return {"batches": results}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(run(json.loads(sys.argv[1]))), encoding="utf-8")

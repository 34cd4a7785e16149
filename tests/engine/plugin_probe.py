"""One engine, run to its end in a process of its own: ``python plugin_probe.py '{job}' RESULT`` writes JSON.

Job: ``model``, ``speculative`` (vLLM's own config, or null), ``samples`` (how often the short prompt is sampled). Seeded
requests with a prompt longer than one step takes come last, because they can end the engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CHUNK_TOKENS = 64
SAMPLED_TOKENS = 6
PROMPT = "red, green, blue, red, green, blue, red, green, blue, red, green,"
LONG_PROMPT = "The harbour was quiet that evening and the boats lay still. " * 20  # about 250 tokens


def run(job: dict[str, object]) -> dict[str, object]:
    """Sampled tokens of the short prompt, the engine's draft counters, texts of the seeded requests."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(job["model"]),
        speculative_config=job["speculative"],
        dtype="float32",  # in bf16 another batch size alone can turn a sampled token
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=32,
        max_num_batched_tokens=CHUNK_TOKENS,
        disable_log_stats=False,
        kv_cache_memory_bytes=2**28,
    )
    sampled = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=SAMPLED_TOKENS, ignore_eos=True)
    outputs = llm.generate([PROMPT] * int(str(job["samples"])), sampled, use_tqdm=False)
    result: dict[str, object] = {"tokens": [list(output.outputs[0].token_ids) for output in outputs]}
    for metric in llm.get_metrics():
        if metric.name in ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens"):
            result[metric.name.removeprefix("vllm:spec_decode_num_")] = metric.value
    seeded = SamplingParams(temperature=1.0, max_tokens=24, seed=7, ignore_eos=True)
    other = SamplingParams(temperature=1.0, max_tokens=24, seed=8, ignore_eos=True)
    first = llm.generate([LONG_PROMPT], seeded, use_tqdm=False)
    again = llm.generate([LONG_PROMPT], seeded, use_tqdm=False)
    beside = llm.generate([LONG_PROMPT] * 3, [other, seeded, other], use_tqdm=False)
    texts = [output.outputs[0].text for output in (*first, *again, *beside)]
    result["seeded"] = {
        "first": texts[0],
        "again": texts[1],
        "others": [texts[2], texts[4]],
        "beside": texts[3],
    }
    return result


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(run(json.loads(sys.argv[1]))), encoding="utf-8")

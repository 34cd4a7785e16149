"""``python -m benchmarks.switch.mix --data DIR [--out FILE]``: is n-gram over the head better than either alone?

One engine with head and switch answers each prompt by the head, by n-gram, by the mix of both (n-gram where the text has a
continuation, else the head) and without a draft, in an order that turns. Printed for each prompt set: the geometric mean of the
ratios of seconds a token, without the reading of the prompt (under 1: the first is quicker), its 95 % interval (bootstrap over
prompts), and how often the four texts were the same.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

from benchmarks.switch.paired import SWITCH, SWITCH_ENV, Engine, arguments, chosen_pair, interval
from outrider.measure.prompt_sets import load_prompt_set
from outrider.measure.prompt_sets.options import PromptOptions

K = 3
DRAFTS = ("eagle3", "ngram", "mix", "off")
SETS = ("spec-bench/rag", "spec-bench/summarization")
LONGEST = 1900  # estimated tokens of a prompt, so that it fits into 2,048 with its answer
LEAST_TOKENS = 8  # of an answer, for a rate


def answered(engine: Engine, prompt: str, tokens: int, number: int) -> dict[str, Any]:
    """Every draft's batch for one prompt."""
    order = DRAFTS[number % 4 :] + DRAFTS[: number % 4]
    return {draft: engine.batch(draft=draft, prompt=prompt, tokens=tokens) for draft in order}


def rate(batch: dict[str, Any]) -> float:
    """Seconds a token, from the first token on."""
    return float(batch["decode_s"]) / (len(batch["tokens"]) - 1)


def told(name: str, found: list[dict[str, Any]]) -> list[str]:
    """One prompt set in lines."""
    rated = [one for one in found if min(len(batch["tokens"]) for batch in one.values()) >= LEAST_TOKENS]
    same = sum(all(batch["tokens"] == one["off"]["tokens"] for batch in one.values()) for one in found)
    lines = [
        f"{name}: {len(found)} prompts, {len(rated)} with an answer long enough, {same} with one text by all drafts"
    ]
    for one, other in [
        ("mix", "eagle3"),
        ("mix", "ngram"),
        ("mix", "off"),
        ("eagle3", "off"),
        ("ngram", "off"),
    ]:
        mean, low, high = interval([math.log(rate(each[one]) / rate(each[other])) for each in rated])
        lines.append(f"  {one} / {other}: {mean:.3f} [{low:.3f}, {high:.3f}] n={len(rated)}")
    return lines


def main() -> None:
    """Run and print; with --out also write what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the named prompt sets")
    parser.add_argument("--set", dest="sets", action="append", help=f"default: {' and '.join(SETS)}")
    parser.add_argument("--head", type=Path, help="another EAGLE-3 head of the built-in target")
    parser.add_argument("--prompts", type=int, default=16, help="of each set (16)")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer, at most (64)")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    options = PromptOptions(max_tokens=LONGEST, data_folder=given.data)
    sets = [load_prompt_set(name, given.prompts, options) for name in given.sets or SETS]
    engine = Engine({**arguments(chosen_pair(given.head), K), **SWITCH}, SWITCH_ENV)
    run: dict[str, Any] = {"at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), "k": K, "sets": {}}
    try:
        engine.batch(draft="off", prompt="Hello", tokens=8)
        for one in sets:
            found = run["sets"][one.name] = []
            for number, prompt in enumerate(one.prompts):
                found.append(answered(engine, prompt.turns[0], given.tokens, number))
                print(f"  {one.name} {number + 1}", end="\r", flush=True)
            print("\n".join(told(one.name, found)), flush=True)
    finally:
        engine.stop()
        if given.out:
            given.out.write_text(json.dumps(run) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""``python -m benchmarks.switch [--repeats 16] [--out FILE]``: paired runs on the CPU build, one engine at a time.

Three engines stay loaded: without speculation, with the head, with the head and the switch. In each repeat every arm runs the
same prompts, in an order that turns; a ratio is of two runs of one repeat. Printed: the geometric mean of the ratios of seconds
(over 1: slower), its 95 % interval (bootstrap over repeats), and how often it was run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

from benchmarks.built_in import Pair
from benchmarks.switch.paired import SWITCH, SWITCH_ENV, Engine, arguments, chosen_pair, interval

K = 5
PAIRS = {
    "switch idle / plain with head": ("idle", "head"),
    "off / without speculation": ("off", "none"),
    "warm / without speculation": ("warm", "none"),
    "head / without speculation": ("head", "none"),
}
ARMS: dict[str, tuple[str, str | None]] = {  # arm → engine, stamp
    "none": ("none", None),
    "head": ("head", None),
    "idle": ("switch", "eagle3"),
    "off": ("switch", "off"),
    "warm": ("switch", "warm"),
}


def start(pair: Pair) -> dict[str, Engine]:
    """The three engines, loaded one after the other."""
    return {
        "none": Engine(arguments(pair)),
        "head": Engine(arguments(pair, K)),
        "switch": Engine({**arguments(pair, K), **SWITCH}, SWITCH_ENV),
    }


def main() -> None:
    """Run and print; with --out also write every second that was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", type=Path, help="another EAGLE-3 head of the built-in target")
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--rows", default="1,4,8")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    engines = start(chosen_pair(given.head))
    names, measured = list(ARMS), []
    try:
        for rows in map(int, given.rows.split(",")):
            for repeat in range(-1, given.repeats):  # the first one warms up
                turned = names[repeat % len(names) :] + names[: repeat % len(names)]
                found = {}
                for arm in turned if repeat % 2 else reversed(turned):
                    engine, draft = ARMS[arm]
                    found[arm] = engines[engine].batch(
                        draft=draft, rows=rows, tokens=given.tokens, repeat=repeat
                    )["seconds"]
                if repeat >= 0:
                    measured.append(
                        {"rows": rows, "repeat": repeat, "load": os.getloadavg()[0], "seconds": found}
                    )
            for title, (one, other) in PAIRS.items():
                logs = [
                    math.log(each["seconds"][one] / each["seconds"][other])
                    for each in measured
                    if each["rows"] == rows
                ]
                mean, low, high = interval(logs)
                print(f"batch {rows}: {title}: {mean:.3f} [{low:.3f}, {high:.3f}] n={len(logs)}", flush=True)
    finally:
        for engine in engines.values():
            engine.stop()
        if given.out:
            run = {
                "at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
                "k": K,
                "tokens": given.tokens,
                "runs": measured,
            }
            given.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

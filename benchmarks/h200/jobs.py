"""The jobs: one `outrider` command each, with what it is expected to take.

Acceptance of the shapes, all of it stated, none measured here:

- Llama 3.3 70B: EAGLE-3 AL 3.06 at K = 3, P-EAGLE AL 4.37 at K = 7: assumed, between the published heads of that target
  (nebius' card, T = 1, K = 7: 2.88 to 5.08).
- Qwen3-Coder-30B-A3B: P-EAGLE AL 6.66 at K = 10 on HumanEval (amazon's card). EAGLE-3: none published for it; 2.65 at K = 3 of
  gpt-oss-20b on HumanEval (AWS) stands in, a mixture of experts of like active size.

Position rates follow with the same chance at each position (docs/forecast.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SHAPES = HERE / "shapes"
CONCURRENCY = (1, 8, 32, 64, 128)
OUTPUT_TOKENS = 256
TRIALS = int(
    os.environ.get("OUTRIDER_H200_TRIALS", "2")
)  # short leases: one trial of every arm first, the second another day
FIRST_START_S, NEXT_START_S = 220.0, 130.0  # with and without compiling, both queues at once: README.md
CELL_OVERHEAD_S = 13.0  # the load generator's own start and end


@dataclass(frozen=True, slots=True)
class Job:
    """One command. `arguments` follow `outrider`; `requests` by concurrency, one trial.

    `tok_s`: expected output tokens per second by arm, in the order of `CONCURRENCY`, for the estimate alone.
    """

    name: str
    arguments: tuple[str, ...]
    requests: Mapping[int, int] = field(default_factory=dict)
    tok_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    compiles: int = 3

    def command(self, runs: Path) -> list[str]:
        """The whole argument list after `outrider`."""
        given = [*self.arguments, "--out", str(runs / self.name)]
        if self.requests:
            given += ["--requests", ",".join(f"{at}={count}" for at, count in self.requests.items())]
            given += ["--concurrency", ",".join(map(str, self.requests))]
        return given

    def arm_s(self, arm: str, first: bool) -> float:
        """Expected seconds of one arm: its start, then every cell of both trials."""
        load = sum(
            (count + WARMUP) * OUTPUT_TOKENS / rate
            for count, rate in zip(self.requests.values(), self.tok_s[arm], strict=True)
        )
        start = FIRST_START_S if first else NEXT_START_S
        return start + TRIALS * (load + CELL_OVERHEAD_S * len(self.requests))

    def expected(self) -> dict[str, float]:
        """Expected seconds by arm."""
        return {arm: self.arm_s(arm, i < self.compiles) for i, arm in enumerate(self.tok_s)}


WARMUP = 2


def _shape(
    name: str, acceptance: Mapping[str, str], source: str, output_tokens: int = OUTPUT_TOKENS
) -> tuple[str, ...]:
    """A forecast of one shape: the stack's EAGLE-3 at K = 3, then the arms most worth having, the rest last."""
    head = SHAPES / f"eagle3-{name}.config.json"
    arms = (f"p-eagle:k=7,model={head}", f"eagle3:k=5,model={head}", f"p-eagle:k=5,model={head}")
    return (
        *("forecast", str(HERE / f"{name}.yaml")),
        *(word for method, one in acceptance.items() for word in ("--acceptance", f"{method}={one}")),
        *("--source", source),
        *(word for arm in arms for word in ("--arm", arm)),
        *("--prompt-tokens", "128", "--output-tokens", str(output_tokens), "--trials", str(TRIALS)),
        *("--temperature", "1.0", "--no-interleave"),
    )


LLAMA = Job(
    "llama-3.3-70b",
    _shape(
        "llama-3.3-70b",
        {"eagle3": "3.06@3", "p-eagle": "4.37@7"},
        "assumed, within the range of the target's published heads",
    ),
    requests={1: 2, 8: 184, 32: 184, 64: 192, 128: 384},
    tok_s={  # one H200, vLLM 0.26.0, earlier run; K = 5 guessed
        "baseline": (48, 370, 1085, 2277, 3662),
        "eagle3-k3": (122, 740, 2680, 3815, 4239),
        "p-eagle-k7": (187, 1065, 2868, 3319, 3446),
        "eagle3-k5": (140, 800, 2700, 3600, 3900),
        "p-eagle-k5": (170, 1000, 2850, 3700, 4000),
    },
)
QWEN3 = Job(
    "qwen3-coder-30b-a3b",
    _shape(
        "qwen3-coder-30b-a3b",
        {"eagle3": "2.65@3", "p-eagle": "6.66@10"},
        "EAGLE-3: AWS, gpt-oss-20b on HumanEval at K = 3 as a stand-in; P-EAGLE: amazon's card, HumanEval at K = 10",
    ),
    requests={1: 4, 8: 184, 32: 184, 64: 256, 128: 512},
    tok_s=dict.fromkeys(  # a guess
        ("baseline", "eagle3-k3", "p-eagle-k7", "eagle3-k5", "p-eagle-k5"), (240, 1200, 3500, 6000, 9000)
    ),
)
REHEARSAL = Job(
    "rehearsal",
    _shape("rehearsal", {"eagle3": "3.06@3", "p-eagle": "4.37@7"}, "a rehearsal", output_tokens=8),
    requests={1: 2, 8: 8, 32: 32, 64: 64, 128: 128},
)


def real(models: Path, data: Path) -> Job:
    """Real weights: no draft, n-gram, and the 0.5B as a draft model; text to its natural end beside the throughput."""
    return Job(
        "qwen2.5-coder-1.5b",
        (
            *("bench", str(models / "qwen2.5-coder-1.5b.yaml")),  # a copy: its model is named beside it
            *(
                "--set",
                "humaneval",
                "--set",
                "gsm8k",
                "--set",
                "mt-bench",
                "--data",
                str(data),
                "--limit",
                "64",
            ),
            *("--arm", f"draft-model:k=4,model={models / 'qwen2.5-coder-0.5b-instruct'}"),
            *("--trials", "2", "--output-tokens", "128", "--natural-end", "24", "--natural-tokens", "384"),
            "--no-interleave",
        ),
        requests={1: 6, 8: 48},
    )

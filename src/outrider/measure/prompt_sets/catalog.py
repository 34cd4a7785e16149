"""The sets that have a name: format, licence, file names and hub id of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outrider.measure.prompt_sets import gsm8k, humaneval, own, questions, sharegpt
from outrider.measure.prompt_sets.shape import Shape


@dataclass(frozen=True, slots=True)
class Entry:
    """One named set.

    `files`: its names in a data folder, the first one preferred; `hub`: its data set on the hub, empty where there is none we
    know; `hub_files`: which of that repository's files; `get`: what to do where neither is there.
    `packaged`: `files` are in the distribution. `max_turns`: 0 for all.
    """

    shape: Callable[[object], Shape]
    license: str = ""
    files: tuple[str, ...] = ()
    hub: str = ""
    hub_files: tuple[str, ...] = ()
    get: str = ""
    template: str = ""
    packaged: bool = False
    max_turns: int = 0
    by_category: bool = False


_CONVERT = (
    "and give {name}=FILE; or convert the hub's copy where `datasets` is installed: "
    "datasets.load_dataset({load}, split='test').to_json('{name}.jsonl')."
)

CATALOG: Mapping[str, Entry] = MappingProxyType(
    {
        "humaneval": Entry(
            humaneval.shape,
            license="MIT",
            files=("humaneval.jsonl.gz", "humaneval.jsonl", "HumanEval.jsonl.gz"),
            hub="openai/openai_humaneval",
            hub_files=("humaneval.jsonl.gz", "humaneval.jsonl", "HumanEval.jsonl.gz", "test.jsonl"),
            get="Take data/HumanEval.jsonl.gz of github.com/openai/human-eval "
            + _CONVERT.format(name="humaneval", load="'openai/openai_humaneval'"),
            template=humaneval.TEMPLATE,
        ),
        "gsm8k": Entry(
            gsm8k.shape,
            license="MIT",
            files=("gsm8k-test.jsonl", "gsm8k-test.jsonl.gz"),
            hub="openai/gsm8k",
            hub_files=("main/test.jsonl", "test.jsonl", "gsm8k-test.jsonl"),
            get="Take grade_school_math/data/test.jsonl of github.com/openai/grade-school-math "
            + _CONVERT.format(name="gsm8k", load="'openai/gsm8k', 'main'"),
        ),
        "mt-bench": Entry(
            questions.shape,
            license="Apache-2.0",
            files=("mt-bench.jsonl", "mt-bench.jsonl.gz"),
            hub="HuggingFaceH4/mt_bench_prompts",
            hub_files=("raw/question.jsonl", "question.jsonl", "mt-bench.jsonl"),
            get="Take fastchat/llm_judge/data/mt_bench/question.jsonl of github.com/lm-sys/FastChat and give mt-bench=FILE.",
            by_category=True,
        ),
        "spec-bench": Entry(
            questions.shape,
            license="Apache-2.0",
            files=("spec-bench.jsonl", "spec-bench.jsonl.gz"),
            hub_files=("spec-bench.jsonl", "question.jsonl"),
            get="Take data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench and give spec-bench=FILE.",
            by_category=True,
        ),
        "sharegpt": Entry(
            sharegpt.shape,
            license="not stated",
            hub_files=("ShareGPT_V3_unfiltered_cleaned_split.json",),
            get="Its licence is stated nowhere, so you choose the copy: sharegpt=FILE.json or sharegpt=ORG/NAME.",
            max_turns=1,
        ),
        "jsonl": Entry(own.shape, get="Give your file: jsonl=FILE.jsonl, or its path alone."),
        "demo-humaneval": Entry(
            humaneval.shape,
            license="MIT",
            files=("demo-humaneval.jsonl",),
            template=humaneval.TEMPLATE,
            packaged=True,
        ),
        "demo-mt-bench": Entry(
            questions.shape,
            license="Apache-2.0",
            files=("demo-mt-bench.jsonl",),
            packaged=True,
            by_category=True,
        ),
    }
)


def set_names() -> tuple[str, ...]:
    """The names a spec may begin with."""
    return tuple(CATALOG)

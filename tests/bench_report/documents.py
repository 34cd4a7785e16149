"""Run documents for the tests: a large GPU run, a CPU demo, an interrupted run, an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from outrider.bench.answers import answers
from outrider.bench.document import BASELINE, Arm, Cell, Labels, PromptSetInfo, RunDocument, Settings
from tests.bench_report.modelled import (
    ARMS,
    USD_PER_HOUR,
    Plan,
    cell,
    costs,
    crossovers,
    differences,
    natural_end,
    speedups,
    step_costs,
)


def build(plan: Plan, cells: Sequence[Cell], labels: Labels, name: str) -> RunDocument:
    """A document whose comparisons follow from the cells."""
    found = speedups(plan, cells)
    crossed = crossovers(plan, found)
    document = RunDocument(
        schema="outrider/bench-run/v1",
        name=name,
        created="2026-11-29T20:00:00Z",
        complete=all(one.state != "missing" for one in cells),
        settings=Settings(
            concurrency=list(plan.grid),
            trials=plan.trials,
            output_tokens=plan.tokens,
            requests={running: max(plan.requests_each * running, 16) for running in plan.grid},
            warmup=8,
            temperature=labels.temperature,
            natural_end_prompts=80,
            natural_end_tokens=1024,
        ),
        labels=labels,
        provenance=_provenance(plan),
        served_name="Llama-3.3-70B-Instruct FP8" if plan.gpu else "SmolLM2-135M-Instruct",
        price={"usd_per_hour": USD_PER_HOUR, "accelerators": 1} if plan.priced else None,
        slo={"ttft_p99_ms": 500, "tpot_p99_ms": 40} if plan.priced else {},
        arms=_arms(plan),
        prompt_sets=_sets(plan),
        cells=list(cells),
        natural_end=natural_end(plan),
        speedups=found,
        latency_differences=differences(plan, cells),
        steps=step_costs(plan),
        crossovers=crossed,
        costs=costs(cells, plan.sets) if plan.priced else [],
    )
    return document.model_copy(update={"answers": answers(document)})


def _provenance(plan: Plan) -> dict[str, JsonValue]:
    return {
        "created": "2026-11-29T20:00:00Z",
        "outrider": "0.1.0",
        "commit": "9f1b8a8c0ffe",
        "python": "3.12.3",
        "system": "Linux x86_64",
        "command": "outrider bench …/llama-3.3-70b-fp8-eagle3.yaml --out …/run-7",
        "hardware": {
            "processor": "Intel Xeon Platinum 8480+",
            "cores": 16,
            "memory_gib": 128.0,
            "accelerators": [f"{plan.gpu}, 143771 MiB, 580.159.04"] if plan.gpu else [],
        },
        "engine": {"name": "vLLM", "version": "0.26.0"},
        "load": {"aiperf": "0.13.0"},
    }


def _arms(plan: Plan) -> list[Arm]:
    return [
        Arm(
            name=one,
            method=ARMS[one].method,
            draft_length=ARMS[one].k,
            draft={"method": ARMS[one].method, "model": f"heads/{one}", "draft_length": ARMS[one].k}
            if ARMS[one].k
            else {},
        )
        for one in plan.arms
    ]


def _sets(plan: Plan) -> list[PromptSetInfo]:
    return [
        PromptSetInfo(
            name=one,
            prompts=80 + 10 * place,
            source=f"{one}.jsonl",
            sha256=f"{place}{'ab34' * 16}"[:64],
            license="MIT",
            dropped={"longer than 2048 tokens": 2} if place else {},
        )
        for place, one in enumerate(plan.sets)
    ]


def large() -> RunDocument:
    """5 arms × 3 sets × 7 concurrencies on an H200; one cell failed, one invalid, one arm without accelerator figures."""
    plan = Plan()
    cells = [
        cell(plan, arm, name, running) for name in plan.sets for running in plan.grid for arm in plan.arms
    ]
    for place, one in enumerate(cells):
        if (one.arm, one.prompt_set, one.concurrency) == ("eagle3-k7", "gsm8k", 64):
            reason = "the engine ended: CUDA out of memory while capturing graphs"
            cells[place] = Cell(
                arm=one.arm, prompt_set=one.prompt_set, concurrency=64, state="failed", reason=reason
            )
        if (one.arm, one.prompt_set, one.concurrency) == ("ngram-k3", "mt-bench", 8):
            cells[place] = one.model_copy(
                update={"state": "invalid", "reason": "the engine restarted during trial 2"}
            )
    labels = Labels(
        weights="dummy",
        acceptance="synthetic",
        acceptance_source="RedHatAI model card, per position, MT-Bench",
        interleaved=True,
        absolute_times=True,
        temperature=0.0,
        notes=["chat template of the target's tokenizer"],
    )
    return build(plan, cells, labels, "Llama 3.3 70B on one H200")


def demo() -> RunDocument:
    """2 arms × 2 sets × concurrency 1 and 4 on a CPU, no price, no accelerator."""
    plan = Plan(
        arms=(BASELINE, "ngram-k3"),
        sets=("humaneval", "gsm8k"),
        grid=(1, 4),
        requests_each=4,
        tokens=64,
        step_ms=16.0,
        slope_ms=6.0,
        gpu="",
        priced=False,
    )
    cells = [
        cell(plan, arm, name, running) for name in plan.sets for running in plan.grid for arm in plan.arms
    ]
    labels = Labels(
        weights="real", acceptance="measured", interleaved=True, absolute_times=False, temperature=0.0
    )
    return build(plan, cells, labels, "bench demo")


def partial() -> RunDocument:
    """The baseline failed everywhere but once, one trial, cells still missing: the run was interrupted."""
    plan = replace(
        Plan(), arms=(BASELINE, "eagle3-k3"), sets=("humaneval", "gsm8k"), grid=(1, 8), trials=1, priced=False
    )
    cells = []
    for name in plan.sets:
        for running in plan.grid:
            for arm in plan.arms:
                made = cell(plan, arm, name, running)
                if arm == BASELINE and (name, running) != ("humaneval", 1):
                    made = Cell(
                        arm=arm,
                        prompt_set=name,
                        concurrency=running,
                        state="failed",
                        reason="server died half way",
                    )
                elif (name, running) == ("gsm8k", 8):
                    made = Cell(arm=arm, prompt_set=name, concurrency=running, state="missing")
                cells.append(made)
    labels = Labels(
        weights="real", acceptance="measured", interleaved=False, absolute_times=True, temperature=1.0
    )
    return build(plan, cells, labels, "interrupted")


def bare() -> RunDocument:
    """Nothing was measured: one arm, no cells at all, nothing in any list."""
    whole = partial()
    empty: dict[str, object] = {
        name: []
        for name in (
            "cells",
            "natural_end",
            "speedups",
            "latency_differences",
            "steps",
            "crossovers",
            "costs",
            "answers",
        )
    }
    return whole.model_copy(update={**empty, "arms": whole.arms[1:], "provenance": {}, "prompt_sets": []})

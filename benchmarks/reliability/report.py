"""`report.md`: what was seen, phase by phase, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.reliability.figures import Figures, PhaseFigures, Ratio, ReliabilityRun
from benchmarks.reliability.plan import ARMS, FIXED, GOVERNED, HEAVY, OPEN_SHARE, PHASES, PLAIN, cell_s
from outrider.bench.document import Interval
from outrider.bench.report.text import NONE, clean, count, counts, number, percent, percentile, ratio

EVEN = "not told apart"
WORDS = {GOVERNED: "governed", FIXED: "always the head", PLAIN: "no draft"}


def render(run: ReliabilityRun) -> str:
    """The whole page."""
    return "\n\n".join(
        [
            "# Changing traffic on a real engine, with and without the governor",
            "![Draft in force and tokens a second over the phases](timeline.svg)",
            *_answers(run),
            "## By phase",
            _figures_table(run),
            "## Governed against the others",
            "Same requests at the same moments. E2E and TTFT: under 1 is quicker; tok/s: over 1 is more. In brackets 95 %.",
            _ratio_table(run),
            "## Switches",
            _switch_table(run),
            "## How it was measured",
            *_method(run),
        ]
    ) + "\n"  # fmt: skip


def verdicts(phases: Sequence[PhaseFigures], over: str) -> dict[str, list[str]]:
    """Phases by how the governed arm's mean E2E stands to another's: by the whole interval, else `EVEN`."""
    found: dict[str, list[str]] = {"quicker": [], "slower": [], EVEN: []}
    for phase in phases:
        seen = _ratio(phase, over, "e2e_ms.mean")
        if seen is not None:
            found[_side(seen)].append(f"{phase.name} ({interval(seen)})")
    return found


def _side(seen: Interval) -> str:
    if seen.low is None or seen.high is None:
        return EVEN
    return "quicker" if seen.high < 1 else "slower" if seen.low > 1 else EVEN


def _answers(run: ReliabilityRun) -> list[str]:
    lines = []
    for over in (FIXED, PLAIN):
        found = verdicts(run.phases, over)
        says = "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items() if names)
        lines.append(f"- **Governed against {WORDS[over]}**, mean time of a request by phase: {says}.")
    failed = {arm: sum(run.overall.arms[arm].failures.values()) for arm in ARMS}
    sent = {arm: run.overall.arms[arm].sent for arm in ARMS}
    lines.append(
        "- **Failures**: "
        + ", ".join(f"{WORDS[arm]} {failed[arm]} of {count(sent[arm])}" for arm in ARMS)
        + "."
    )
    lines.append(f"- **Switches**: {len(run.overall.switches)} in {number(run.minutes)} minutes of traffic.")
    return ["\n".join(lines)]


def interval(seen: Interval | None) -> str:
    """``0.93 [0.88, 0.97]``."""
    if seen is None:
        return NONE
    return (
        ratio(seen.value)
        if seen.low is None
        else f"{ratio(seen.value)} [{ratio(seen.low)}, {ratio(seen.high)}]"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """`left` columns to the left, the others to the right."""
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    cells = (clean(cell).replace("|", "\\|") for row in rows for cell in row)
    lines = zip(*[cells] * len(head), strict=True)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _figures_table(run: ReliabilityRun) -> str:
    latencies = ("E2E p50", "p95", "p99", "TTFT p50", "p95", "p99")
    head = ("phase", "arm", "n", "failed", *latencies, "tok/s", "closed", "AL", "drafted")
    rows = [
        [phase.name if arm == ARMS[0] else "", WORDS[arm], *_figures_row(phase.arms[arm])]
        for phase in (*run.phases, run.overall)
        for arm in ARMS
    ]
    return _table(head, rows, 2)


def _figures_row(one: Figures) -> list[str]:
    return [
        count(one.e2e_ms.n),
        counts(one.failures),
        *(percentile(one.e2e_ms, name) for name in ("p50", "p95", "p99")),
        *(percentile(one.ttft_ms, name) for name in ("p50", "p95", "p99")),
        number(one.tok_s),
        number(one.closed_tok_s),
        ratio(one.acceptance_length),
        percent(one.drafted),
    ]


_RATIOS = ("e2e_ms.mean", "e2e_ms.p95", "e2e_ms.p99", "ttft_ms.mean", "closed_tok_s")


def _ratio_table(run: ReliabilityRun) -> str:
    head = ("phase", "against", "E2E mean", "E2E p95", "E2E p99", "TTFT mean", "tok/s closed")
    rows = [
        [phase.name if over == FIXED else "", WORDS[over], *(interval(_ratio(phase, over, one)) for one in _RATIOS)]
        for phase in (*run.phases, run.overall)
        for over in (FIXED, PLAIN)
    ]  # fmt: skip
    return _table(head, rows, 2)


def _ratio(phase: PhaseFigures, over: str, figure: str) -> Interval | None:
    found: list[Ratio] = [one for one in phase.ratios if (one.over, one.figure) == (over, figure)]
    return found[0].ratio if found else None


def _switch_table(run: ReliabilityRun) -> str:
    rows = []
    for phase in run.phases:
        for number_of, draft in enumerate(phase.begins_with):
            mine = [one for one in phase.switches if one.round == number_of]
            rows.append([phase.name, str(number_of + 1), f"{draft} in force", NONE, "", ""])
            rows += [
                ["", "", f"{one.before} → {one.after}", _after(one.after_s), one.reason, one.why]
                for one in mine
            ]
    return _table(("phase", "round", "draft", "after", "reason", "why"), rows, 6)


def _after(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 0 else "before it"


def _method(run: ReliabilityRun) -> list[str]:
    stale = next(phase for phase in PHASES if phase.stale).name
    length_s = cell_s(run.minutes, run.rounds, len(run.phases))
    own = " and a second engine without the draft" if run.plain_engine else " by default"

    def thrice(figure: object) -> str:
        heavy = any(phase.load > 1 for phase in PHASES[: len(run.phases)])
        return f" ({figure} in load × {HEAVY})" if heavy else ""

    sets = "; ".join(
        f"{one.name}: {one.prompts} prompts ({one.source}{f', {one.license}' if one.license else ''})"
        for one in run.prompt_sets
    )
    loads = [cell.load for cell in run.cells]
    return [
        f"Three servers, `outrider serve` each, stay loaded on one machine and take turns, one at a time: `policy`{own}, "
        f"`policy: off`, and no draft. A phase is {run.rounds} × {length_s:.0f} s on each arm, with the same prompts at the same "
        "moments; the arms' order is turned from phase to phase and from round to round.",
        f"The first {percent(OPEN_SHARE)} of a phase is **open loop**: requests come at random (Poisson), "
        f"{run.rate_s:.2f} a second{thrice(f'{run.rate_s * HEAVY:.2f}')}, whatever became of those before, as users "
        "do; a server that is too slow shows in their waiting, where a closed loop would send it less. Latencies (ms, from the "
        "moment a request was due) and *tok/s* are of this part; at a load that a server sustains *tok/s* is what was asked for. "
        f"The rest is **closed loop**, {run.streams} streams{thrice(run.streams * HEAVY)}: *closed* is the tok/s that a server "
        f"can make for so many. An answer is {run.output_tokens} tokens whatever it says, greedy. p95 needs 72 values, "
        "p99 368: else *n too small*. n: answered open-loop requests; failed: of both parts; drafted: share of requests for "
        "which something was drafted.",
        *([_stale(run, stale)] if any(one.name == stale for one in run.phases) else []),
        "Intervals: bootstrap over slices of ten seconds, the same in both arms. Two processes of one engine differ by up to 5 % "
        "by themselves (`results/switch-cpu-vllm-0.32.md`), which no interval here holds. An arm that waits for its turn is idle "
        "meanwhile: its governor's windows of acceptance run out, its step times do not.",
        f"**Prompts.** {sets}.",
        f"**Provenance.** {_provenance(run)} The machine's load average at the ends of cells: {min(loads):.1f} to "
        f"{max(loads):.1f}. Every figure is in `run.json`.",
    ]


def _stale(run: ReliabilityRun, name: str) -> str:
    served = run.head.get("acceptance_length")
    promised = f" (AL {served:.2f})" if isinstance(served, float) else ""
    return (
        f"**{name.capitalize()}**: all servers are started again, with the same head moved away from where its target is (noise "
        f"of {run.stale_noise:g} × the root mean square on each matrix), as an upgrade moves the target; its manifest still says "
        f"what was served before{promised}. Then again with the good head. At its start a server times each draft alone, so a "
        "governor knows something before the first request."
    )


def _provenance(run: ReliabilityRun) -> str:
    found = run.provenance
    hardware = found.get("hardware")
    machine = hardware if isinstance(hardware, dict) else {}
    created = str(found.get("created", ""))[:10]
    return (
        f"{created}, {machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB; {run.engine}; "
        f"Python {found.get('python')}; Outrider at commit {found.get('commit')}. `{found.get('command')}`."
    )

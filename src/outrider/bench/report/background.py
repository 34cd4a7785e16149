"""What stands around the findings: what was run, the sets, what failed, provenance, settings, words, how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from outrider.bench.document import RunDocument
from outrider.bench.report.content import Block, Column, Item, Row, Section, Table
from outrider.bench.report.tables import latency_table, machine_table, natural_end_table, work_table
from outrider.bench.report.text import NONE, clean, count, counts, flatten, number

GLOSSARY = (
    ("acceptance rate", "Accepted draft tokens ÷ proposed draft tokens, 0 to 1."),
    (
        "AL, acceptance length",
        "1 + accepted draft tokens ÷ drafts. The bonus token that every step yields is included (vLLM's convention).",
    ),
    (
        "arm",
        "One configuration under comparison: a draft with its length K, or the baseline, which has none.",
    ),
    (
        "break-even",
        "T(b, K) ÷ T(b, 0): the tokens per step at which a step with the draft is worth what it costs.",
    ),
    (
        "C, concurrency",
        "Requests the load generator keeps open. The engine may run fewer: see measured running requests.",
    ),
    ("cell", "One arm on one prompt set at one concurrency, all its trials together."),
    (
        "coverage",
        "Drafts ÷ engine steps: how often there was anything to verify. An n-gram draft is silent on most steps.",
    ),
    ("E2E", "From sending the request to its last token."),
    ("effective K", "Proposed draft tokens ÷ drafts: below K where the draft stopped early."),
    (
        "made",
        "Tokens per step that the arm's steps yielded (modelled: the AL stated), beside those needed to break even.",
    ),
    (
        "measured running requests, b",
        "Mean number of requests the engine ran over the window; the x axis of every crossover.",
    ),
    (
        "not steady",
        "The window in which the full concurrency ran was too short; the number is printed, not to be relied on.",
    ),
    (
        "objective",
        "The limits on latency that the stack states (`slo`); the share within it is of requests that kept all of them.",
    ),
    ("p50, p95, p99", "Nearest-rank percentiles. p95 needs 72 values, p99 368; below that: n too small."),
    ("position rate", "Share of all drafts in which the token at this position was accepted."),
    ("queue wait", "From arrival at the front to dispatch to the engine."),
    (
        "shape",
        "A model's sizes without its weights, as its config.json says them: what a forecast runs, on dummy weights.",
    ),
    (
        "speed-up",
        "Output tokens per second of the arm ÷ the baseline's, same prompts, same concurrency; geometric mean over trials.",
    ),
    (
        "step gap",
        "Time between two arrivals of text, what a reader sees as stutter. With a draft one arrival holds several tokens.",
    ),
    ("T(b, K)", "Time of one engine step with b running requests and K proposed tokens each."),
    (
        "token ITL",
        "Step gap ÷ tokens that arrived, counted once a token. Never compare it with a step gap, or with a figure "
        "that another tool calls ITL.",
    ),
    (
        "tokens per step",
        "Output tokens ÷ all engine steps, steps without a draft included: 1.00 for the baseline.",
    ),
    (
        "trial",
        "One run of a cell on one start of the server. Below three of them nothing is decided: answers only lean.",
    ),
    ("TPOT", "(Last token − first token) ÷ tokens after the first arrival, a request's mean."),
    ("TTFT", "From sending the request to its first token."),
    ("a user's tok/s", "Median over requests of 1 ÷ TPOT."),
)


def banners(document: RunDocument) -> tuple[tuple[str, str], ...]:
    """What must be read before any number."""
    found = []
    labels = document.labels
    if not document.complete:
        left = sum(1 for cell in document.cells if cell.state == "missing")
        ends = sum(1 for row in document.natural_end if row.state == "missing")
        parts = [f"{left} of {len(document.cells)} cells"] if left else []
        parts += [f"{ends} of {len(document.natural_end)} runs to the natural end"] if ends else []
        more = f"{' and '.join(parts)} are missing. " if parts else ""
        found.append(
            ("bad", f"This run is not complete. {more}Run the same command again to go on at the next cell.")
        )
    if not labels.absolute_times:
        found.append(
            (
                "warn",
                "Measured on a CPU: absolute times are not to be quoted. Ratios come first; milliseconds stand only under "
                "Figures per cell.",
            )
        )
    if labels.modelled:
        found.append(
            (
                "warn",
                "Modelled: speed-ups are reckoned from measured step times and a stated acceptance; no draft token was accepted.",
            )
        )
    if labels.weights == "dummy":
        found.append(
            (
                "warn",
                "Dummy weights: timing is real, the text is not. Nothing here says what a model answers.",
            )
        )
    if labels.acceptance == "synthetic":
        source = clean(labels.acceptance_source) or "no source given"
        found.append(("warn", f"Synthetic acceptance, not measured on this model. Source: {source}."))
    if not labels.interleaved:
        found.append(
            (
                "warn",
                "Arms ran one after the other, not interleaved: a drift of the machine is not told from a difference.",
            )
        )
    bad = sum(1 for cell in document.cells if cell.state in {"failed", "invalid"})
    if bad:
        found.append(
            (
                "warn",
                f"{bad} of {len(document.cells)} cells failed or are invalid: see Cells that do not stand.",
            )
        )
    return tuple(found)


def what_was_run(document: RunDocument) -> tuple[tuple[str, str], ...]:
    """(label, words): the honest labels of the run."""
    labels, settings = document.labels, document.settings
    natural = settings.natural_end_prompts and document.forecast is None
    ends = f"; natural end up to {settings.natural_end_tokens}" if natural else ""
    trials = f"{settings.trials}, {'interleaved' if labels.interleaved else 'not interleaved'}"
    pairs = [
        ("target model", document.served_name),
        ("weights", labels.weights),
        ("acceptance", f"{labels.acceptance}{' (source: at the top)' if labels.acceptance_source else ''}"),
        ("hardware", _hardware(document)),
        ("engine", _engine(document)),
        ("temperature", f"{labels.temperature:g}"),
        ("times", "may be quoted for this hardware" if labels.absolute_times else "ratios only: a CPU run"),
        ("concurrency", ", ".join(str(step) for step in settings.concurrency)),
        ("trials", trials),
        ("output", f"{settings.output_tokens} tokens a request, fixed{ends}"),
        ("objective", "; ".join(f"{key} {value}" for key, value in flatten(document.slo)) or "none"),
    ]
    return tuple((name, clean(text)) for name, text in (*pairs, *(("note", note) for note in labels.notes)))


def _hardware(document: RunDocument) -> str:
    gpus = {cell.pooled.gpu.name: None for cell in document.cells if cell.pooled and cell.pooled.gpu}
    known = document.provenance.get("hardware")
    parts = [", ".join(gpus)] if gpus else []
    if isinstance(known, dict):
        devices = known.get("accelerators")
        if not parts and isinstance(devices, list) and devices:
            parts.append(", ".join(str(device) for device in devices))
        if known.get("processor"):
            cores = f", {known['cores']} cores" if known.get("cores") else ""
            memory = f", {known['memory_gib']} GiB" if known.get("memory_gib") else ""
            parts.append(f"{known['processor']}{cores}{memory}")
    elif known:
        parts.append(" ".join(text for _, text in flatten(known)))
    return "; ".join(parts) or "not recorded"


def _engine(document: RunDocument) -> str:
    known = document.provenance.get("engine")
    if isinstance(known, dict):
        if set(known) >= {"name", "version"}:
            rest = [f"{key} {text}" for key, text in flatten(known) if key not in {"name", "version"}]
            return ", ".join([f"{known['name']} {known['version']}", *rest])
        return ", ".join(f"{key} {text}" for key, text in flatten(known))
    return " ".join(text for _, text in flatten(known)) if known else "not recorded"


def arms_table(document: RunDocument) -> Table:
    """The arms and the drafts they ran."""
    columns = (
        Column("arm", words=True),
        Column("method", words=True),
        Column("K"),
        Column("draft and notes", words=True),
    )
    rows = []
    for arm in document.arms:
        block = ", ".join(
            f"{key} {text}" for key, text in flatten(arm.draft) if key not in {"method", "draft_length"}
        )
        words = "; ".join(part for part in (block, *arm.notes) if part)
        items = (
            Item(clean(arm.name)),
            Item(clean(arm.method)),
            Item(str(arm.draft_length)),
            Item(clean(words) or NONE),
        )
        rows.append(Row(items, arm=arm.name))
    return Table("arms", "Arms", columns, tuple(rows))


def cells_section(document: RunDocument) -> Section:
    """Figures of every cell: three tables a set."""
    blocks = []
    for place, info in enumerate(document.prompt_sets):
        makers = (work_table, latency_table, machine_table)
        tables = [maker(document, info.name, place) for maker in makers]
        shown = tuple(table for table in tables if table.rows)
        if shown:
            blocks.append(Block(tables=shown, title=clean(info.name)))
    lines = [
        "Failures stand beside the percentiles, never inside. C: concurrency asked for; running: measured."
    ]
    if not document.labels.absolute_times:
        lines.insert(0, "Absolute times and rates of a CPU run: for debugging, not to be quoted.")
    return Section("cells", "Figures per cell", tuple(lines), tuple(blocks))


def natural_end_section(document: RunDocument) -> Section:
    """Acceptance at the natural end of the text."""
    if not document.natural_end:
        return Section("natural", "Acceptance at the natural end", ("Not measured in this run.",))
    line = (
        "With a fixed output length text runs on past its end, where a draft often does unusually well: "
        "so acceptance is also measured on answers that end by themselves."
    )
    return Section(
        "natural",
        "Acceptance at the natural end",
        (line,),
        (Block(tables=(natural_end_table(document.natural_end),)),),
    )


def prompts_section(document: RunDocument) -> Section:
    """The prompt sets and what was dropped of each."""
    rows = []
    for info in document.prompt_sets:
        lost = sum(info.dropped.values())
        dropped = f"{lost} of {info.prompts + lost}: {counts(info.dropped)}" if lost else "nothing"
        words = (info.source, info.license or "not stated", dropped, info.sha256[:12])
        rows.append(
            Row((Item(clean(info.name)), Item(count(info.prompts)), *(Item(clean(one)) for one in words)))
        )
    columns = (
        Column("prompt set", words=True),
        Column("prompts"),
        *(Column(head, words=True) for head in ("source", "licence", "dropped", "sha256")),
    )
    return Section(
        "prompts",
        "Prompt sets",
        (),
        (Block(tables=(Table("prompt-sets", "As used", columns, tuple(rows)),)),),
    )


def fallen_section(document: RunDocument) -> Section:
    """Cells that failed, are invalid or are missing, and single trials that failed."""
    rows = []
    for cell in document.cells:
        place = (Item(clean(cell.arm)), Item(clean(cell.prompt_set)), Item(str(cell.concurrency)))
        if cell.state != "ok":
            rows.append(
                Row(
                    (*place, Item(cell.state, mark="bad"), Item(clean(cell.reason) or "no reason given")),
                    arm=cell.arm,
                )
            )
            continue
        for trial in cell.trials:
            if trial.failed:
                rows.append(
                    Row(
                        (*place, Item(f"trial {trial.trial} failed", mark="weak"), Item(clean(trial.failed))),
                        arm=cell.arm,
                    )
                )
    for end in document.natural_end:
        if end.state != "ok":
            place = (Item(clean(end.arm)), Item(clean(end.prompt_set)), Item("natural end"))
            reason = clean(end.reason) or ("not run yet" if end.state == "missing" else "no reason given")
            rows.append(Row((*place, Item(end.state, mark="bad"), Item(reason)), arm=end.arm))
    if not rows:
        return Section("fallen", "Cells that do not stand", ("None: every cell that was asked for stands.",))
    columns = (
        Column("arm", words=True),
        Column("prompt set", words=True),
        Column("C"),
        Column("state", words=True),
        Column("reason", words=True),
    )
    table = Table(
        "fallen-cells",
        "Failed, invalid and missing cells; the others are not touched by them",
        columns,
        tuple(rows),
        heads=3,
    )
    return Section("fallen", "Cells that do not stand", (), (Block(tables=(table,)),))


def provenance_section(document: RunDocument) -> Section:
    """Every leaf of the provenance."""
    return _pairs_section(
        "provenance", "Provenance", "Where these numbers come from", flatten(document.provenance)
    )


def settings_section(document: RunDocument) -> Section:
    """What was asked for."""
    pairs = flatten(document.settings.model_dump(mode="json")) + flatten(document.price, "price") * (
        document.price is not None
    )
    return _pairs_section("settings", "Settings", "What was asked for", pairs)


def _pairs_section(id_: str, title: str, caption: str, pairs: Iterable[tuple[str, str]]) -> Section:
    rows = tuple(Row((Item(clean(key)), Item(text))) for key, text in pairs)
    if not rows:
        return Section(id_, title, ("Nothing was recorded.",))
    columns = (Column("what", words=True), Column("value", words=True))
    return Section(id_, title, (), (Block(tables=(Table(f"{id_}-table", caption, columns, rows),)),))


def glossary_section() -> Section:
    """The words of this report."""
    return Section("glossary", "Words", terms=GLOSSARY)


def again_section(document: RunDocument) -> Section:
    """The command and what must be the same."""
    command = document.provenance.get("command")
    words = " ".join(text for _, text in flatten(command)) if command else ""
    lines = (
        "The command of this run, folders shortened. In the same output folder it resumes, in a new one it starts afresh."
        if words
        else "The command was not recorded. `outrider bench STACK` with the settings above repeats the run.",
        "For the same numbers: the same accelerator with nothing beside it, the engine and commits under Provenance, "
        "the prompt files with the sha256 under Prompt sets. Expect the ratios within their intervals, not the same digits.",
    )
    return Section("again", "How to run it again", lines, code=clean(words) if words else "")


def subtitle(document: RunDocument) -> str:
    """``SmolLM2, 2 arms × 2 prompt sets × concurrency 1, 4; 2026-11-29``."""
    steps = ", ".join(str(step) for step in document.settings.concurrency)
    arms, sets = number_word(len(document.arms), "arm"), number_word(len(document.prompt_sets), "prompt set")
    return clean(f"{document.served_name} · {arms} × {sets} × concurrency {steps} · {day(document.created)}")


def day(moment: str) -> str:
    """``2026-11-29 20:00 UTC`` of an ISO 8601 time in UTC; other text as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*(?:Z|\+00:00)", moment)
    return f"{found[1]} {found[2]} UTC" if found else moment


def number_word(value: int, word: str) -> str:
    """``1 arm``, ``5 arms``."""
    return f"{number(value) if value > 99 else value} {word}{'' if value == 1 else 's'}"

"""From trials to cells of the run document: which trials stand, what is pooled, which cells must not be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.bench.acceptance import acceptance, counted
from outrider.bench.document import Cell, Figures, NaturalEnd, Quantiles, TextDifference, Trial, WarmUp
from outrider.bench.figures import CellData, CellPrice, FigureRules, figures, verdict
from outrider.bench.silences import silences
from outrider.measure.records import RequestRecord


@dataclass(frozen=True, slots=True)
class TrialData:
    """One trial of a cell: its number, its place in the run, when it began (ISO 8601), what was measured or why it failed.

    `warmup`: what was sent before it, None where that is not known.
    """

    trial: int
    order: int
    started: str
    data: CellData | None = None
    failed: str = ""
    warmup: WarmUp | None = None


@dataclass(frozen=True, slots=True)
class CellName:
    """Which cell: arm, prompt set, concurrency."""

    arm: str
    prompt_set: str
    concurrency: int


def cell(
    name: CellName,
    trials: Sequence[TrialData],
    price: CellPrice | None = None,
    rules: FigureRules | None = None,
) -> Cell:
    """One cell out of its trials.

    `missing` without trials, `failed` if none was measured, `invalid` if the pooled figures must not be believed. A trial
    that must not be believed (the engine restarted, too many failures) is left out of the pool; only where no trial stands is
    the cell invalid for it.
    """
    done = [_trial(trial, price, rules) for trial in sorted(trials, key=lambda trial: trial.trial)]
    parts = {"arm": name.arm, "prompt_set": name.prompt_set, "concurrency": name.concurrency, "trials": done}
    if not trials:
        return Cell(**parts, state="missing", reason="not run yet")
    measured = [trial.data for trial in trials if trial.data is not None and trial.data.load.records]
    if not measured:
        return Cell(
            **parts, state="failed", reason=next(filter(None, (t.failed for t in done)), "no records")
        )
    refused = {trial.trial for trial in done if trial.failed}
    standing = [
        trial.data
        for trial in trials
        if trial.data is not None and trial.data.load.records and trial.trial not in refused
    ]
    pooled = figures(standing or measured, price, rules)
    reason = verdict(pooled, rules)
    lost = [f"trial {trial.trial}: {trial.failed}" for trial in done if trial.failed]
    return Cell(**parts, state="invalid" if reason else "ok", reason=reason or "; ".join(lost), pooled=pooled)


def _trial(trial: TrialData, price: CellPrice | None, rules: FigureRules | None) -> Trial:
    head = {"trial": trial.trial, "order": trial.order, "started": trial.started}
    if trial.data is None or not trial.data.load.records:
        return Trial(**head, failed=trial.failed or "no records")
    found = figures([trial.data], price, rules)
    load = trial.data.load
    return Trial(
        **head,
        figures=_without_curves(found),
        failed=trial.failed or verdict(found, rules),
        length_s=load.ended_s - load.began_s,
        silences=silences(load.records, trial.data.concurrency, load.began_s),
        warmup=trial.warmup,
    )


def _without_curves(found: Figures) -> Figures:
    """A trial's figures without the percentiles that pictures draw: those are of all trials together."""
    bare = {
        name: value.model_copy(update={"curve": []}) for name, value in found if isinstance(value, Quantiles)
    }
    return found.model_copy(update=bare)


def natural_end(
    name: CellName,
    data: CellData,
    baseline: Sequence[RequestRecord],
    token_parts: Mapping[str, int],
    rules: FigureRules | None = None,
) -> NaturalEnd:
    """The acceptance table's row of one arm, its greedy texts against the baseline's records (empty for the baseline itself).

    `token_parts`: by prompt the token at which the texts part, where the engine counted it.
    """
    found = figures([data], rules=rules)
    reason = verdict(found, rules)
    different = text_differences(data.load.records, baseline)
    return NaturalEnd(
        arm=name.arm,
        prompt_set=name.prompt_set,
        state="invalid" if reason else "ok",
        reason=reason,
        requests=found.requests,
        failures=found.failures,
        output_tokens=found.output_tokens,
        acceptance=acceptance([counted(data.counters, data.load.began_s, idle_before=True)]),
        compared_texts=len(_comparable(data.load.records, baseline)),
        different=[
            TextDifference(
                prompt_id=record.prompt_id, at_character=at, at_token=token_parts.get(record.prompt_id)
            )
            for record, at in different
        ],
    )


def text_differences(
    records: Sequence[RequestRecord], baseline: Sequence[RequestRecord]
) -> list[tuple[RequestRecord, int]]:
    """Answers that are not the baseline's, each with the first character (0-based) at which it parts; one a prompt at most.

    After the first turn that differs, later turns of a prompt have another history and say nothing.
    """
    parted: dict[str, tuple[RequestRecord, int]] = {}
    for record, told in _comparable(records, baseline):
        at = parting(told.text, record.text)
        if at is not None and record.prompt_id not in parted:
            parted[record.prompt_id] = (record, at)
    return list(parted.values())


def _comparable(
    records: Sequence[RequestRecord], baseline: Sequence[RequestRecord]
) -> list[tuple[RequestRecord, RequestRecord]]:
    theirs = {(record.prompt_id, record.turn): record for record in baseline if record.ok}
    mine = sorted((record for record in records if record.ok), key=lambda r: (r.prompt_id, r.turn))
    keys = [(record.prompt_id, record.turn) for record in mine]
    return [(record, theirs[key]) for record, key in zip(mine, keys, strict=True) if key in theirs]


def parting(one: str, other: str) -> int | None:
    """The first character (0-based) at which two texts differ, None if they are the same."""
    if one == other:
        return None
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )

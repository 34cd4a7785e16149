"""Which cells of a document may be believed, and what each of their trials made."""

from __future__ import annotations

from outrider.bench.document import Cell, Figures, RunDocument


def standing(document: RunDocument, arm: str, prompt_set: str, concurrency: int) -> Cell | None:
    """The cell if it may be believed: state ``ok``, with a throughput."""
    cell = document.cell(arm, prompt_set, concurrency)
    return cell if cell and cell.state == "ok" and cell.pooled and cell.pooled.output_tok_s else None


def shared_trials(document: RunDocument, arm: str, other: str, prompt_set: str, concurrency: int) -> int:
    """How many trials of a cell stand in both arms."""
    cells = [document.cell(name, prompt_set, concurrency) for name in (arm, other)]
    return len(set.intersection(*(set(trials_of(cell)) if cell else set() for cell in cells)))


def trials_of(cell: Cell) -> dict[int, Figures]:
    """The figures of the trials that stand, by their numbers."""
    return {trial.trial: trial.figures for trial in cell.trials if trial.figures and not trial.failed}


def tok_s_by_trial(cell: Cell) -> dict[int, float]:
    """Output tok/s of the trials that stand."""
    return {trial: made.output_tok_s for trial, made in trials_of(cell).items() if made.output_tok_s}

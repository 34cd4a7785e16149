"""`outrider compare`: a candidate run against a reference run, as a gate for CI.

Checked: AL - 1 per arm and prompt set, each position's rate per arm, TPOT per arm and over all arms; and that no cell which
stood has fallen. The rule is in `outrider.bench.gates`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from outrider.bench.document import Cell, Counts, RunDocument
from outrider.bench.gates import Accepted, Check, Part, Spread, by_trial, less_accepted, slower, spread
from outrider.core.errors import MeasurementError

LEAST_LENGTH = 1.05
TOLERANCE = 0.03
_LEAST_DRAFTS = 200
_LEAST_RATE = 0.05  # a position accepted less often than this is no gate
_LARGEST_FILE_BYTES = 200_000_000
ALL = "all"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Relative changes for the worse that are let through: of AL - 1 (and of positions), and of TPOT."""

    acceptance: float = TOLERANCE
    tpot: float = TOLERANCE


@dataclass(frozen=True, slots=True)
class Comparison:
    """All checks, the cells that fell, and what else a reader should know."""

    checks: tuple[Check, ...]
    fallen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether anything is worse."""
        return bool(self.fallen) or any(check.regressed for check in self.checks)

    def sentence(self) -> str:
        """One sentence: what regressed, the gravest first, or how little would have been seen."""
        worse = sorted((check for check in self.checks if check.regressed), key=lambda check: -check.change)
        if self.fallen:
            return f"Regression: {self.fallen[0]}{_more(len(self.fallen) - 1 + len(worse))}."
        if worse:
            one = worse[0]
            way = "rose" if one.figure == "TPOT" else "fell"
            where = f" of {one.arm}" if one.arm != ALL else " of all arms"
            where += f" on {one.prompt_set}" if one.prompt_set != ALL else ""
            return (
                f"Regression: {one.figure}{where} {way} by {one.change:.1%} (surely {one.surely:.1%}), "
                f"more than {one.tolerance:.1%}{_more(len(worse) - 1)}."
            )
        worst = {
            name: max(min(check.seen for check in found if check.arm == arm) for arm in arms)
            for name in ("AL - 1", "TPOT")
            if (found := [check for check in self.checks if check.figure == name])
            and (arms := {check.arm for check in found})
        }
        words = " and ".join(f"{seen:.1%} of {name}" for name, seen in worst.items())
        return f"No regression in {len(self.checks)} checks; a change for the worse of {words} would have been seen."


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""


def read_run(path: Path) -> RunDocument:
    """`run.json` of a run's folder, or the file itself. Raises MeasurementError."""
    file = path / "run.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _LARGEST_FILE_BYTES:
            raise MeasurementError(
                f"{file} is larger than any run.json", hint="Name a bench folder or its run.json."
            )
        return RunDocument.model_validate_json(file.read_bytes())
    except OSError as error:
        raise MeasurementError(
            f"{file} cannot be read: {error.strerror}",
            hint="Name the folder that `outrider bench` wrote, or its run.json.",
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise MeasurementError(
            f"{file} is not a run of this version: {place}: {first['msg']}",
            hint="Bench again, or rebuild it with the version that wrote it: outrider bench --report-only.",
        ) from error


def differences(reference: RunDocument, candidate: RunDocument) -> list[str]:
    """Why two runs must not be compared: settings, prompt sets, labels or hardware differ. Versions may: they are the change."""
    found = []
    for what, one, two in (
        ("settings", _settings(reference), _settings(candidate)),
        ("labels", _labels(reference), _labels(candidate)),
        ("hardware", _hardware(reference), _hardware(candidate)),
    ):
        changed = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
        found += [f"{what}: {key} is {one.get(key)} and {two.get(key)}" for key in changed]
    theirs = {prompts.name: prompts for prompts in candidate.prompt_sets}
    for prompts in reference.prompt_sets:
        other = theirs.get(prompts.name)
        if other is None:
            found.append(f"prompt set {prompts.name} is missing in the candidate")
        elif (other.sha256, other.prompts) != (prompts.sha256, prompts.prompts):
            found.append(f"prompt set {prompts.name} holds other prompts")
    kinds = {arm.name: (arm.method, arm.draft_length) for arm in candidate.arms}
    found += [
        f"arm {arm.name} is {arm.method} K = {arm.draft_length}, then {kinds[arm.name][0]} K = {kinds[arm.name][1]}"
        for arm in reference.arms
        if kinds.get(arm.name, (arm.method, arm.draft_length)) != (arm.method, arm.draft_length)
    ]
    names = set(kinds)
    found += [
        f"arm {arm.name} is missing in the candidate" for arm in reference.arms if arm.name not in names
    ]
    return found


def _settings(document: RunDocument) -> dict[str, JsonValue]:
    return document.settings.model_dump(mode="json", exclude={"trials"})


def _labels(document: RunDocument) -> dict[str, JsonValue]:
    return document.labels.model_dump(mode="json", exclude={"notes", "interleaved"})


def _hardware(document: RunDocument) -> dict[str, JsonValue]:
    hardware = document.provenance.get("hardware")
    return (
        {key: value for key, value in hardware.items() if key != "memory_gib"}
        if isinstance(hardware, dict)
        else {}
    )


def compare(
    reference: RunDocument,
    candidate: RunDocument,
    tolerances: Tolerances | None = None,
    *,
    force: bool = False,
) -> Comparison:
    """All checks of a candidate against a reference. Pure.

    Raises MeasurementError: the runs are not of one kind (unless `force`), a draft of the reference has AL < 1.05, there are
    fewer than two trials, nothing in common stands, or some arm's TPOT or draft's AL - 1 has no check that would see a change
    of 15 % beyond the tolerance.
    """
    limits = tolerances or Tolerances()
    different = differences(reference, candidate)
    if different and not force:
        raise MeasurementError(
            f"the runs are not comparable: {'; '.join(different[:4])}{_more(len(different) - 4)}",
            hint="Run both with the same settings, prompts and machine, or say --force and read the result as such.",
        )
    pairs = _pairs(reference, candidate)
    fallen = _fallen(reference, candidate)
    if not pairs and not fallen:
        raise MeasurementError(
            "the runs have no cell in common that stands in both",
            hint=_go_on(reference, candidate) or "See `cells` in each run.json for the reasons.",
        )
    notes = [f"forced though {one}" for one in different]
    notes += [
        f"the {side} is unfinished: cells that are missing are not compared"
        for side in _unfinished(reference, candidate)
    ]
    checks = [
        *_acceptance_checks(pairs, reference, limits.acceptance, notes),
        *_tpot_checks(pairs, limits.tpot),
    ]
    if not checks and not fallen:
        raise MeasurementError(
            "too few samples: a gate needs two trials of each cell in both runs",
            hint=_go_on(reference, candidate)
            or "Run them with more trials: outrider bench --trials 3 goes on with a run of fewer.",
        )
    lacking = [] if force else _lacking(reference, candidate)
    unseen = [*_unseen(pairs, checks, reference), *lacking]
    notes += [
        f"{check.figure} of {check.arm}: a loss of up to {check.seen:.0%} would not have been seen"
        for check in checks
        if check.figure.startswith("position") and check.blind
    ]
    found = Comparison(tuple(checks), tuple(fallen), tuple(notes))
    if unseen and not found.regressed:
        why = "the candidate is not all there" if lacking else "too noisy to be a gate"
        raise MeasurementError(
            f"{why}: {'; '.join(unseen[:4])}{_more(len(unseen) - 4)}",
            hint=_go_on(reference, candidate)
            or "Run more trials, more requests or longer answers, on a machine with less other work.",
        )
    return found


def _unfinished(reference: RunDocument, candidate: RunDocument) -> list[str]:
    both = (("reference", reference), ("candidate", candidate))
    return [side for side, document in both if not document.complete]


def _go_on(reference: RunDocument, candidate: RunDocument) -> str:
    """What to do where a run is unfinished; empty where none is."""
    match _unfinished(reference, candidate):
        case []:
            return ""
        case [side]:
            return f"The {side} is unfinished: repeat its command, which goes on where it stopped."
        case _:
            return "Both runs are unfinished: repeat their commands, which go on where they stopped."


def _unseen(pairs: Sequence[_Pair], checks: Sequence[Check], reference: RunDocument) -> list[str]:
    """Each arm's TPOT and each draft's AL - 1 that no check watches closely enough: a pass would say nothing of it."""
    drafting = {arm.name for arm in reference.arms if arm.method != "none"}
    found = []
    for arm in dict.fromkeys(pair.reference.arm for pair in pairs):
        for figure in ("TPOT", "AL - 1") if arm in drafting else ("TPOT",):
            seen = [check for check in checks if (check.arm, check.figure) == (arm, figure)]
            if not seen:
                found.append(f"{figure} of {arm} has no check (too few drafts or trials)")
            elif all(check.blind for check in seen):
                least = min(check.seen for check in seen)
                found.append(f"{figure} of {arm} would have to change by {least:.0%} to be seen")
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """One cell that stands in both runs."""

    reference: Cell
    candidate: Cell


def _pairs(reference: RunDocument, candidate: RunDocument) -> list[_Pair]:
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if other is not None and cell.state == other.state == "ok":
            found.append(_Pair(cell, other))
    return found


def _fallen(reference: RunDocument, candidate: RunDocument) -> list[str]:
    """Cells that stood and do not stand any more: that is worse, whatever the times say."""
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if cell.state == "ok" and other is not None and other.state in ("failed", "invalid"):
            where = f"{cell.arm} on {cell.prompt_set} at {cell.concurrency} at once"
            found.append(f"{where} is {other.state} now ({other.reason or 'no reason was given'})")
    return found


def _lacking(reference: RunDocument, candidate: RunDocument) -> list[str]:
    """Cells that stood in the reference and were not run in the candidate: nobody knows whether they are worse."""
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if cell.state == "ok" and (other is None or other.state == "missing"):
            found.append(f"{cell.arm} on {cell.prompt_set} at {cell.concurrency} at once was not run")
    return found


def _tpot(cell: Cell) -> dict[int, float]:
    """Median TPOT of each trial that stands, milliseconds."""
    return {
        trial.trial: trial.figures.tpot_ms.p50
        for trial in cell.trials
        if trial.figures and not trial.failed and trial.figures.tpot_ms.p50
    }


def _tpot_checks(pairs: Sequence[_Pair], tolerance: float) -> list[Check]:
    """One an arm, over its cells; and one over all arms, which sees what slows them alike."""
    logs: dict[str, tuple[list[float], list[float]]] = {}
    for arm in dict.fromkeys(pair.reference.arm for pair in pairs):
        mine = [
            pair
            for pair in pairs
            if pair.reference.arm == arm and _tpot(pair.reference) and _tpot(pair.candidate)
        ]
        sides = (
            by_trial([_tpot(pair.reference) for pair in mine]),
            by_trial([_tpot(pair.candidate) for pair in mine]),
        )
        if min(map(len, sides)) >= 2:
            logs[arm] = sides
    noise = spread([side for sides in logs.values() for side in sides])
    if noise is None:
        return []
    checks = [slower(Part("TPOT", arm, ALL, "ms"), *sides, noise, tolerance) for arm, sides in logs.items()]
    if len(logs) > 1:
        both = [_means([sides[side] for sides in logs.values()]) for side in (0, 1)]
        everywhere = spread(both)
        if everywhere is not None and min(map(len, both)) >= 2:
            # Arms are started one by one, so their trials are independent, unless the spread of their mean says otherwise.
            mean = Spread(max(noise.variance / len(logs), everywhere.variance), noise.freedom)
            checks.append(slower(Part("TPOT", ALL, ALL, "ms"), both[0], both[1], mean, tolerance))
    return checks


def _means(arms: Sequence[Sequence[float]]) -> list[float]:
    """Mean over arms, trial by trial, as far as all have them."""
    return [math.fsum(values) / len(values) for values in zip(*arms, strict=False)]


def _counts(cells: Sequence[Cell]) -> list[Counts]:
    """What was counted in each trial, over cells; trials with a void window are left out."""
    found: dict[int, list[Counts]] = {}
    for cell in cells:
        for trial in cell.trials:
            if trial.figures and not trial.failed and trial.figures.acceptance.counts.drafts:
                found.setdefault(trial.trial, []).append(trial.figures.acceptance.counts)
    return [_sum(found[trial]) for trial in sorted(found) if len(found[trial]) == len(cells)]


def _sum(parts: Sequence[Counts]) -> Counts:
    longest = max(len(part.per_position) for part in parts)
    return Counts(
        drafts=sum(part.drafts for part in parts),
        proposed=sum(part.proposed for part in parts),
        accepted=sum(part.accepted for part in parts),
        per_position=[
            sum(part.per_position[place] for part in parts if place < len(part.per_position))
            for place in range(longest)
        ],
    )


def _acceptance_checks(
    pairs: Sequence[_Pair], reference: RunDocument, tolerance: float, notes: list[str]
) -> list[Check]:
    sampled = reference.labels.temperature > 0 or reference.labels.acceptance == "synthetic"
    checks: list[Check | None] = []
    for arm in dict.fromkeys(pair.reference.arm for pair in pairs):
        mine = [pair for pair in pairs if pair.reference.arm == arm]
        before, after = _both(mine, sampled)
        if not before.drafts:
            continue
        if 1 + before.gain < LEAST_LENGTH:
            raise MeasurementError(
                f"the reference's {arm} has AL {1 + before.gain:.3f}, under {LEAST_LENGTH}: there is nothing to lose",
                hint="A draft that is hardly ever accepted is broken or the wrong one: compare with a run in which it works.",
            )
        if all(_drafted_nothing(pair.candidate) for pair in mine):
            checks.append(Check("AL - 1", arm, ALL, before.gain, 0.0, 1.0, 1.0, tolerance))
            notes.append(f"{arm} drafted nothing in the candidate")
            continue
        few = False
        for prompts in dict.fromkeys(pair.reference.prompt_set for pair in mine):
            old, new = _both([pair for pair in mine if pair.reference.prompt_set == prompts], sampled)
            if 1 + old.gain < LEAST_LENGTH:
                notes.append(f"{arm} on {prompts}: AL {1 + old.gain:.3f} in the reference is no gate")
                continue
            if min(old.drafts, new.drafts) < _LEAST_DRAFTS:
                notes.append(f"{arm} on {prompts}: fewer than {_LEAST_DRAFTS} drafts are no gate")
                few = True
                continue
            checks.append(less_accepted(Part("AL - 1", arm, prompts), old, new, tolerance))
        if few and min(before.drafts, after.drafts) >= _LEAST_DRAFTS:
            # The same prompts in the same cells on both sides, so that their mixture is the same.
            checks.append(less_accepted(Part("AL - 1", arm), before, after, tolerance))
        for position in range(before.positions):
            if before.rate(position) >= _LEAST_RATE:
                part = Part(f"position {position + 1}", arm)
                checks.append(less_accepted(part, before, after, tolerance, position))
    return [check for check in checks if check is not None]


def _drafted_nothing(cell: Cell) -> bool:
    return (
        cell.pooled is not None
        and not cell.pooled.acceptance.void
        and not cell.pooled.acceptance.counts.drafts
    )


def _both(pairs: Sequence[_Pair], sampled: bool) -> tuple[Accepted, Accepted]:
    return (
        Accepted(_counts([pair.reference for pair in pairs]), sampled),
        Accepted(_counts([pair.candidate for pair in pairs]), sampled),
    )

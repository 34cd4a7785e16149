"""`outrider compare`: a candidate run against a reference run, as a gate for CI.

Checked, each for an arm as a whole and for every load (prompt set × concurrency) by itself: AL - 1 and TPOT, without which there
is no gate; output tok/s, TTFT, and the tails of TTFT, E2E and step gap as far as the counts bear them. Beside them each
position's rate of an arm, and that no cell which stood has fallen. The rule is in `outrider.bench.gates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import ValidationError

from outrider.bench.acceptance_gates import GAIN, POSITION, acceptance_changes
from outrider.bench.comparable import Pair, differences, fallen, lacking, pairs
from outrider.bench.comparison import Comparison
from outrider.bench.document import RunDocument
from outrider.bench.gates import BLIND, Change, Check, judged
from outrider.bench.time_gates import OTHERS, TPOT, time_changes
from outrider.bench.words import more
from outrider.core.errors import MeasurementError

TOLERANCE = 0.03
WIDER = 0.05
# False alarms that noise may raise in each family of checks, as a share of all comparisons.
OF_TPOT = 0.02
OF_LOADS = 0.01
OF_OTHERS = 0.005
_LARGEST_FILE_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Relative changes for the worse that are let through; None switches the figure's checks off.

    acceptance: AL - 1 and position rates. The tails are p99, or p95 where a trial does not bear a p99.
    """

    acceptance: float | None = TOLERANCE
    tpot: float | None = TOLERANCE
    tok_s: float | None = TOLERANCE
    ttft: float | None = WIDER
    ttft_tail: float | None = WIDER
    e2e_tail: float | None = WIDER
    step_gap: float | None = WIDER

    def of(self, switch: str) -> float | None:
        """Of the figure with that name."""
        found: float | None = getattr(self, switch)
        return found


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


def compare(
    reference: RunDocument,
    candidate: RunDocument,
    tolerances: Tolerances | None = None,
    *,
    force: bool = False,
) -> Comparison:
    """All checks of a candidate against a reference. Pure.

    Raises MeasurementError: the runs are not of one kind (unless `force`), a draft of the reference has AL < 1.05, there are
    fewer than two trials, nothing in common stands, every figure is switched off, or some arm's TPOT or draft's AL - 1 (unless
    switched off) has no check that would see a change of 20 % beyond the tolerance.
    """
    limits = tolerances or Tolerances()
    if all(limits.of(one.name) is None for one in fields(limits)):
        raise MeasurementError("every figure is switched off", hint="Leave one of them on.")
    different = differences(reference, candidate)
    if different and not force:
        raise MeasurementError(
            f"the runs are not comparable: {_some(different)}",
            hint="Run both with the same settings, prompts and machine, or say --force and read the result as such.",
        )
    both, fell = pairs(reference, candidate), fallen(reference, candidate)
    if not both and not fell:
        raise MeasurementError(
            "the runs have no cell in common that stands in both",
            hint=_go_on(reference, candidate) or "See `cells` in each run.json for the reasons.",
        )
    checks, not_gated, notes = _checks(both, reference, limits)
    if not checks and not fell:
        raise MeasurementError(
            "too few samples: a gate needs two trials of each cell in both runs",
            hint=_go_on(reference, candidate)
            or "Run them with more trials: outrider bench --trials 3 goes on with a run of fewer.",
        )
    about = [f"forced though {one}" for one in different]
    about += [
        f"the {side} is unfinished: cells that are missing are not compared"
        for side in _unfinished(reference, candidate)
    ]
    found = Comparison(tuple(checks), tuple(fell), tuple(not_gated), (*about, *notes, *_hardly_seen(checks)))
    left_out = [] if force else lacking(reference, candidate)
    unseen = [*_unseen(both, checks, reference, limits), *left_out]
    if unseen and not found.regressed:
        why = "the candidate is not all there" if left_out else "too noisy to be a gate"
        raise MeasurementError(
            f"{why}: {_some(unseen)}",
            hint=_go_on(reference, candidate)
            or "Run more trials, more requests or longer answers, on a machine with less other work.",
        )
    return found


def _checks(
    both: Sequence[Pair], reference: RunDocument, limits: Tolerances
) -> tuple[list[Check], list[str], list[str]]:
    """Judged checks, what is not gated, notes. Four families: TPOT of arms, acceptance, other figures of arms, single loads."""
    tpot: list[Change] = []
    acceptance: list[Change] = []
    others: list[Change] = []
    loads: list[Change] = []
    not_gated: list[str] = []
    notes: list[str] = []
    if limits.acceptance is not None:
        sampled = reference.labels.temperature > 0 or reference.labels.acceptance == "synthetic"
        drafts = acceptance_changes(both, sampled=sampled, tolerance=limits.acceptance)
        acceptance, loads, notes = drafts.whole, drafts.loads, drafts.notes
    for figure in (TPOT, *OTHERS):
        tolerance = limits.of(figure.switch)
        if tolerance is not None:
            times = time_changes(both, figure, tolerance)
            (tpot if figure is TPOT else others).extend(times.whole)
            loads += times.loads
            not_gated += times.not_gated
    checks = judged(acceptance, OF_OTHERS) + judged(tpot, OF_TPOT)
    checks += judged(others, OF_OTHERS) + judged(loads, OF_LOADS)
    return checks, not_gated, notes


def _hardly_seen(checks: Sequence[Check]) -> list[str]:
    """One note a figure (all positions are one): where a pass says little."""
    figures: dict[str, list[Check]] = {}
    for check in checks:
        name = "position rates" if check.figure.startswith(POSITION) else check.figure
        figures.setdefault(name, []).append(check)
    found = []
    for name, mine in figures.items():
        if blind := [check for check in mine if check.blind]:
            worst = max(blind, key=lambda check: check.seen)
            what = f"{worst.figure} of " if worst.figure != name else ""
            found.append(
                f"{name}: {len(blind)} of {len(mine)} checks would not see {BLIND:.0%} beyond the tolerance; {what}{worst.where} "
                f"would have to change by {worst.seen:.0%}"
            )
    return found


def _unseen(
    both: Sequence[Pair], checks: Sequence[Check], reference: RunDocument, limits: Tolerances
) -> list[str]:
    """Arms whose TPOT or AL - 1 nobody watched closely enough: a pass would say nothing of it."""
    drafting = {arm.name for arm in reference.arms if arm.method != "none"}
    found = []
    for arm in dict.fromkeys(pair.arm for pair in both):
        for figure, tolerance in ((TPOT.name, limits.tpot), (GAIN, limits.acceptance)):
            if tolerance is None or (figure == GAIN and arm not in drafting):
                continue
            mine = [one for one in checks if (one.arm, one.figure, one.concurrency) == (arm, figure, None)]
            if not mine:
                found.append(f"{figure} of {arm} has no check (too few drafts or trials)")
            elif all(one.blind for one in mine):
                least = min(one.seen for one in mine)
                found.append(f"{figure} of {arm} would have to change by {least:.0%} to be seen")
    return found


def _some(words: Sequence[str]) -> str:
    return f"{'; '.join(words[:4])}{more(len(words) - 4)}"


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

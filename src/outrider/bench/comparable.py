"""What of two runs can be compared: cells that stand in both, cells that fell or were not run, and runs of two kinds."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from outrider.bench.document import Cell, RunDocument


@dataclass(frozen=True, slots=True)
class Pair:
    """One cell that stands in both runs."""

    reference: Cell
    candidate: Cell

    @property
    def arm(self) -> str:
        """Of both."""
        return self.reference.arm

    @property
    def load(self) -> tuple[str, int]:
        """Prompt set and concurrency."""
        return self.reference.prompt_set, self.reference.concurrency


def pairs(reference: RunDocument, candidate: RunDocument) -> list[Pair]:
    """All cells that stand in both."""
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if other is not None and cell.state == other.state == "ok":
            found.append(Pair(cell, other))
    return found


def fallen(reference: RunDocument, candidate: RunDocument) -> list[str]:
    """Cells that stood and do not stand any more: that is worse, whatever the times say."""
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if cell.state == "ok" and other is not None and other.state in ("failed", "invalid"):
            where = f"{cell.arm} on {cell.prompt_set} at {cell.concurrency} at once"
            found.append(f"{where} is {other.state} now ({other.reason or 'no reason was given'})")
    return found


def lacking(reference: RunDocument, candidate: RunDocument) -> list[str]:
    """Cells that stood in the reference and were not run in the candidate: nobody knows whether they are worse."""
    found = []
    for cell in reference.cells:
        other = candidate.cell(cell.arm, cell.prompt_set, cell.concurrency)
        if cell.state == "ok" and (other is None or other.state == "missing"):
            found.append(f"{cell.arm} on {cell.prompt_set} at {cell.concurrency} at once was not run")
    return found


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

"""Target and draft as the chart knows them: one block, one hash over the content ids of both.

The chart's template reckons the hash again (`outrider.pairHash` in `_helpers.tpl`), so that a block in which one half was
changed by hand is refused before it reaches a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outrider.core.errors import WeightsError
from outrider.stack.content import COMMIT, Reference, hub_content, part_of
from outrider.stack.digests import Digester
from outrider.stack.facts import ModelFacts
from outrider.stack.find_facts import Found
from outrider.stack.manifest import PairManifest, pair_id
from outrider.stack.models import METHODS_WITH_WEIGHTS, Stack
from outrider.stack.weights import kind_of

MODELS = "/models"
"""Where a pod's engine finds its weights, as ``target`` and ``draft``."""
WITHOUT_HUB = (
    "Render again when it answers (HF_ENDPOINT names a mirror). With --offline it is rendered without it: the pods compare no "
    "files then, and a side without a revision is held to none."
)


@dataclass(frozen=True, slots=True)
class Half:
    """One side in the block: what the pod fetches it by, and the ids its bytes must have."""

    model: str
    revision: str = ""
    sha256: str = ""
    content: Mapping[str, str] = field(default_factory=dict)

    def block(self) -> dict[str, object]:
        """As the values have it, without what is empty."""
        parts = {"model": self.model, "revision": self.revision, "sha256": self.sha256}
        return {**{name: value for name, value in parts.items() if value}, "content": dict(self.content)}


def pair_block(
    stack: Stack, found: Found, manifest: PairManifest | None, note: Callable[[str], None], offline: bool
) -> dict[str, object]:
    """The block `pair` of the values. `found`: the facts of both sides, of which hub listings give commits and hashes.

    `offline`: a half that no hub lists now is taken as it is named, which `note` is told.

    Raises WeightsError: a half on this machine cannot be hashed, or the hub does not list one and it is not `offline`.
    """
    target = _half(
        "target",
        Reference(stack.target.model, stack.target.revision, stack.target.sha256),
        found.target,
        note,
        offline,
    )
    draft = stack.draft
    if draft.method in METHODS_WITH_WEIGHTS and draft.model:
        other = _half("draft", Reference(draft.model, draft.revision), found.draft, note, offline)
    else:
        other = Half("", content={"method": draft.method})
    block: dict[str, object] = {
        "hash": pair_id(target.content, other.content),
        "method": draft.method,
        "target": target.block(),
        "draft": other.block(),
    }
    if manifest and manifest.served:
        best = max(manifest.served, key=lambda served: served.drafts)
        block["baseline"] = {
            "acceptanceLength": best.acceptance_length,
            "source": f"pair.json, {best.prompt_set}",
        }
    return block


def _half(
    side: str, reference: Reference, facts: ModelFacts | None, note: Callable[[str], None], offline: bool
) -> Half:
    kind = kind_of(reference.model)
    if kind != "hub":
        content = part_of(reference, Digester(lambda message: note(f"[weights] {message}"))).content
        # a folder of this machine is none of the pod's: its files are brought to the volume beforehand
        model = reference.model if kind in ("package", "builtin") else f"{MODELS}/{side}"
        return Half(model, "", reference.sha256 or "", content)
    if facts and facts.files and facts.commit:
        return Half(reference.model, facts.commit, "", hub_content(facts.commit, facts.files))
    try:
        digester = Digester(lambda message: note(f"[weights] {message}"))
        content = part_of(reference, digester, offline=offline).content
        return Half(reference.model, content.get(COMMIT, ""), "", content)
    except WeightsError as error:
        if not offline:
            raise WeightsError(f"nothing was rendered: {error}", hint=WITHOUT_HUB) from error
        pin = reference.revision or ""
        note(
            f"[pair] {side}: no hub lists {reference.model} now, so its files are not checked in the pod"
            + ("" if pin else ", and without a revision it is not even pinned")
        )
        return Half(reference.model, pin, "", {"model": reference.model, COMMIT: pin or "unpinned"})

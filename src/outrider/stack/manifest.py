"""The pair manifest, `pair.json`: which target and draft belong together, by content, and what their drafts were worth.

A pair is named by a hash over the content ids of both (see `content`), so that the same name means the same bytes wherever they
are stored. The served acceptance in it is the baseline that alerts, comparisons and the choice of a draft go by.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from outrider.core.acceptance import SpecCounters
from outrider.core.errors import MeasurementError, Problem, StackError
from outrider.core.files import put_whole
from outrider.core.text import printable

FORMAT = "outrider-pair/v1"
MAX_BYTES = 1024 * 1024
MAX_TRAINING_BYTES = 256 * 1024
ID_LENGTH = 16
AL_TOLERANCE = 0.01
"""How far a stated acceptance length may be from that of its counts: figures are written rounded."""
RATE_TOLERANCE = 0.005
"""As much for the rate at one position: half of the last of two decimals."""


@dataclass(frozen=True, slots=True)
class PairPart:
    """One side: its name for people, content ids (file name, ``commit``, ``wheel`` or ``gguf`` -> hash), sizes of its files in
    bytes where they are known."""

    model: str
    content: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairShape:
    """What both sides must agree on. `aux_layers` in the engine's count (empty: no head); `tokenizer` is the fingerprint of the
    target's (SHA-256 over ids and texts, '' where it was not known)."""

    hidden_size: int
    vocab_size: int
    aux_layers: tuple[int, ...] = ()
    draft_vocab_size: int | None = None
    tokenizer: str = ""


@dataclass(frozen=True, slots=True)
class ServedAcceptance:
    """Acceptance on one prompt set at one draft length, counted by the engine that served it.

    `output_tokens`, `drafts` and `accepted` are counts over all `requests`; `acceptance_length` = 1 + accepted / drafts, with the
    bonus token; `per_position` are unconditional rates, 0 to 1.
    """

    prompt_set: str
    draft_length: int
    requests: int
    output_tokens: int
    drafts: int
    accepted: int
    acceptance_length: float
    per_position: tuple[float, ...]
    temperature: float = 0.0

    @classmethod
    def counted(
        cls,
        counts: SpecCounters,
        *,
        prompt_set: str,
        draft_length: int,
        requests: int,
        output_tokens: int,
        temperature: float = 0.0,
    ) -> ServedAcceptance:
        """Of the engine's counts over these requests. Raises MeasurementError: nothing was drafted."""
        if counts.drafts < 1:
            raise MeasurementError(
                f"no acceptance on {prompt_set}: the engine drafted nothing",
                hint="Look at the engine's log: is the draft loaded?",
            )
        return cls(
            prompt_set=prompt_set,
            draft_length=draft_length,
            requests=requests,
            output_tokens=output_tokens,
            drafts=int(counts.drafts),
            accepted=int(counts.accepted),
            acceptance_length=round(1 + counts.accepted / counts.drafts, 4),
            per_position=tuple(round(n / counts.drafts, 4) for n in counts.per_position),
            temperature=temperature,
        )


@dataclass(frozen=True, slots=True)
class PairManifest:
    """What `pair.json` holds. `draft_length`: the K it was made or tried for; `training`: free facts about how it was made."""

    target: PairPart
    draft: PairPart
    method: str
    shape: PairShape | None = None
    draft_length: int | None = None
    served: tuple[ServedAcceptance, ...] = ()
    training: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The pair's name."""
        return pair_id(self.target.content, self.draft.content)


def pair_id(target: Mapping[str, str], draft: Mapping[str, str]) -> str:
    """Name of a pair: 16 hex digits of SHA-256 over both sides' content ids; the order of files does not matter."""
    canonical = json.dumps([sorted(target.items()), sorted(draft.items())], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:ID_LENGTH]


def write_manifest(manifest: PairManifest, path: Path) -> None:
    """Write `pair.json`, whole or not at all.

    Raises StackError: what it says could not be read again (too large, no JSON, impossible figures), or it cannot be written.
    """
    text = as_text(manifest, path)
    parse_manifest(text.encode(), path)
    put_whole(
        path, text, lambda error: _refused(path, (f"cannot be written: {error.strerror or error}",), _WRITE)
    )


def as_text(manifest: PairManifest, path: Path = Path("pair.json")) -> str:
    """The JSON of a manifest. Raises StackError: its training facts are no JSON."""
    value = asdict(manifest)
    for side in ("target", "draft"):
        value[side] = {key: _sorted(one) for key, one in value[side].items() if one or key != "sizes"}
    ordered = {
        key: value.pop(key) for key in ("method", "draft_length", "target", "draft", "shape", "served")
    }
    whole = {"format": FORMAT, "id": manifest.id, **ordered, "training": value["training"]}
    try:
        return json.dumps(whole, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(path, (f"its training facts are no JSON: {error}",), _WRITE) from error


def read_manifest(path: Path) -> PairManifest:
    """Read `pair.json`. Raises StackError, with everything wrong: unreadable, another format, an id that is not its content's."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refused(path, (f"cannot be read: {error.strerror or error}",)) from error
    return parse_manifest(raw, path)


def parse_manifest(raw: bytes, path: Path) -> PairManifest:
    """The manifest in a file's bytes; `path` names it in errors. Raises StackError as `read_manifest` does."""
    if len(raw) > MAX_BYTES:
        raise _refused(path, (f"is larger than {MAX_BYTES // 1024} KiB",))
    try:
        json.loads(raw, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_no_repeated_key)
        document = _Document.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise _refused(path, [f"{_place(one['loc'])}{one['msg']}" for one in found]) from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, (f"is no JSON: {error}",)) from error
    manifest = document.manifest()
    if document.id != manifest.id:
        raise _refused(path, (f"says id {document.id}, its content is {manifest.id}",))
    return manifest


# it stands in logs and on terminals
_Name = Annotated[str, Field(max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Size = Annotated[int, Field(ge=1, le=10**9)]
_Rate = Annotated[float, Field(ge=0, le=1)]
_Length = Annotated[int, Field(ge=1, le=64)]


class _Strict(BaseModel):
    # other keys pass: a later version may write more than this one reads
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class _Part(_Strict):
    model: _Name = ""
    content: dict[_Name, _Name] = Field(max_length=5_000)
    sizes: dict[_Name, _Count] = Field(default_factory=dict, max_length=5_000)

    def part(self) -> PairPart:
        return PairPart(self.model, self.content, self.sizes)


class _Shape(_Strict):
    hidden_size: _Size
    vocab_size: _Size
    aux_layers: tuple[Annotated[int, Field(ge=0, le=10_000)], ...] = Field((), max_length=64)
    draft_vocab_size: _Size | None = None
    tokenizer: _Name = ""


class _Served(_Strict):
    prompt_set: _Name
    draft_length: _Length
    requests: Annotated[int, Field(ge=1, le=2**53)]
    output_tokens: _Count
    drafts: Annotated[int, Field(ge=1, le=2**53)]
    accepted: _Count
    acceptance_length: Annotated[float, Field(ge=1, le=65)]
    per_position: tuple[_Rate, ...] = Field(max_length=64)
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0

    @model_validator(mode="after")
    def _agrees(self) -> _Served:
        counted = 1 + self.accepted / self.drafts
        if abs(counted - self.acceptance_length) > AL_TOLERANCE:
            raise ValueError(f"acceptance_length {self.acceptance_length:g}, by its counts {counted:.4f}")
        if self.accepted > self.drafts * self.draft_length or len(self.per_position) > self.draft_length:
            raise ValueError(
                f"more was accepted than {self.drafts:,} drafts of {self.draft_length} tokens hold"
            )
        rates, tolerance = self.per_position, AL_TOLERANCE + RATE_TOLERANCE * len(self.per_position)
        if any(later > rate + 2 * RATE_TOLERANCE for rate, later in pairwise(rates)):
            raise ValueError("per_position rises: a token is accepted only with those before it")
        over = 1 + sum(rates) - counted
        if over > tolerance or (len(rates) == self.draft_length and over < -tolerance):
            raise ValueError(f"per_position adds up to AL {1 + sum(rates):.4f}, its counts to {counted:.4f}")
        return self


class _Document(_Strict):
    format: Literal["outrider-pair/v1"]
    id: _Name
    method: _Name = ""
    draft_length: _Length | None = None
    target: _Part
    draft: _Part
    shape: _Shape | None = None
    served: tuple[_Served, ...] = Field((), max_length=256)
    training: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bounded(self) -> _Document:
        if (size := len(json.dumps(self.training))) > MAX_TRAINING_BYTES:
            raise ValueError(
                f"training: {size:,} bytes of facts, at most {MAX_TRAINING_BYTES:,} may stand there"
            )
        return self

    def manifest(self) -> PairManifest:
        shape = PairShape(**self.shape.model_dump()) if self.shape else None
        served = tuple(ServedAcceptance(**one.model_dump()) for one in self.served)
        sides = (self.target.part(), self.draft.part())
        return PairManifest(*sides, self.method, shape, self.draft_length, served, self.training)


_READ = "`outrider train` writes it beside the head, `outrider pair write` for a pair there is."
_WRITE = "Nothing was written."


def _sorted(value: object) -> object:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _place(location: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, location))}: " if location else ""


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        _no_number(text)
    return number


def _no_repeated_key(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return value


def _refused(path: Path, messages: tuple[str, ...] | list[str], hint: str = _READ) -> StackError:
    problems = tuple(
        Problem(printable(message), rule="pair-manifest", file=str(path)) for message in messages
    )
    return StackError(f"{path} is no pair manifest.", problems, hint=hint)

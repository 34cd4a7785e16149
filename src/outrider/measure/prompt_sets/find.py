"""Which file a spec means.

Forms: ``NAME``, ``NAME/CATEGORY``, ``NAME=PATH``, ``NAME=ORG/NAME[@REVISION][:FILE]``, ``PATH.jsonl[.gz]``, and
``LABEL=`` in place of ``NAME=``: the user's own form under a name of the user's choice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.core.errors import MeasurementError
from outrider.measure.prompt_sets.catalog import CATALOG, Entry
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.stack.facts import HubError

_PACKAGED = Path(__file__).parents[2] / "data" / "prompts"
_DATA_FILE = re.compile(r"(?s).+\.(jsonl|json)(\.gz)?")
_HUB = re.compile(
    r"(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.][\w./-]*))?(:(?P<file>[\w][\w./ -]*))?"
)
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FROM_CACHE = "Read from the cache without the hub: what the revision meant then, commit {}."
_NOT_DATA = re.compile(r"(^|/)(dataset_infos?|config|package|state|.*_config)\.json$")


@dataclass(frozen=True, slots=True)
class Found:
    """A spec, resolved: the set's `name`, its `entry`, the category wanted (or empty), and the file.

    `shown` is the file as messages name it, `source` as a report may: no folder of this machine. `base` begins the ids.
    """

    name: str
    base: str
    entry: Entry
    category: str
    path: Path
    shown: str
    source: str
    notes: tuple[str, ...] = ()


def find(spec: str, options: PromptOptions, environ: Mapping[str, str] | None = None) -> Found:
    """The file `spec` means; fetched first, if it is the hub's.

    Raises:
        MeasurementError: no such name, category form, file or data set; the hub does not give it.
    """
    env = os.environ if environ is None else environ
    name, given, label = _split(spec)
    base, _, category = name.partition("/")
    entry = CATALOG[base]
    if category and not entry.by_category:
        sets = " and ".join(known for known, one in CATALOG.items() if one.by_category and not one.packaged)
        raise MeasurementError(f"{base} has no categories", hint=f"Only {sets} have.")
    if given:
        found = _given(name, given, entry, label)
        return replace(found, name=label, base=label) if label else found
    if entry.packaged:
        return Found(name, base, entry, category, _PACKAGED / entry.files[0], base, base)
    folder = options.data_folder or (
        Path(env["OUTRIDER_DATA"]).expanduser() if env.get("OUTRIDER_DATA") else None
    )
    for file in entry.files if folder else ():
        if folder and (folder / file).is_file():
            return Found(name, base, entry, category, folder / file, str(folder / file), file)
    where = (
        "is not in the data folder" if folder else "was given no path, and OUTRIDER_DATA names no data folder"
    )
    if not entry.hub:
        raise MeasurementError(f"{base} {where if entry.files else 'needs a path'}", hint=entry.get)
    try:
        return _from_hub(name, entry, entry.hub)
    except MeasurementError as error:
        raise MeasurementError(
            f"{base} {where}; {error}", hint=f"{error.hint} {entry.get}".strip()
        ) from error


def _split(spec: str) -> tuple[str, str, str]:
    """Name (with its category), what follows ``=``, and the label; a bare path is the user's own JSONL."""
    name, equals, given = spec.partition("=")
    known = name.partition("/")[0] in CATALOG
    if equals and not os.path.exists(os.path.expanduser(spec)):
        if not given.strip():
            hint = CATALOG[name.partition("/")[0]].get if known else "Say which file: LABEL=FILE.jsonl."
            raise MeasurementError(f"{spec!r}: nothing follows the =", hint=hint)
        if not known:
            return "jsonl", given, _label(name)
    if known and (equals or not _DATA_FILE.fullmatch(name)):
        return name, given, ""
    if os.path.isdir(os.path.expanduser(spec)):
        raise MeasurementError(
            f"{spec} is a folder, and a prompt set is one file",
            hint="Name a file in it; or, for the named sets in it, --data DIR --set humaneval.",
        )
    if _DATA_FILE.fullmatch(spec):
        return "jsonl", spec, ""
    hint = f"Names: {', '.join(CATALOG)}. Your own: FILE.jsonl or LABEL=FILE; NAME=FILE to say its format."
    if _HUB.fullmatch(spec):
        hint = f"A data set of the hub needs its format: jsonl={spec}. {hint}"
    raise MeasurementError(f"{spec!r} is no prompt set", hint=hint)


def _label(label: str) -> str:
    """The label, if it can be one: part of file names, and nothing that reads like a named set. Raises MeasurementError."""
    if not _LABEL.fullmatch(label):
        raise MeasurementError(
            f"{label!r} cannot be a set's label",
            hint="Use letters, digits, dot, underscore and hyphen, 64 at most: --set chats=mine.jsonl.",
        )
    meant = label.lower().replace("_", "-")
    alike = next((known for known in CATALOG if meant.replace("-", "") == known.replace("-", "")), "")
    if alike:
        raise MeasurementError(
            f"{label!r} is too like {alike}, whose prompts are sent in a form of its own",
            hint=f"Write {alike}=FILE for that form, or another label for your own.",
        )
    return label


def _given(name: str, given: str, entry: Entry, label: str) -> Found:
    base, _, category = name.partition("/")
    path = Path(given).expanduser()
    if path.is_dir():
        inside = [path / file for file in entry.files if (path / file).is_file()]
        if not inside:
            looked = f"{base} is looked for there as: {' or '.join(entry.files)}."
            hint = looked if entry.files else "A prompt set is one file: name a file in it."
            raise MeasurementError(f"{given} is a folder", hint=hint)
        path = inside[0]
    elif not path.exists():
        is_name = _HUB.fullmatch(given) and not given.startswith((".", "~"))
        if is_name and (":" in given or not _DATA_FILE.fullmatch(given)):
            return _from_hub(name, entry, given)
        hint = "Check the path; a data set of the hub is written ORG/NAME, ORG/NAME@REVISION."
        raise MeasurementError(f"{label or base}: there is no file {given}", hint=hint)
    shown_name = _stem(path.name) if base == "jsonl" else name
    return Found(shown_name, shown_name.partition("/")[0], entry, category, path, given, path.name)


def _stem(file: str) -> str:
    return re.sub(r"\.(jsonl|json)?(\.gz)?$", "", file) or file


def _from_hub(name: str, entry: Entry, given: str) -> Found:
    from outrider.stack.hub_data import fetch_data_file  # noqa: PLC0415  # the hub's client takes half a second to import

    match = _HUB.fullmatch(given)
    if match is None:
        raise MeasurementError(f"{given!r} is no hub id", hint="Write ORG/NAME, ORG/NAME@REVISION.")
    base, _, category = name.partition("/")

    def choose(files: list[str]) -> str:
        return _choose(match["id"], files, entry, match["file"])

    try:
        fetched = fetch_data_file(match["id"], match["revision"], choose)
    except HubError as error:
        raise MeasurementError(str(error), hint=error.hint) from error
    source = f"{match['id']}@{fetched.commit[:12]}:{fetched.file}"
    notes = (_FROM_CACHE.format(fetched.commit[:12]),) if fetched.stale else ()
    shown = match["id"].partition("/")[2] if base == "jsonl" else name
    return Found(shown, shown.partition("/")[0], entry, category, fetched.path, source, source, notes)


def _choose(dataset: str, files: list[str], entry: Entry, wanted: str | None) -> str:
    """The one data file of a listing that is meant. Raises MeasurementError."""
    usable = sorted(file for file in files if _DATA_FILE.fullmatch(file) and not _NOT_DATA.search(file))
    if wanted:
        if wanted in usable:
            return wanted
        raise MeasurementError(f"{dataset} has no data file {wanted}", hint=f"It has: {_some(usable)}.")
    for file in entry.hub_files:
        if file in usable:
            return file
    if len(usable) == 1:
        return usable[0]
    if usable:
        hint = f"Say which: {dataset}:FILE. It has: {_some(usable)}."
        raise MeasurementError(f"{dataset} has {len(usable)} data files", hint=hint)
    kinds = "only Parquet files" if any(file.endswith(".parquet") for file in files) else "none"
    hint = "Convert it to JSONL and give the path."
    raise MeasurementError(f"{dataset} has no .json, .jsonl or .jsonl.gz file ({kinds})", hint=hint)


def _some(files: list[str]) -> str:
    return ", ".join(files[:8]) + (" …" if len(files) > 8 else "") if files else "none"
